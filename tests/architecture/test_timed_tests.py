"""No test measures how long our code takes: on a busy machine, or with coverage, it would fail without a fault."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import Source, dotted, imports, source_of, sources

CLOCKS = re.compile(r"(time\.)?(perf_counter|process_time|thread_time|clock_gettime)(_ns)?")
MAY_ASK_A_CLOCK = re.compile(r"perf_counter|process_time|thread_time|clock_gettime")
MAY_ASK_HOW_LATE_IT_IS = re.compile(r"monotonic|time\.time")
WHAT_INSTEAD = (
    "speed is measured by `make bench`, as a ratio. In a test: take a size at which quadratic work would not end"
    " within the time limit, or count the work; for what must not be waited for, `ends_soon` is in tests/endings.py"
)
# It knows how long an ending may take, for all others.
ENDINGS = "tests/endings.py"


def clocks_of_the_processor(source: Source) -> Iterator[str]:
    if not MAY_ASK_A_CLOCK.search(source.text):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and CLOCKS.fullmatch(dotted(node)):
            yield f"{source.at(node.lineno)} reads {dotted(node)}"
    for name, line in imports(source.tree):
        if CLOCKS.fullmatch(name):
            yield f"{source.at(line)} imports {name}"


def bounds_on_what_passed(source: Source) -> Iterator[str]:
    """`time.monotonic() - began < 2`, in whichever order; that enough time passed may be asserted."""
    if str(source.path) == ENDINGS or not MAY_ASK_HOW_LATE_IT_IS.search(source.text):
        return
    asserted = (node.test for node in ast.walk(source.tree) if isinstance(node, ast.Assert))
    for node in (part for test in asserted for part in ast.walk(test) if isinstance(part, ast.Compare)):
        sides = [node.left, *node.comparators]
        for one, sign, other in zip(sides, node.ops, sides[1:], strict=False):
            smaller = one if isinstance(sign, ast.Lt | ast.LtE) else other
            if _passed(smaller) and isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                yield f"{source.at(node.lineno)} asserts that little time passed"


def _passed(side: ast.expr) -> bool:
    """Whether it is the time since some moment."""
    match side:
        case ast.BinOp(left=ast.Call(func=function), op=ast.Sub()):
            return dotted(function) in ("time.monotonic", "monotonic", "time.time")
        case _:
            return False


def test_no_test_measures_time() -> None:
    rules = (clocks_of_the_processor, bounds_on_what_passed)
    found = [line for source in sources("tests") for rule in rules for line in rule(source)]
    assert not found, "\n".join([*found, WHAT_INSTEAD])


@pytest.mark.parametrize(
    "text",
    [
        "began = time.process_time()",
        "from time import perf_counter",
        "work(clock=time.thread_time_ns)",
        "assert time.monotonic() - began < 2",
        "assert 1 <= time.monotonic() - began <= 2",
        "assert 2 > time.time() - began",
    ],
)
def test_a_timed_test_is_found(text: str) -> None:
    source = source_of(text, "tests/unit/test_sample.py")
    assert len([*clocks_of_the_processor(source), *bounds_on_what_passed(source)]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "assert time.monotonic() - began >= 0.3",
        "while time.monotonic() < deadline: pass",
        "while time.monotonic() - since < 0.3: pass",
        "assert comes_to_pass(lambda: done)",
        "'time.process_time()'",
    ],
)
def test_waiting_is_not_measuring(text: str) -> None:
    source = source_of(text, "tests/unit/test_sample.py")
    assert [*clocks_of_the_processor(source), *bounds_on_what_passed(source)] == []
