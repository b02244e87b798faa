"""Prints which tests keep which defect from coming back: `python -m tests.defects`.

With `--on CHECKOUT` it runs them on another version, which has an environment of its own (`make develop` there), and
prints for each test how it ends: on version 0.1.0 each defect has one that fails because of it.
"""

from __future__ import annotations

import argparse
import ast
import functools
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

TESTS = Path(__file__).parent
# What a test of another version is run with, beside the tests; all else is that version's.
OURS = ("tests", "bench", "pyproject.toml")
# How the message of a failure begins that is about what the program did, not about a name that it has not got.
JUDGED = ("AssertionError", "assert ", "Failed: ")


def tests_by_defect() -> Mapping[str, Sequence[str]]:
    """For each id that a test names by `@pytest.mark.defect("T5")`, those tests as pytest names them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, test in _marked(path):
            found[name].append(test)
    return found


def ends_on(checkout: Path, tests: Iterable[str], jobs: int) -> Mapping[str, Sequence[str]]:
    """How each test ends on a checkout: the first line of each of its failures; nothing for one that passes."""
    by_file: defaultdict[str, list[str]] = defaultdict(list)
    for test in dict.fromkeys(tests):
        by_file[test.partition("::")[0]].append(test)
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(jobs) as pool:
        place = Path(directory)
        for entry in checkout.resolve().iterdir():
            if entry.name not in (*OURS, ".git"):
                (place / entry.name).symlink_to(entry)
        for name in OURS:
            source = TESTS.parent / name
            shutil.copytree(source, place / name) if source.is_dir() else shutil.copy(source, place / name)
        # a file that cannot be loaded would end a run of all
        cases = [case for found in pool.map(functools.partial(_cases, place), by_file.values()) for case in found]
    named = [test for found in by_file.values() for test in found]
    return {test: _ends([case for case in cases if _is_of(case, test)]) for test in named}


def _cases(place: Path, tests: Sequence[str]) -> Sequence[ET.Element]:
    answer = place / f"{tests[0].partition('::')[0].replace('/', '.')}.xml"
    command = [str(place / ".venv/bin/python"), "-m", "pytest", "-q", f"--junitxml={answer}", *tests]
    subprocess.run(command, cwd=place, stdout=sys.stderr, check=False)
    return [*ET.parse(answer).iter("testcase")]


def _is_of(case: ET.Element, test: str) -> bool:
    """Whether a case, or a module that could not be loaded, belongs to a test as pytest names it."""
    told = ".".join(filter(None, (case.get("classname"), (case.get("name") or "").partition("[")[0])))
    path, _, names = test.partition("::")
    module = path.removesuffix(".py").replace("/", ".")
    whole = ".".join(filter(None, (module, names.replace("::", "."))))
    return told == module or f"{told}.".startswith(f"{whole}.")


def _ends(cases: Sequence[ET.Element]) -> Sequence[str]:
    return [end for case in cases for end in _failures(case)] if cases else ["not run"]


def _failures(case: ET.Element) -> Iterator[str]:
    for failure in (*case.iter("failure"), *case.iter("error")):
        message = (failure.get("message") or "").strip()
        if message == "collection failure":
            message = (failure.text or "").strip().splitlines()[-1].removeprefix("E").strip()
        yield message.splitlines()[0] if message else "failed"


def _marked(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    if "mark.defect(" not in text:
        return
    place = path.relative_to(TESTS.parent)
    tree = ast.parse(text)
    for mark in (name for node in tree.body if isinstance(node, ast.Assign) for name in _names(node)):
        yield mark, str(place)
    yield from _marked_within(tree, str(place))


def _marked_within(tree: ast.Module | ast.ClassDef, place: str) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            here = f"{place}::{node.name}"
            yield from ((mark, here) for decorator in node.decorator_list for mark in _names(decorator))
            if isinstance(node, ast.ClassDef):
                yield from _marked_within(node, here)


def _names(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "defect":
            for argument in call.args:
                yield str(ast.literal_eval(argument))


def _order(name: str) -> tuple[str, int]:
    return name[:1], int(name[1:] or 0)


def _print(ids: Sequence[str], on: Path | None, jobs: int) -> None:
    marked = tests_by_defect()
    defects = [(name, marked[name]) for name in ids or sorted(marked, key=_order)]
    ends = ends_on(on, (test for _, tests in defects for test in tests), jobs) if on else {}
    for name, tests in defects:
        shown = any(end.startswith(JUDGED) for test in tests for end in ends.get(test, ()))
        sys.stdout.write(f"{name}{'' if on is None else ' fails' if shown else ' DOES NOT FAIL'}\n")
        for test in tests:
            sys.stdout.write(f"  {test}\n" + "".join(f"    {end[:200]}\n" for end in ends.get(test, ())))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Which tests keep which defect of version 0.1.0 from coming back.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="such as T5; all without any")
    parser.add_argument("--on", type=Path, metavar="CHECKOUT", help="run them on another version")
    parser.add_argument("--jobs", type=int, default=2, help="how many files of tests run at a time")
    given = parser.parse_args()
    _print(given.ids, given.on, given.jobs)
