"""Prints which tests keep which defect from coming back: `python -m tests.defects`."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TESTS = Path(__file__).parent


def tests_by_defect() -> Mapping[str, Sequence[str]]:
    """For each id that a test names by `@pytest.mark.defect("T5")`, those tests as pytest names them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, test in _marked(path):
            found[name].append(test)
    return found


def _marked(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    if "mark.defect(" not in text:
        return
    place = path.relative_to(TESTS.parent)
    tree = ast.parse(text)
    for mark in (name for node in tree.body if isinstance(node, ast.Assign) for name in _names(node)):
        yield mark, str(place)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                for mark in _names(decorator):
                    yield mark, f"{place}::{node.name}"


def _names(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "defect":
            for argument in call.args:
                yield str(ast.literal_eval(argument))


def _order(name: str) -> tuple[str, int]:
    return name[:1], int(name[1:] or 0)


if __name__ == "__main__":
    for name, tests in sorted(tests_by_defect().items(), key=lambda entry: _order(entry[0])):
        sys.stdout.write(f"{name}\n" + "".join(f"  {test}\n" for test in tests))
