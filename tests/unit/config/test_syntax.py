from __future__ import annotations

from tests.rows import rows
from tests.unit.config.inputs import refusal


@rows(
    ("text", "place", "what", "hint"),
    [
        ("include:\n\t- a\n", "2:1", "a tab is used for indentation", "indent with spaces"),
        ("\tfail_on: low", "1:1", "a tab is used for indentation", "indent with spaces"),
        ("include: a\n\tb: c", "2:1", "a tab is used for indentation", "indent with spaces"),
        ("fail_on: high: low", "1:14", "there is a `:` where no key can be", "put a value that holds `: ` in quotes"),
        ("fail_on: low\n  untrusted: true", "2:12", "there is a `:` where no key can be", "put a value"),
        ("fail_on: low\ninclude: [a, b\n", "2:10", "this `[` is not closed", "add the missing `]`"),
        ("fail_on: {a: b\n", "1:10", "this `{` is not closed", "add the missing `}`"),
        ("\nbase_branch: 'main\n", "2:14", "this quote is not closed", "add the closing quote"),
        (r'include: ["\d+"]', "1:12", r"the text in double quotes holds a `\`", "use single quotes"),
        ("fail_on: low\nuntrusted\nskip_vendored: true", "2:1", "this line is no `key: value`", "write `key: value`"),
        ("base_branch: 'it's'", "1:18", "this does not belong here", "check indentation and quotes"),
        ("include:\n  - *.py\n", "2:5", "a plain value cannot begin with `*`", 'put it in quotes, such as "*.py"'),
        ("include: [**/*.py]", "1:11", "a plain value cannot begin with `*`", "put it in quotes"),
        ("- a\nfail_on: low", "2:1", "a list and keys are mixed on one level", "indent the list under its key"),
        ("base_branch: @main", "1:14", "neither key nor value can begin with '@'", "put the value in quotes"),
        ("\ufefffail_on: low\nuntrusted: @x", "2:12", "neither key nor value can begin with '@'", "put the value"),
        ("base_branch: %main", "1:14", "neither key nor value can begin with '%'", "put the value in quotes"),
        ("base_branch: ]", "1:14", "a value is missing here", "put the value in quotes"),
        ("%YAML 3.0\n---\n", "1:1", "this version of YAML is not known", "remove the %YAML line"),
        ("%TAG ! x\n---\n", "1:1", "tag directives are not allowed", "remove the %TAG line"),
        ("# é\nfail_on: \x1b[31m", "2:10", r"the character '\x1b' is not allowed", "remove it"),
        ("fail_on: \ud800", "1:10", r"the character '\ud800' is not allowed", "remove it"),
        ("base_branch: |x\n a", "1:15", "not valid YAML: ", "check this line"),
    ],
)
def test_broken_text_is_refused_with_line_column_and_words(text: str, place: str, what: str, hint: str) -> None:
    error = refusal(text)
    assert error.message.startswith(f"codeloupe.yaml:{place}: {what}")
    assert error.hint.startswith(hint)
    assert "\n" not in error.message


def test_a_million_characters_of_directives_are_refused_at_the_first() -> None:
    error = refusal("\ufeff\n" + "".join(f"%TAG !{number:x}! b\n" for number in range(60_000)))
    assert error.message == "codeloupe.yaml:2:1: tag directives are not allowed"


@rows("separator", ["\r", "\x85", "\u2028", "\u2029", "\n\ufeff", "\ufeff"])
def test_no_line_break_hides_a_directive(separator: str) -> None:
    assert "tag directives are not allowed" in refusal(f"#{separator}\n{separator}%TAG ! x").message
