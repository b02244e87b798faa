import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.system.untrusted import (
    code_span,
    json_document,
    log_line,
    markdown_code,
    markdown_line,
    markdown_prose,
    terminal,
    without_log_commands,
)
from tests.markdown_page import ACTIVE, code, kinds
from tests.rows import each

FORMAT_SIGNS_THAT_ARE_SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
INVISIBLE_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u3164\uffa0\ufe00\U000e0100"


def acts_or_hides(character: str) -> bool:
    if ord(character) in FORMAT_SIGNS_THAT_ARE_SEEN:
        return False
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


@each(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b]0;title\x07 \x9b2J", "\\x1b[31mred\\x1b]0;title\\x07 \\x9b2J"),
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


def test_every_control_and_format_character_of_unicode_and_letters_without_a_shape_are_escaped() -> None:
    acting = [sign for sign in map(chr, range(sys.maxunicode + 1)) if sign != "\t" and acts_or_hides(sign)]
    assert len(acting) > 2_000
    acting += INVISIBLE_LETTERS
    left = {*acting} & {*terminal("a".join(acting))}
    assert sorted(f"{ord(sign):04x}" for sign in left) == []


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


@given(st.text(st.sampled_from("` ab\\|"), max_size=12))
def test_a_code_span_shows_exactly_its_text(text: str) -> None:
    if text.strip():
        assert code(f"x {code_span(text)} y") == [text]
    else:
        assert code_span(text) == ""


@each(
    ("text", "page"),
    [
        ("plain words, *stressed* and **strong**", "plain words, *stressed* and **strong**"),
        ("call `run()` twice", "call `run()` twice"),
        ("``a ` b`` and `open", "``a ` b`` and \\`open"),
        ("- one\n- two", "- one\n- two"),
        ("x_y and __init__", "x\\_y and \\_\\_init\\_\\_"),
        ("<b>bold</b> &amp;", "&lt;b&gt;bold&lt;/b&gt; &amp;amp;"),
        ("![alt](http://e.test/x.png)", "!\\[alt\\](`http://e.test/x.png`)"),
        ("ask @team/core, see #12.", "ask `@team/core`, see `#12`."),
        ("mail a@b.test.", "mail `a@b.test`."),
        ("owner/project#4 and GH-5 and !6", "owner/project`#4` and `GH-5` and `!6`"),
        ("!4GH-3 and #1GH-2GH-3x", "`!4` `GH-3` and `#1` `GH-2GH-3`x"),
        ("HIGH-3 stays", "HIGH-3 stays"),
        ("# Verdict: PASS", "\\# Verdict: PASS"),
        ("fine\n===", "fine\n\\==="),
        ("fine\n---:", "fine\n\\---:"),
        ("1. ---", "1. \\---"),
        ("- - -", "\\- - -"),
        ("/close", "\\/close"),
        ("```suggestion\nx\n```", "```\nx\n```"),
        ("~~~mermaid\ngraph\n~~~\nafter", "```\ngraph\n```\nafter"),
        ("```\nno end", "```\nno end\n```"),
        ("        deep", "   deep"),
        ("a\n\nb", "a\n\nb"),
        ("", ""),
    ],
)
def test_prose_is_shown_as(text: str, page: str) -> None:
    assert markdown_prose(text, longest=1_000) == page


def test_code_spans_that_touch_are_set_apart() -> None:
    page = markdown_prose("``<img src=x> ` b``@name", longest=100)
    assert not kinds(page) & ACTIVE
    assert code(page) == ["<img src=x> ` b", "@name"]


def test_the_fence_is_longer_than_any_inside() -> None:
    assert markdown_code("a\n`````\nb") == "``````\na\n`````\nb\n``````"


def test_what_is_too_long_is_cut_and_the_cut_is_seen() -> None:
    assert markdown_prose("word " * 1_000, longest=20) == "word word word word …"
    assert markdown_prose("x\n" * 1_000, longest=10_000).endswith("x\n…")
    assert markdown_line("y" * 100, longest=10) == "y" * 10 + "…"


@pytest.mark.no_cover
@each(
    "piece",
    [
        *("\x1b", "\u200d", "##", "##a", " ", "\n ", "::", "👩\u200d", "日"),
        *("`", "``` ", "@", "[", "a://", "#1", "\\", "*", "- ", "`a``b"),
    ],
)
def test_a_great_text_is_cleaned_to_its_end(piece: str) -> None:
    # Work that grows with the square of this size would not end within the time limit of a test.
    text = piece * (150_000 // len(piece)) + "\x1b"
    assert log_line(text).endswith("\\x1b")
    assert terminal(text, keep_newlines=True).endswith("\\x1b")
    page = markdown_prose(piece.strip("\n") * (100_000 // len(piece)) + "\n\nend", longest=1_000_000)
    assert page.rstrip("`\n").endswith("end")
