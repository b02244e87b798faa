"""Modules and functions stay small. What cannot is named here with a reason, and only as long as it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from statistics import median

import pytest

from tests.architecture.sources import Source, functions, source_of, sources

MODULE_LINES = 400
TEST_MODULE_LINES = 600
FUNCTION_LINES = 60
TEST_FUNCTION_LINES = 100
MEDIAN_FUNCTION_LINES = 12

# A path, or a path and a function such as "src/codeloupe/x.py::parse", to its limit and the reason.
EXCEPTIONS: dict[str, tuple[int, str]] = {}


@cache
def sizes(source: Source) -> dict[str, tuple[int, int]]:
    """What is measured in a module, with its lines and its limit."""
    is_test = source.path.parts[0] == "tests"
    module_limit = TEST_MODULE_LINES if is_test else MODULE_LINES
    function_limit = TEST_FUNCTION_LINES if is_test else FUNCTION_LINES
    measured = {str(source.path): (len(source.text.splitlines()), module_limit)}
    for function in functions(source.tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        name = f"{source.path}::{function.name}"
        measured[name] = max(measured.get(name, (0, 0)), (lines, function_limit))
    return measured


def complaints(measured: Mapping[str, tuple[int, int]], exceptions: Mapping[str, tuple[int, str]]) -> list[str]:
    found = [f"{name} is excepted but does not exist" for name in exceptions.keys() - measured.keys()]
    for name, (lines, limit) in measured.items():
        allowed, reason = exceptions.get(name, (limit, "none needed"))
        if lines > allowed:
            found.append(f"{name} has {lines} lines, more than {allowed}: it probably holds two things")
        if name in exceptions and (lines <= limit or not reason):
            found.append(f"{name} is excepted with {lines} lines, which needs no exception or has no reason")
    return found


def test_modules_and_functions_are_within_their_limits() -> None:
    measured = {
        name: size for source in sources("src", "tests", "bench", "fuzz") for name, size in sizes(source).items()
    }
    found = complaints(measured, EXCEPTIONS)
    assert not found, "\n".join(found)


def test_half_of_all_functions_fit_in_a_dozen_lines() -> None:
    lengths = [lines for source in sources("src") for name, (lines, _) in sizes(source).items() if "::" in name]
    assert median(lengths) <= MEDIAN_FUNCTION_LINES


class TestTheRule:
    LONG = "def long():\n" + "    pass\n" * FUNCTION_LINES

    def test_one_line_too_many_is_found(self) -> None:
        assert len(complaints(sizes(source_of(self.LONG)), {})) == 1
        assert complaints(sizes(source_of(self.LONG.removesuffix("    pass\n"))), {}) == []

    def test_a_long_module_is_found(self) -> None:
        assert len(complaints(sizes(source_of("x = 1\n" * (MODULE_LINES + 1))), {})) == 1

    def test_tests_may_be_longer(self) -> None:
        assert complaints(sizes(source_of("x = 1\n" * TEST_MODULE_LINES, "tests/unit/test_x.py")), {}) == []
        assert complaints(sizes(source_of(self.LONG, "tests/unit/test_x.py")), {}) == []

    @pytest.mark.parametrize(
        ("limit", "reason", "count"),
        [(FUNCTION_LINES + 1, "a table", 0), (FUNCTION_LINES + 1, "", 1), (1, "a table", 1)],
    )
    def test_an_exception_needs_a_reason_and_holds_its_own_limit(self, limit: int, reason: str, count: int) -> None:
        named = {"src/codeloupe/engine/sample.py::long": (limit, reason)}
        assert len(complaints(sizes(source_of(self.LONG)), named)) == count

    def test_an_exception_that_is_no_longer_needed_is_found(self) -> None:
        named = {"src/codeloupe/engine/sample.py::short": (99, "a table"), "src/codeloupe/gone.py": (999, "a table")}
        assert len(complaints(sizes(source_of("def short(): ...\n")), named)) == 2
