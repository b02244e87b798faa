"""Prints which tests keep which defect of version 0.1.0 from coming back: `python -m tests.defects`."""

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
        text = path.read_text(encoding="utf-8")
        if "mark.defect(" in text:
            for name, test in _marked(ast.parse(text), str(path.relative_to(TESTS.parent))):
                found[name].append(test)
    return found


def _marked(tree: ast.Module | ast.ClassDef, place: str) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((mark, place) for mark in _names(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            here = f"{place}::{node.name}"
            yield from ((mark, here) for decorator in node.decorator_list for mark in _names(decorator))
            if isinstance(node, ast.ClassDef):
                yield from _marked(node, here)


def _names(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "defect":
            yield from (str(ast.literal_eval(argument)) for argument in call.args)


if __name__ == "__main__":
    for defect, tests in sorted(tests_by_defect().items(), key=lambda item: (item[0][:1], int(item[0][1:] or 0))):
        sys.stdout.write(f"{defect}\n" + "".join(f"  {test}\n" for test in tests))
