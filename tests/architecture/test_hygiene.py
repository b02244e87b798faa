"""House rules that no linter holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.architecture.sources import Source, comments, dotted, functions, imports, source_of, sources

VAGUE_NAMES = re.compile(r"_?(utils?|helpers?|common|managers?|misc|base2|legacy)")
TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<rest>.*)")
NOQA = re.compile(r"#\s*noqa(?P<rest>.*)", re.IGNORECASE)
SKIPS = re.compile(r"(pytest\.)?(mark\.)?(skip|skipif|xfail|importorskip)|unittest\.skip\w*")
# What a text has that could break a rule.
MAY_IMPORT_LATE = re.compile(r"^(?!from\b|import\b).*\b(?:from|import)\b.*\bcodeloupe\b", re.MULTILINE)
MAY_IMPORT_FROM_THE_ROOT = re.compile(r"\bfrom\s+codeloupe\s+import\b|\bimport\b.*\bcodeloupe\.")
MAY_CATCH_EVERYTHING = re.compile(r"\bexcept\b\s*\*?\s*:|Exception\b")
MAY_SKIP = re.compile(r"skip|xfail")

Rule = Callable[[Source], Iterator[str]]


def first_party_imports_inside_functions(source: Source) -> Iterator[str]:
    # What a runtime puts together is more than one call needs, and loads with its first use.
    if source.room == "runtime" or not MAY_IMPORT_LATE.search(source.text):
        return
    for function in functions(source.tree):
        for name, line in imports(function):
            if f"{name}.".startswith("codeloupe."):
                yield f"{source.at(line)} imports {name} inside {function.name}"


def public_names_taken_from_the_root(source: Source) -> Iterator[str]:
    if not MAY_IMPORT_FROM_THE_ROOT.search(source.text):
        return
    for name, line in imports(source.tree):
        if re.fullmatch(r"codeloupe\.(?!__version__)\w+", name) and source.room not in ("__init__", ""):
            module = name.removeprefix("codeloupe.")
            if not any(other.room == module for other in sources("src")):
                yield f"{source.at(line)} imports {name}: rooms import from each other's modules"


def vague_names(source: Source) -> Iterator[str]:
    if any(VAGUE_NAMES.fullmatch(part.removesuffix(".py")) for part in source.path.parts):
        yield f"{source.path} does not say what it holds"


def packages_without_a_purpose(source: Source) -> Iterator[str]:
    if source.path.name == "__init__.py" and not ast.get_docstring(source.tree):
        yield f"{source.path} has no docstring that says what the room is for"


def broad_excepts_without_a_comment(source: Source) -> Iterator[str]:
    if not MAY_CATCH_EVERYTHING.search(source.text):
        return
    handlers = (node for node in ast.walk(source.tree) if isinstance(node, ast.ExceptHandler))
    broad = [handler.lineno for handler in handlers if _is_broad(handler.type)]
    explained = {number for number, _ in comments(source)} if broad else set()
    for line in broad:
        if line not in explained:
            yield f"{source.at(line)} catches everything without saying why"


def _is_broad(caught: ast.expr | None) -> bool:
    parts = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(part is None or dotted(part) in ("Exception", "BaseException") for part in parts)


def silenced_checks_without_a_reason(source: Source) -> Iterator[str]:
    # To take a text apart is slow, and what stands in it where no comment is may be taken for one at first.
    if not any(map(_silences_without_a_reason, source.text.splitlines())):
        return
    for number, comment in comments(source):
        if complaint := _silences_without_a_reason(comment):
            yield f"{source.at(number)} {complaint}"


def _silences_without_a_reason(text: str) -> str:
    ignore, noqa = TYPE_IGNORE.search(text), NOQA.search(text)
    if ignore and not re.match(r"\[[\w, -]+\]\s+#\s*\w", ignore["rest"]):
        return "ignores types without a code and a reason"
    if noqa and not re.match(r":\s*[A-Z]+\d+(\s*,\s*[A-Z]+\d+)*\s+[-–#]+\s*\w", noqa["rest"]):
        return "silences a rule without a code and a reason"
    return ""


def skipped_tests(source: Source) -> Iterator[str]:
    if not MAY_SKIP.search(source.text):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and SKIPS.fullmatch(dotted(node)):
            yield f"{source.at(node.lineno)} uses {dotted(node)}: a test runs or is removed"
    for name, line in imports(source.tree):
        if SKIPS.fullmatch(name):
            yield f"{source.at(line)} imports {name}: a test runs or is removed"


PACKAGE_RULES: list[Rule] = [
    first_party_imports_inside_functions,
    public_names_taken_from_the_root,
    packages_without_a_purpose,
    broad_excepts_without_a_comment,
]
RULES: list[Rule] = [vague_names, silenced_checks_without_a_reason, skipped_tests]


@pytest.mark.parametrize("rule", PACKAGE_RULES, ids=lambda rule: rule.__name__)
def test_the_package_has_no(rule: Rule) -> None:
    found = [line for source in sources("src") for line in rule(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_package_tests_and_bench_have_no(rule: Rule) -> None:
    found = [line for source in sources("src", "tests", "bench") for line in rule(source)]
    assert not found, "\n".join(found)


SILENT = "x = 1  # no" + "qa"
IGNORED = "x = 1  # type: " + "ignore"
FOUND: list[tuple[Rule, str, str]] = [
    (first_party_imports_inside_functions, "review/a.py", "def f():\n    from codeloupe.model import change"),
    (first_party_imports_inside_functions, "review/a.py", "async def f():\n    import codeloupe.app"),
    (public_names_taken_from_the_root, "review/a.py", "from codeloupe import review_everything"),
    (vague_names, "review/utils.py", ""),
    (vague_names, "helpers/parse.py", ""),
    (packages_without_a_purpose, "review/__init__.py", "x = 1"),
    (broad_excepts_without_a_comment, "review/a.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (broad_excepts_without_a_comment, "review/a.py", "try:\n    f()\nexcept (KeyError, BaseException):\n    pass"),
    (broad_excepts_without_a_comment, "review/a.py", "try:\n    f()\nexcept:\n    pass"),
    (silenced_checks_without_a_reason, "review/a.py", SILENT),
    (silenced_checks_without_a_reason, "review/a.py", f"{SILENT}: S101"),
    (silenced_checks_without_a_reason, "review/a.py", IGNORED),
    (silenced_checks_without_a_reason, "review/a.py", f"{IGNORED}[misc]"),
    (skipped_tests, "test_a.py", "@pytest.mark.skip\ndef test_a(): ..."),
    (skipped_tests, "test_a.py", "@pytest.mark.skipif(True, reason='x')\ndef test_a(): ..."),
    (skipped_tests, "test_a.py", "pytest.xfail('x')"),
    (skipped_tests, "test_a.py", "from pytest import importorskip"),
]
NOT_FOUND: list[tuple[Rule, str, str]] = [
    (
        first_party_imports_inside_functions,
        "review/a.py",
        "from codeloupe.model import change\ndef f():\n    import rich",
    ),
    (
        public_names_taken_from_the_root,
        "review/a.py",
        "from codeloupe import __version__\nfrom codeloupe import redaction",
    ),
    (vague_names, "review/utility_bills.py", ""),
    (packages_without_a_purpose, "review/__init__.py", '"""What it is for."""'),
    (broad_excepts_without_a_comment, "review/a.py", "try:\n    f()\nexcept Exception:  # any\n    pass"),
    (broad_excepts_without_a_comment, "review/a.py", "try:\n    f()\nexcept KeyError:\n    pass"),
    (silenced_checks_without_a_reason, "review/a.py", f"{SILENT}: S101, S110 - both are meant"),
    (silenced_checks_without_a_reason, "review/a.py", f"{IGNORED}[misc]  # the stub is wrong"),
    (skipped_tests, "test_a.py", "@pytest.mark.requirement('C5')\ndef test_skip_list(): skip_list.skipped()"),
]


@pytest.mark.parametrize(("rule", "path", "text"), FOUND)
def test_a_breach_is_found(rule: Rule, path: str, text: str) -> None:
    assert len(list(rule(source_of(text, f"src/codeloupe/{path}")))) == 1


@pytest.mark.parametrize(("rule", "path", "text"), NOT_FOUND)
def test_what_keeps_the_rule_is_not(rule: Rule, path: str, text: str) -> None:
    assert list(rule(source_of(text, f"src/codeloupe/{path}"))) == []
