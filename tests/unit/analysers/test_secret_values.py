from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codeloupe.analysers.secret_detectors import (
    is_placeholder,
    is_reference,
    looks_random,
    mask_secrets,
    speaks_about_secrets,
)
from codeloupe.system.token_forms import bits_per_character
from tests.rows import each


@each(
    "value",
    ["changeme", "password", "test_key", "your-token", "xxxxxxxx", "", "abc", "abcdefgh", "MyClientSecret", "foo"],
)
def test_a_made_up_value_is_a_placeholder(value: str) -> None:
    assert is_placeholder(value)


@each("value", ["hunter2", "admin", "correcthorse", "Tr0ub4dor3", "kjHGfdNoPqRsXy"])
def test_a_value_that_could_open_a_door_is_no_placeholder(value: str) -> None:
    assert not is_placeholder(value)


@each("value", [
        "$HOME", "${X}", "$(cat f)", "{{ x }}", "{x}", "<x>", "%s", "%(x)s", "%X%", "!vault x", "os.environ['X']",
        "process.env.X", "get_secret()", "config.secret", "DB_PASSWORD", "/run/secret", "~/x", "two words",
        "secrets.token", "row[0]", "self->key", "https://x/",
    ])  # fmt: skip
def test_a_value_that_only_names_where_the_secret_is_is_a_reference(value: str) -> None:
    assert is_reference(value)


@each("value", ["hunter2", "P@ssw0rd!", "a-b-c-d", "UPPERCASE", "abc.123", "x%y"])
def test_a_literal_value_is_no_reference(value: str) -> None:
    assert not is_reference(value)


def test_a_name_that_ends_in_a_property_speaks_about_a_secret() -> None:
    assert [
        name
        for name in ("secret_name", "passwordFile", "SECRET_ARN", "api_key", "password", "")
        if speaks_about_secrets(name)
    ] == [
        "secret_name",
        "passwordFile",
        "SECRET_ARN",
    ]


def test_only_long_mixed_values_look_random() -> None:
    assert looks_random("a8Kd92LmQ0xZ7")
    assert not any(
        looks_random(value) for value in ("hunter2", "correcthorsebattery", "111111111111a", "a8Kd92 LmQ0xZ7")
    )


def test_entropy_counts_bits() -> None:
    assert bits_per_character("") == 0
    assert bits_per_character("aaaa") == 0
    assert bits_per_character("abcd") == 2


def test_a_mask_keeps_at_most_four_characters_and_a_quarter() -> None:
    assert mask_secrets("x = 'abcdefghijklmnopqrst'", ["abcdefghijklmnopqrst"]) == "x = 'abcd********'"
    assert mask_secrets("x = 'abcdefgh'", ["abcdefgh"]) == "x = 'ab********'"
    assert mask_secrets("x = 'abc'", ["abc", ""]) == "x = '********'"


@given(
    st.text(alphabet="xyz ='\n", max_size=20),
    st.text(alphabet="abcd1234", min_size=4, max_size=60),
    st.text(alphabet="xyz ='\n", max_size=20),
)
def test_no_masked_text_holds_the_secret(before: str, value: str, after: str) -> None:
    masked = mask_secrets(f"{before}{value}{after}{value}", [value, value[:4]])

    assert value not in masked
    assert masked.startswith(before)
