from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.system.untrusted import code_span, markdown_cell, markdown_code, markdown_line, markdown_prose
from tests.markdown_page import ACTIVE, code, kinds, shown_text, tokens
from tests.rows import each

PIECES = [
    *("`", "``", "```", "~~~", "\n", "\n\n", " ", "    ", "- ", "1. ", "> ", "# ", "===", "---", "|", "|-|", "<b>"),
    *(
        "<!--",
        "-->",
        "![x](y)",
        "[x](y)",
        "[x]: y",
        "[x]",
        "<http://a.b>",
        "http://a.b/c)",
        "www.a.b",
        "xmpp:a@b.c",
        "@name",
        "#12",
    ),
    *(
        "\\",
        "\\`",
        "&lt;",
        "&#64;x",
        "$",
        "*",
        "**",
        "_",
        "word",
        "/close",
        "\t",
        "\r\n",
        "\x00",
        "\u202e",
        "\udcff",
        ":",
    ),
]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
ANYTHING = st.text(st.characters(exclude_categories=()))


@given(HOSTILE | ANYTHING)
def test_no_text_becomes_a_link_an_image_html_a_heading_or_a_table(text: str) -> None:
    page = markdown_prose(text, longest=10_000)

    page.encode("utf-8")
    assert not kinds(page) & (ACTIVE | {"heading_open", "table_open", "s_open"})


@given(HOSTILE | ANYTHING)
def test_no_text_calls_a_name_or_a_number_outside_of_code(text: str) -> None:
    shown = shown_text(markdown_prose(text, longest=10_000))

    assert not [word for word in shown.split() if word.startswith(("@name", "#12", "http://", "www.a"))]


@given(HOSTILE | ANYTHING)
def test_a_line_stays_one_line_and_a_cell_one_cell(text: str) -> None:
    line = markdown_line(text, longest=500)
    row = f"| a | b |\n|---|---|\n| {markdown_cell(text, longest=500)} | end |\n"

    assert "\n" not in line
    assert not kinds(f"### x {line}") & ACTIVE
    cells = [token for token in tokens(row) if token.type == "td_open"]
    assert len(cells) == 2
    assert shown_text(row).endswith("end")


@given(HOSTILE | ANYTHING)
def test_a_block_of_code_is_one_block_whatever_it_holds(text: str) -> None:
    (block,) = [token for token in tokens(markdown_code(text, language="python")) if token.level == 0]

    assert (block.type, block.info) == ("fence", "python")


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
