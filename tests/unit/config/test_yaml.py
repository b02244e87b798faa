"""The YAML reader: what it takes, what it refuses with line and hint, and how mistakes are told."""

from pathlib import Path

from codeloupe.config.schema import KEYS
from codeloupe.config.yaml import Problem, closest, closest_key, config_error, escape, plain, quote, read_document
from tests.rows import each
from tests.unit.config.inputs import refusal


@each(
    ("text", "value"),
    [
        *[("yes", True), ("'yes'", "yes"), ("!!str yes", "yes"), ("", None), ("1_000", 1000), ("1.5", 1.5)],
        *[("0x_", "0x_"), ("2024-13-45", "2024-13-45"), ("<<", "<<"), ("=", "="), ("[a, [1]]", ["a", [1]])],
        *[("{a: {b: c}}", {"a": {"b": "c"}}), ("|\n  two\n  lines", "two\nlines")],
    ],
)
def test_plain_values_are_read_as_yaml_means_them(text: str, value: object) -> None:
    assert plain(read_document("codeloupe.yaml", f"key: {text}")) == {"key": value}
    assert plain(read_document("codeloupe.yaml", "key: &x [a]\nagain: *x\n")) == {"key": ["a"], "again": ["a"]}


_BOMB = ["a0: &a0 [x, x, x, x, x, x]"]
_BOMB += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 6)}]" for level in range(1, 30)]
_DEEP_ALIASES = ["a0: &a0 x", *(f"a{level}: &a{level} [[[*a{level - 1}]]]" for level in range(1, 50))]
_ODD = {r'include: ["\d+"]': "1:12", "a: 'it's'": "1:8", "\ufeffb: 1\na: @x": "2:4", "a: %x": "1:4", "a: |x\n a": "1:5"}
_EXPECTED, _DEEP = "expected lines of `key: value`, found", "nested more than 10 levels deep"
_MANY = "more than 10,000 values after expanding aliases"


@each(
    ("text", "message"),
    [
        ("\n".join(_BOMB), f":1: {_MANY}"),
        *[("\n".join(_DEEP_ALIASES), f":2: {_DEEP}"), ("include: &a [*a]", f":1: {_DEEP}")],
        *((text * 150_000, f":1: {_DEEP}") for text in ("[", "{", "- ", "? ", "{a: ")),
        ("include: [" + "a, " * 20_000 + "]", f":1: {_MANY}"),
        ("".join(f"k{n}: 1\n" for n in range(9_000)), f":5000: {_MANY}"),
        ("include:\n  - *src\n", ":2:5: this alias has no anchor before it"),
        *[("- a\n- b\n", f":1: {_EXPECTED} a list"), ("\nfail_on high\n", f":2: {_EXPECTED} 'fail_on high'")],
        *[("[]", f":1: {_EXPECTED} an empty list"), ("5", f":1: {_EXPECTED} '5'")],
        ("fail_on: low\n---\nfail_on: high\n", ":2: a second document begins here"),
        ("fail_on: low\n[a]: b\n", ":2: a list cannot be a key"),
        ("{a: b}: c\n", ":1: a group of keys cannot be a key"),
        ("base_branch: " + "x" * 5000, ":1: a value longer than 4,096 characters"),
        ("#" * 1_000_001, ": larger than 1,000,000 characters"),
        ("\ufeff\n" + "".join(f"%TAG !{n:x}! b\n" for n in range(60_000)), ":2:1: tag directives are not allowed"),
    ],
)
def test_a_file_that_would_cost_too_much_or_has_no_keys_is_refused(text: str, message: str) -> None:
    error = refusal(text)
    assert error.message == f"codeloupe.yaml{message}"
    assert error.hint


@each(
    "text",
    [
        *(f"include: !!python/object/{kind}:os.system [touch {{mark}}]" for kind in ("apply", "new")),
        *(f"!!python/object/apply:os.system {more}" for more in ("[touch {mark}]: 1", "{{args: [touch {mark}]}}")),
        *("include: !!python/name:os.system", "include: !!binary aGVsbG8=", "include: !mine [a]", "a: ! yes"),
        *("max_file_bytes: !!int _", "skip_vendored: !!bool x", "include: !<tag:example.org,2000:x> [a]"),
    ],
)
def test_tags_are_refused_as_written_and_run_nothing(text: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    error = refusal(text.format(mark=mark))
    assert error.message.startswith("codeloupe.yaml:1: the tag '!") or "the tag 'tag:example.org" in error.message
    assert error.message.endswith("is not allowed")
    assert not mark.exists()


@each(
    ("text", "place", "what", "hint"),
    [
        ("include:\n\t- a\n", "2:1", "a tab is used for indentation", "indent with spaces"),
        ("fail_on: high: low", "1:14", "unexpected `:`", "put a value that contains `: ` in quotes"),
        ("fail_on: low\ninclude: [a, b\n", "2:10", "this bracket is not closed", "add the missing bracket"),
        ("\nbase_branch: 'main\n", "2:14", "this quote is not closed", "add the closing quote"),
        ("fail_on: low\nuntrusted\nskip_vendored: true", "2:1", "this line is not `key: value`", "write `key: value`"),
        ("include:\n  - *.py\n", "2:5", "a plain value cannot begin with `*`", 'put it in quotes, such as "*.py"'),
        ("base_branch: ]", "1:14", "a value is missing here", "put the value in quotes"),
        ("%TAG ! x\n---\n", "1:1", "tag directives are not allowed", "remove the %TAG line"),
        ("# é\nfail_on: \x1b[31m", "2:10", r"the character '\x1b' is not allowed", "remove it"),
        ("fail_on: \ud800", "1:10", r"the character '\ud800' is not allowed", "remove it"),
        *((text, place, "not valid YAML: ", "check the indentation and quotes") for text, place in _ODD.items()),
    ],
)
def test_broken_text_is_refused_with_line_column_and_words(text: str, place: str, what: str, hint: str) -> None:
    error = refusal(text)
    assert error.message.startswith(f"codeloupe.yaml:{place}: {what}")
    assert error.hint.startswith(hint)
    assert "\n" not in error.message


@each("separator", ["\r", "\x85", "\u2028", "\u2029", "\n\ufeff", "\ufeff"])
def test_no_line_break_hides_a_directive(separator: str) -> None:
    assert "tag directives are not allowed" in refusal(f"#{separator}\n{separator}%TAG ! x").message


def test_the_key_that_was_probably_meant_is_found() -> None:
    meant = {
        **dict.fromkeys(("failOn", "FailOn", "fail-on", "FAIL ON", "fail.on", "fial_on", f"{'fail on':60}"), "fail_on"),
        "skipLockFiles": "skip_lock_files",
        "excludes": "exclude",
        "timeout": "timeout_seconds",
        "ignore": "exclude",
        **dict.fromkeys(("colour", "", "---", f"{'fail on':61}")),
    }
    assert {word: closest_key(word, KEYS) for word in meant} == meant
    assert closest("skip", KEYS, cutoff=0.99) is None
    assert closest_key("ignore", ["fail_on"]) is None


def test_mistakes_are_told_alone_with_their_hint_or_listed_up_to_twenty() -> None:
    error = config_error([Problem("f:1", "a: wrong", "mend it")])
    assert (error.message, error.hint) == ("f:1: a: wrong", "mend it")
    error = config_error([Problem(f"f:{line}", "wrong") for line in range(1, 1501)])
    lines = error.message.splitlines()
    assert lines[:2] == ["the configuration has 1,500 mistakes:", "  f:1: wrong"]
    assert lines[20:] == ["  f:20: wrong", "  and 1,480 more"]
    assert error.hint == "correct each line, then check with `codeloupe config validate`"


def test_whatever_a_terminal_could_act_on_is_escaped_and_a_long_value_cut() -> None:
    shown = r"ä\x1b[2J\x9b\r\n\t\u202e\u2028\udcff\U000e0001"
    assert escape("ä\x1b[2J\x9b\r\n\t\u202e\u2028\udcff\U000e0001") == shown
    assert quote("x" * 60) == "'" + "x" * 60 + "'"
    assert quote("x" * 61) == "'" + "x" * 60 + "…'"
