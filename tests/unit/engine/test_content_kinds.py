"""What a file is, by its content: real formats are recognised, and nothing with other text in it passes for one."""

from __future__ import annotations

import gzip
import os
import struct
import sys
from pathlib import Path

import pytest

from codeloupe.engine.contents import kind_of_content
from codeloupe.model.review import SkipReason
from tests.hidden_material import LINE, SCRIPT, png, tarred, zipped

# Without the letters of which a text is made, so that it is none by chance.
_PIXELS = bytes(range(128, 255)) * 9
_JPEG = (
    b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    b"\xff\xdb\0\x43\0" + b"\x10" * 64 + b"\xff\xda\0\x08\1\1\0\0\x3f\0" + _PIXELS.replace(b"\xff", b"") + b"\xff\xd9"
)
_GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
_WAV = (
    b"RIFF"
    + struct.pack("<I", 36 + len(_PIXELS) // 2 * 2)
    + b"WAVEfmt "
    + struct.pack("<IHHIIHH", 16, 1, 1, 8, 8, 1, 8)
)
_WAV += b"data" + struct.pack("<I", len(_PIXELS) // 2 * 2) + _PIXELS[: len(_PIXELS) // 2 * 2]
_BMP = (
    b"BM"
    + struct.pack("<IIII", 58, 0, 54, 40)
    + struct.pack("<iiHHIIiiII", 1, 1, 1, 24, 0, 4, 0, 0, 0, 0)
    + b"\0\0\0\0"
)
_ICO = b"\0\0\1\0\1\0\1\1\0\0\1\0\x18\0" + struct.pack("<II", len(png()), 22) + png()
_MP4 = struct.pack(">I4s", 16, b"ftyp") + b"isom\0\0\0\0" + struct.pack(">I4s", 8 + len(_PIXELS), b"mdat") + _PIXELS
_OGG = b"OggS\0\2" + bytes(20) + b"\1\x10" + b"\x01vorbis" + bytes(9)
_FRAME = b"\xff\xfb\x90\x00" + bytes(413)
_MP3 = b"ID3\4\0\0\0\0\0\0" + _FRAME * 3
_FLAC = b"fLaC\x80\0\0\x22" + bytes(34) + b"\xff\xf8" + _PIXELS
_WEBM = b"\x1a\x45\xdf\xa3\x84\1\2\3\4\x18\x53\x80\x67\x88" + bytes(8)
_TABLES = b"".join(struct.pack(">4sIII", name, 0, 44 + 8 * number, 8) for number, name in enumerate((b"cmap", b"head")))
_TTF = b"\0\1\0\0\0\2" + bytes(6) + _TABLES + b"\xee" * 16
_WOFF2 = b"wOF2\0\1\0\0" + struct.pack(">I", 600) + b"\xee" * 588

MEDIA = {
    "png": png(),
    "jpeg": _JPEG,
    "gif": _GIF,
    "wav": _WAV,
    "bmp": _BMP,
    "ico": _ICO,
    "mp4": _MP4,
    "ogg": _OGG,
    "mp3": _MP3,
    "flac": _FLAC,
    "webm": _WEBM,
}
FONTS = {"ttf": _TTF, "woff2": _WOFF2}


def test_media_and_fonts_are_recognised() -> None:
    found = {name: kind_of_content(content) for name, content in (MEDIA | FONTS).items()}
    assert found == dict.fromkeys(MEDIA, SkipReason.MEDIA) | dict.fromkeys(FONTS, SkipReason.FONT)


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
    # This format has no end of its own, so nothing tells that some of it is missing.
    assert [case for case in wrong if case != ("flac", "cut off")] == []


def test_metadata_of_the_usual_kind_does_no_harm() -> None:
    packet = b"XML:com.adobe.xmp\0\0\0\0\0<x:xmpmeta xmlns:x='adobe:ns:meta/'>" + b"<a>1</a>" * 40 + b"</x:xmpmeta>"
    assert kind_of_content(png((b"iTXt", packet))) is SkipReason.MEDIA
    assert kind_of_content(png((b"tEXt", b"Software\0Some Editor 1.0"))) is SkipReason.MEDIA


def test_archives_and_programs_are_recognised() -> None:
    noise = os.urandom(4_000)
    found = {
        "zip": kind_of_content(zipped("a.sh", SCRIPT)),
        "tar": kind_of_content(tarred("a.sh", SCRIPT)),
        "gz": kind_of_content(gzip.compress(noise)),
        "program": kind_of_content(Path(sys.executable).resolve().read_bytes()),
        "class": kind_of_content(b"\xca\xfe\xba\xbe\0\0\0\x34" + noise),
        "wasm": kind_of_content(b"\0asm\1\0\0\0" + noise),
        "unknown": kind_of_content(noise),
    }
    assert found == {
        **dict.fromkeys(("zip", "tar", "gz"), SkipReason.ARCHIVE),
        **dict.fromkeys(("program", "class", "wasm"), SkipReason.PROGRAM),
        "unknown": SkipReason.BINARY,
    }


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
        b"\x7fELF\2\1\1" + SCRIPT.encode() * 9,
        "日本語のテキスト\n".encode("shift_jis") * 20,
        "Привет, мир\n".encode("koi8-r") * 20,
        b"\x1b[31mred\x1b[0m\n",
    ]
    assert [text[:30] for text in texts if kind_of_content(text) is not None] == []
