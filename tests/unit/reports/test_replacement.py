import pytest

from codeloupe.commits.sweep import plan_of
from codeloupe.reports.replacement import Replacement, exact_replacement, fenced, fix_of
from tests.findings_material import changed_finding
from tests.rows import each
from tests.unit.reports.examples import finding

NEW = "    cursor.execute(query, name)"


@each(
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


@each(
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


def test_several_lines_are_replaced_together_tabs_are_kept_and_a_marked_block_may_be_longer() -> None:
    two = finding(evidence="    a = one()\n    b = two(a)", line_start=7, line_end=8)
    tabbed = finding(evidence="\treturn old(value)")
    longer = f"    if name:\n    {NEW}"
    for shown, language, code in (
        (two, "", "    a = one()\n    b = two(a, a)"),
        (tabbed, "go", "\treturn fresh(value)"),
        (finding(), "suggestion", longer),
    ):
        edit = exact_replacement(changed_finding(shown, suggestion=f"```{language}\n{code}\n```"))
        assert edit == Replacement(shown.first_line, shown.last_line, code)


@each(
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


@pytest.mark.defect("U1")
def test_given_code_replaces_the_quote_at_any_length_and_only_where_it_can_be_seen() -> None:
    longer = "    if name:\n        cursor.execute(query, name)\n    else:\n        return"
    edits = {
        longer: Replacement(42, 42, longer),
        f"{longer}\n": Replacement(42, 42, longer),
        "pass": Replacement(42, 42, "pass"),
        "    x()\u202e": None,
        "    x()\x1b[31m": None,
        '    x("[redacted]")': None,
        "    cursor.execute(query + name)": None,
    }
    for code, edit in edits.items():
        assert exact_replacement(finding(replacement=code, suggestion="Guard it.")) == edit, code
    shown = fix_of(finding(replacement="    x()\u202e", suggestion="Guard it."))
    assert (shown.words, shown.code, shown.edit) == ("Guard it.", "", None)
    apart = fix_of(finding(replacement=longer, suggestion=None, line_end=43))
    assert (apart.words, apart.code, apart.edit) == ("", longer, None)


@pytest.mark.defect("U1")
def test_lines_of_code_in_advice_are_set_as_code_and_sentences_and_lists_are_not() -> None:
    code = [
        "if x:\n    return y\nelse:\n    return z",
        "def f(a):\n\n    return a",
        "    a = 1\n    b = 2",
        "if err != nil {\n\treturn err\n}",
        "foo(bar)\n  .baz()",
    ]
    for text in code:
        assert fenced(text) == f"```\n{text}\n```"
        assert fenced(f"Write this:\n{text}\nThen test it.") == f"Write this:\n```\n{text}\n```\nThen test it."
    for text in (
        "Use a parameter.",
        "Wrap it in a loop.\nThen go on.",
        "- do a\n  more of a\n- do b",
        "1. first\n   and more\n2. second",
        "```\n    x = 1\n```",
        "Close it,\nsince it leaks.",
    ):
        assert fenced(text) == text


@pytest.mark.defect("U1")
def test_the_plan_of_a_commit_holds_the_new_code() -> None:
    longer = "    if name:\n        cursor.execute(query, name)"
    _, green, _ = plan_of([finding(replacement=longer, suggestion=None)])
    assert green.code == longer
