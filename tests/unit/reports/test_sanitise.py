from __future__ import annotations

import sys
import unicodedata

import pytest

from codeloupe.system.untrusted import json_document, log_line, terminal, without_log_commands
from tests.rows import each

FORMAT_SIGNS_THAT_ARE_SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
INVISIBLE_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u3164\uffa0\ufe00\U000e0100"


def acts_or_hides(character: str) -> bool:
    if ord(character) in FORMAT_SIGNS_THAT_ARE_SEEN:
        return False
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_escape_sequences_are_shown_and_not_obeyed() -> None:
    assert terminal("\x1b[31mred\x1b]0;title\x07 \x9b2J") == "\\x1b[31mred\\x1b]0;title\\x07 \\x9b2J"


@each(
    ("text", "shown"),
    [
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("\u2066a\u2069\u200e\u200f\u061c", "\\u2066a\\u2069\\u200e\\u200f\\u061c"),
        ("a\u200bb\ufeffc\u00add", "a\\u200bb\\ufeffc\\xadd"),
        ("one\u2028two\u2029", "one\\u2028two\\u2029"),
        ("\U000e0041", "\\U000e0041"),
        ("name\udcff.py", "name\\xff.py"),
        ("\ud83d", "\\ud83d"),
        ("a\tb", "a b"),
        ("a\nb\rc", "a\\x0ab\\x0dc"),
    ],
)
def test_what_acts_or_hides_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert terminal(text) == shown


@each("text", ["plain ASCII ~", "naïve café", "e\u0301", "日本語 한국어", "שלום سلام", "❤️ 1️⃣", "👩‍💻 🏳️‍🌈 👍🏽", "–—…·"])
def test_ordinary_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert terminal(text) == text


@each("text", ["a\u200db", "👩\u200d", "\u200d💻", "a\ufe0f\u200d💻", "pass\ufe0fword"])
def test_a_joiner_or_selector_outside_an_emoji_is_shown(text: str) -> None:
    assert "\\u" in terminal(text)


def test_newlines_stay_when_they_are_asked_for() -> None:
    assert terminal("a\r\nb\n\x1bc\rd", keep_newlines=True) == "a\nb\n\\x1bc\\x0dd"


def test_every_control_and_format_character_of_unicode_is_escaped() -> None:
    acting = [sign for sign in map(chr, range(sys.maxunicode + 1)) if sign != "\t" and acts_or_hides(sign)]
    assert len(acting) > 2_000
    left = {*acting} & {*terminal("a".join(acting))}
    assert sorted(f"{ord(sign):04x}" for sign in left) == []


@each("letter", INVISIBLE_LETTERS)
def test_letters_without_a_shape_are_escaped(letter: str) -> None:
    assert letter not in terminal(f"a{letter}b")


@each(
    ("text", "shown"),
    [
        ("::error file=a::x", ": :error file=a::x"),
        ("  ::add-mask::x", "  : :add-mask::x"),
        ("\u3000::stop-commands::x", "\u3000: :stop-commands::x"),
        ("std::string", "std::string"),
        ("x ##[error]y", "x ## [error]y"),
        ("###[group]", "### [group]"),
        ("##vso[task.complete]", "## vso[task.complete]"),
        ("## A heading", "## A heading"),
    ],
)
def test_a_log_line_is_no_command_to_the_ci_system(text: str, shown: str) -> None:
    assert log_line(text) == shown


def test_commands_are_broken_at_the_start_of_every_line() -> None:
    assert without_log_commands("a\n  ::error::b\n::c") == "a\n  : :error::b\n: :c"


def test_json_escapes_a_character_beyond_the_basic_plane_as_a_pair() -> None:
    assert json_document('"a\U000e0041\x7f日"') == '"a\\udb40\\udc41\\u007f日"'


@pytest.mark.no_cover
@each("piece", ["\x1b", "\u200d", "##", "##a", " ", "\n ", "::", "👩\u200d", "日"])
def test_a_great_text_is_cleaned_to_its_end(piece: str) -> None:
    # Work that grows with the square of this size would not end within the time limit of a test.
    text = piece * (150_000 // len(piece)) + "\x1b"
    assert log_line(text).endswith("\\x1b")
    assert terminal(text, keep_newlines=True).endswith("\\x1b")
