from __future__ import annotations

import pytest

from codeloupe.report.replacement import Replacement, exact_replacement
from tests.unit.report.examples import finding

NEW = "    cursor.execute(query, name)"
TWO_LINES = {"evidence": "    a = one()\n    b = two(a)", "line_start": 7, "line_end": 8}


@pytest.mark.parametrize(
    "suggestion",
    [
        f"```python\n{NEW}\n```",
        f"```\n{NEW}\n```\n",
        f"~~~py\n{NEW}\n~~~",
        f"```suggestion\r\n{NEW}\r\n```",
        NEW,
        f"\n{NEW}\n",
    ],
)
def test_code_alone_that_is_a_version_of_the_quote_replaces_it(suggestion: str) -> None:
    assert exact_replacement(finding(suggestion=suggestion)) == Replacement(42, 42, NEW)


@pytest.mark.parametrize(
    "suggestion",
    [
        None,
        "",
        " \n ",
        "Pass the value as a parameter.",
        "use cursor.execute(query, name)",
        "cursor.execute(query, name)",
        f"Like this:\n```python\n{NEW}\n```",
        f"```python\n{NEW}\n```\nand so on",
        f"```python\n{NEW}",
        "```\n```",
        f"```\n{NEW}\n```\n```\n{NEW}\n```",
        "```\n    import os\n```",
        "```\ncursor.execute(query, name)\n```",
        "```\n        cursor.execute(query, name)\n```",
        f"```\n    if name:\n{NEW}\n```",
        "```\n    cursor.execute(query + name)\n```",
        f"```suggestion\n{NEW}  # [redacted]\n```",
        f"```suggestion\n{NEW}\u202e\n```",
        f"```suggestion\n{NEW}\x1b[31m\n```",
        f"```suggestion\n{NEW}\udcff\n```",
        "```suggestion\n" + NEW * 5_000 + "\n```",
    ],
)
def test_anything_else_is_advice(suggestion: str | None) -> None:
    assert exact_replacement(finding(suggestion=suggestion)) is None


def test_a_block_that_is_marked_may_be_longer_than_the_quote() -> None:
    code = f"    if name:\n    {NEW}"

    assert exact_replacement(finding(suggestion=f"```suggestion\n{code}\n```")) == Replacement(42, 42, code)


def test_several_lines_are_replaced_together() -> None:
    shown = finding(**TWO_LINES, suggestion="```\n    a = one()\n    b = two(a, a)\n```")

    assert exact_replacement(shown) == Replacement(7, 8, "    a = one()\n    b = two(a, a)")


def test_tabs_are_kept() -> None:
    shown = finding(evidence="\treturn old(value)", suggestion="```go\n\treturn fresh(value)\n```")

    assert exact_replacement(shown) == Replacement(42, 42, "\treturn fresh(value)")


@pytest.mark.parametrize(
    "changes",
    [
        {"anchored": False},
        {"line_start": 0, "line_end": 0},
        {"line_end": 43},
        {"evidence": ""},
        {"evidence": "    cursor.execute(query + [redacted])"},
        {"evidence": "    cursor.execute(query + name)\n    more"},
    ],
)
def test_a_quote_that_is_not_exactly_the_lines_is_not_replaced(changes: dict[str, object]) -> None:
    assert exact_replacement(finding(suggestion=f"```suggestion\n{NEW}\n```", **changes)) is None
