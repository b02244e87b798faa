from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.system.untrusted import code_span, markdown_code, markdown_line, markdown_prose
from tests.markdown_page import ACTIVE, code, kinds
from tests.rows import each


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
@each("piece", ["`", "``` ", "@", "[", "a://", "#1", "\\", "*", " ", "- ", "`a``b"])
def test_a_great_text_is_shown_to_its_end(piece: str) -> None:
    # Work that grows with the square of this size would not end within the time limit of a test.
    page = markdown_prose(piece * (100_000 // len(piece)) + "\n\nend", longest=1_000_000)
    assert page.rstrip("`\n").endswith("end")
