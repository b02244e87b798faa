from __future__ import annotations

from pathlib import Path

from codeloupe.config import yaml as document
from codeloupe.config.yaml import plain
from tests.rows import rows
from tests.unit.config.inputs import load, refusal


def read(text: str) -> object:
    return plain(document.read_document("codeloupe.yaml", text))


@rows(
    ("text", "value"),
    [
        ("yes", True),
        ("'yes'", "yes"),
        ("!!str yes", "yes"),
        ("! yes", "yes"),
        ("", None),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("0x_", "0x_"),
        ("2024-13-45", "2024-13-45"),
        ("<<", "<<"),
        ("=", "="),
        ("[a, [1]]", ["a", [1]]),
        ("{a: {b: c}}", {"a": {"b": "c"}}),
        ("|\n  two\n  lines", "two\nlines"),
    ],
)
def test_plain_values_are_read_as_yaml_means_them(text: str, value: object) -> None:
    assert read(f"key: {text}") == {"key": value}


def test_an_alias_repeats_its_value() -> None:
    settings = load("include: &paths [src, docs]\nexclude: *paths\n").settings
    assert settings.include == settings.exclude == ("src", "docs")


def test_a_file_that_is_all_aliases_of_aliases_is_refused_before_they_are_written_out() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 6)}]" for level in range(1, 30)]
    error = refusal("\n".join(lines))
    assert error.message == "codeloupe.yaml:5: more than 10,000 values, aliases written out"


def test_many_aliases_are_refused() -> None:
    error = refusal("include: [&a x" + ", *a" * 51 + "]")
    assert error.message == "codeloupe.yaml:1: more than 50 aliases (`*name`)"


def test_an_alias_that_contains_itself_is_refused() -> None:
    assert refusal("include: &a [*a]").message == "codeloupe.yaml:1: the alias '*a' contains itself"


def test_an_alias_without_anchor_is_refused_with_the_usual_reason() -> None:
    error = refusal("include:\n  - *src\n")
    assert error.message == "codeloupe.yaml:2: the alias '*src' has no anchor before it"
    assert error.hint == "put a value that begins with `*` in quotes"


def test_aliases_cannot_nest_deeper_than_brackets_can() -> None:
    steps = [f"a{level}: &a{level} [[[*a{level - 1}]]]" for level in range(1, 50)]
    assert refusal("a0: &a0 x\n" + "\n".join(steps)).message == "codeloupe.yaml:5: nested more than 10 levels deep"


@rows("opening", ["[", "{", "- ", "? ", "{a: "])
def test_deep_nesting_is_refused(opening: str) -> None:
    assert refusal(opening * 150_000).message == "codeloupe.yaml:1: nested more than 10 levels deep"


@rows("text", ["include: [" + "a, " * 20_000 + "]", "".join(f"k{n}: 1\n" for n in range(9_000))])
def test_too_many_values_are_refused(text: str) -> None:
    assert "more than 10,000 values" in refusal(text).message


@rows(
    "text",
    [
        "include: !!python/object/apply:os.system [touch {mark}]",
        "include: !!python/object/apply:os.system\n  - touch {mark}\n",
        "!!python/object/apply:os.system [touch {mark}]: 1",
        "!!python/object/apply:os.system {{args: [touch {mark}]}}",
        "include: !!python/object/new:os.system [touch {mark}]",
        "include: !!python/name:os.system",
        "include: !!python/module:os",
        "include: !!binary aGVsbG8=",
        "include: !!set {{a, b}}",
        "include: !mine [a]",
        "max_file_bytes: !!int _",
        "skip_vendored: !!bool x",
        "timeout_seconds: !!timestamp x",
        "include: !<tag:example.org,2000:x> [a]",
    ],
)
def test_tags_are_refused_and_run_nothing(text: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    error = refusal(text.format(mark=mark))
    assert error.message.startswith("codeloupe.yaml:1: the tag '!") or "the tag 'tag:example.org" in error.message
    assert error.message.endswith("is not allowed")
    assert not mark.exists()


def test_the_refused_tag_is_shown_as_it_was_written() -> None:
    assert "the tag '!!python/name:os.system' is" in refusal("include: !!python/name:os.system x").message


@rows(
    ("text", "found"),
    [("- a\n- b\n", "a list"), ("\nfail_on high\n", "'fail_on high'"), ("[]", "an empty list"), ("5", "'5'")],
)
def test_a_file_without_keys_is_refused(text: str, found: str) -> None:
    error = refusal(text)
    line = 2 if text.startswith("\n") else 1
    assert error.message == f"codeloupe.yaml:{line}: expected lines of `key: value`, found {found}"


def test_a_second_document_is_refused() -> None:
    assert refusal("fail_on: low\n---\nfail_on: high\n").message == "codeloupe.yaml:2: a second document begins here"


def test_a_list_or_a_group_cannot_be_a_key() -> None:
    assert refusal("fail_on: low\n[a]: b\n").message == "codeloupe.yaml:2: a list cannot be a key"
    assert refusal("{a: b}: c\n").message == "codeloupe.yaml:1: a group of keys cannot be a key"


def test_a_very_long_value_is_refused() -> None:
    assert refusal("base_branch: " + "x" * 5000).message == "codeloupe.yaml:1: a value longer than 4,096 characters"


def test_a_very_long_text_is_refused() -> None:
    assert refusal("#" * 1_000_001).message == "codeloupe.yaml: larger than 1,000,000 characters"
