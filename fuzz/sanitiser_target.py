"""Whatever a text holds: each sanitiser makes of it what its place can bear, by itself and among other text."""

from __future__ import annotations

import json
from collections.abc import Sequence

from codeloupe.report.sanitise import json_document, log_line, terminal
from codeloupe.report.sanitise_github import command
from codeloupe.report.sanitise_markdown import code_span, markdown_cell, markdown_code, markdown_line, markdown_prose
from codeloupe.report.sanitise_plain import plain_code, plain_line, plain_text
from fuzz.report_checks import check_github, check_markdown, check_no_commands, check_plain
from fuzz.target import Target, hold
from tests.markdown_page import code, shown_text
from tests.telling_reviews import HOSTILE, ODD_PATH

_LONGEST = 20_000
TEXTS = (
    HOSTILE,
    ODD_PATH,
    "Fix `a` in *b*:\n\n- one\n- two\n\n```python\nx = 1\n```\n",
    "1. x\n   2. y\n> quote\n| a | b |\n|---|---|\n",
    "https://x.test/a?b=c#d www.x.test user@x.test @team/x #12 GH-3 !4",
    "é 🔍 👩‍💻 ❤️ a\u0301 漢字",
    "/close\n::error::x\n##[group]y\n##vso[task]z",
)
WORDS = (
    *(b"<img src=x onerror=1>", b"</script>", b"</style>", b"<!--", b"-->", b"]]>", b"<![CDATA[", b"&lt;", b"&#60;"),
    *(
        b'" onload="x',
        b"' x='",
        b"javascript:x",
        b"![a](http://x.test)",
        b"[a]: http://x.test",
        b"[a][b]",
        b"<http://x>",
    ),
    *(
        b"@team",
        b"#12",
        b"GH-1",
        b"\n# x",
        b"\n---\n",
        b"\n===\n",
        b"```",
        b"~~~",
        b"``",
        b"`",
        b"\n    x",
        b"\n\t",
        b"|",
    ),
    *(b"::error::", b"\n::", b"##[", b"##vso[", b"%0A", b"%25", b"\n/close", b"\x1b[31m", b"\x1b]8;;x\x07", b"\x9b"),
    *(
        b"\x1e",
        b"\n- ",
        b"\n> ",
        b"\n1. ",
        b"**",
        b"__",
        b"$x$",
        b"\\",
        b"\\`",
        b"[^1]",
        b"[^1]: x",
        b"<details>",
        b"://",
    ),
    *(
        b"www.x.test",
        b"mailto:a@b.c",
        b"[redacted]",
        b"confirmed: ",
        b"\xe2\x80\xa8",
        b"\xe2\x80\xae",
        b"{0}",
        b"[bold]",
    ),
)


def _seeds() -> Sequence[bytes]:
    return [text.encode("utf-8", "surrogatepass") for text in TEXTS]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _search(data: bytes) -> None:
    text = _text(data)
    log_line(text)
    terminal(text, keep_newlines=True)
    json_document(text)
    command("error", {"file": text}, text, longest=len(text))
    markdown_prose(text, longest=len(text))
    markdown_cell(text, longest=len(text))
    markdown_code(text)
    code_span(text)
    plain_line(text, longest=len(text))
    plain_code(text, longest=len(text))


def _check(data: bytes) -> None:
    """Each sanitiser by itself, on one text."""
    text = _text(data)
    line = terminal(text)
    check_plain(line)
    hold("\n" not in line and terminal(line) == line, "terminal is not steady")
    check_plain(terminal(text, keep_newlines=True))
    check_no_commands(log_line(text))
    document = json_document(json.dumps({"x": text}, ensure_ascii=False))
    hold(json.loads(document) == json.loads(json.dumps({"x": text})), "a JSON document changed its value")
    check_plain(document)
    written = command("error", {"file": text, "title": text}, text, longest=_LONGEST)
    check_github(f"{written}\n")
    check_plain(plain_line(text, longest=_LONGEST))
    check_plain(plain_text(text, longest=_LONGEST))
    check_plain(plain_code(text, longest=_LONGEST))
    _check_markdown_parts(text)


def _check_markdown_parts(text: str) -> None:
    prose = markdown_prose(text, longest=_LONGEST)
    check_markdown(f"before\n\n{prose}\n\nbehind\n")
    one = markdown_line(text, longest=_LONGEST)
    check_markdown(f"- **x** {one}\n")
    hold("\n" not in one, "a line of Markdown is none")
    cell = markdown_cell(text, longest=_LONGEST)
    table = f"| a | b |\n|---|---|\n| {cell} | END |\n"
    check_markdown(table)
    hold("END" in shown_text(table), "a cell reaches into the next one")
    block = markdown_code(text)
    check_markdown(f"{block}\n\nEND\n")
    hold(shown_text(f"{block}\n\nEND\n") == "END", "a block of code does not hold its text")
    span = code_span(text)
    hold(not span or len(code(f"x {span} y")) == 1, "a code span is not one")


TARGET = Target("sanitiser", _seeds, WORDS, search=_search, check=_check)
