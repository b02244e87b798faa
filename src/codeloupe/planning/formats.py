"""Recognise what a content that git calls binary is: media, a font, an archive, a compiled program, or text.

Neither a name nor the beginning of a file proves anything: a hostile author can put the first bytes of a picture in
front of code. So media and fonts count only if their structure holds from the first byte to the last. A picture that
carries other text than the usual metadata is not recognised. Rare formats are not recognised either; they are BINARY.
All functions are linear in the content.
"""

from __future__ import annotations

import re
import struct
import tarfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

from codeloupe.model.review import SkipReason
from codeloupe.system.regex import regex

# A picture without a text of this length holds no script. Compressed pixels do not look like one by chance.
_LONG_TEXT = regex(rb"[\t\n\r\x20-\x7e]{100,}")
_SCRIPT = regex(rb"<\?php|<\?=[\t\n\r\x20-\x7e]{8}|<script|<%[\t\n\r\x20-\x7e]{12}|#!\s*/[a-z/]{3,40}", re.IGNORECASE)
_USUAL_METADATA = regex(rb"<\?xpacket|<x:xmpmeta|<rdf:|xmlns:|Adobe |Photoshop |ICC_PROFILE|\bICC\b|Copyright")
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1b\b") + b"\x7f"
_PRINTABLE = bytes((*b"\t\n\r\f", *range(0x20, 0x7F)))
# The largest share of control characters in a text, and in a text that begins with the mark of a program or archive.
_MOST_CONTROL = 0.05
_MOST_CONTROL_AFTER_MARK = 0.02
# A content with more control characters is text if this share of it is printable ASCII.
_LEAST_PRINTABLE = 0.75
# The beginning is enough for programs and archives: in an untrusted change an unread one is a gap.
_PROGRAM_MARKS = (
    b"\x7fELF",
    b"MZ",
    b"\xca\xfe\xba\xbe",
    b"\xfe\xed\xfa\xce",
    b"\xfe\xed\xfa\xcf",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
    b"\0asm",
    b"\x1bLua",
    b"dex\n",
    b"BC\xc0\xde",
    b"!<arch>\n",
)
_COMPILED_PYTHON_FLAGS = (b"\0\0\0\0", b"\1\0\0\0", b"\3\0\0\0")
_ARCHIVE_MARKS = (
    b"PK\3\4",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ\0",
    b"7z\xbc\xaf\x27\x1c",
    b"\x28\xb5\x2f\xfd",
    b"Rar!\x1a\x07",
    b"\x04\x22\x4d\x18",
    b"MSCF",
    b"\xed\xab\xee\xdb",
    b"LZIP",
)
# The end of a content that does not have the structure of the format.
_NOT_THIS_FORMAT = -1


class _Format(NamedTuple):
    """A format of media or fonts, and how to check that a content is nothing else.

    `mark` is a pattern for the beginning. `end_of` follows the structure and returns where it ends. `is_clean` checks
    the texts in the content.
    """

    kind: SkipReason
    mark: bytes
    end_of: Callable[[bytes], int]
    is_clean: Callable[[bytes], bool]


def kind_of_content(content: bytes) -> SkipReason | None:
    """Return MEDIA, FONT, ARCHIVE, PROGRAM, or BINARY for an unknown format. Return None for text."""
    for known in _FORMATS:
        begins_so = re.match(known.mark, content, re.DOTALL)
        if begins_so and _is_whole(content, known.end_of, known.is_clean):
            return known.kind
    if _is_tar(content):
        return SkipReason.ARCHIVE
    by_mark = _kind_by_mark(content)
    if by_mark is not None:
        # Real programs and archives are full of bytes that no text has. A script behind such a mark is not.
        if _share_of(_CONTROL, content) > _MOST_CONTROL_AFTER_MARK:
            return by_mark
        return None
    if looks_like_text(content):
        return None
    return SkipReason.BINARY


def _is_tar(content: bytes) -> bool:
    """Return whether a content begins with the valid header of a tar file. The files in it may be text."""
    try:
        tarfile.TarInfo.frombuf(content[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _kind_by_mark(content: bytes) -> SkipReason | None:
    has_python_flags = content[2:4] == b"\r\n" and content[4:8] in _COMPILED_PYTHON_FLAGS
    is_compiled_python = has_python_flags and content[16:17] in (b"\xe3", b"c")
    if is_compiled_python or content.startswith(_PROGRAM_MARKS):
        return SkipReason.PROGRAM
    if content.startswith(_ARCHIVE_MARKS):
        return SkipReason.ARCHIVE
    return None


def looks_like_text(content: bytes) -> bool:
    """Return whether a person could read the content. NULs are ignored, and legacy encodings are text as well."""
    if not content:
        return True
    if not content.strip(b"\0"):
        return False
    return _share_of(_CONTROL, content) <= _MOST_CONTROL or _share_of(_PRINTABLE, content) >= _LEAST_PRINTABLE


def _share_of(characters: bytes, content: bytes) -> float:
    """Return which share of a content without its NULs are these characters."""
    shown = content.replace(b"\0", b"")
    others = shown.translate(None, characters)
    return 1 - len(others) / len(shown)


def _has_usual_text(content: bytes) -> bool:
    """Return whether a compressed picture or sound holds no text except metadata of the usual kind."""
    if _SCRIPT.search(content):
        return False
    return all(_USUAL_METADATA.search(text[0]) for text in _LONG_TEXT.finditer(content))


def _has_no_script(content: bytes) -> bool:
    return not _SCRIPT.search(content)


def _is_whole(content: bytes, end_of: Callable[[bytes], int], is_clean: Callable[[bytes], bool]) -> bool:
    """Return whether the structure of a format ends where the content does."""
    try:
        return end_of(content) == len(content) and is_clean(content)
    except (struct.error, LookupError, ValueError):
        # The content is too short, or holds a value that the format does not have.
        return False


def _end_of_png(content: bytes) -> int:
    position = 8
    name = b""
    while name != b"IEND":
        size, name = struct.unpack_from(">I4s", content, position)
        end = position + 8 + size
        checksum = zlib.crc32(content[position + 4 : end]).to_bytes(4)
        is_first = position == 8
        if content[end : end + 4] != checksum or is_first != (name == b"IHDR"):
            return _NOT_THIS_FORMAT
        position = end + 4
    return position


_JPEG_MARKER = regex(rb"\xff+([^\x00\xff\xd0-\xd7])")


def _end_of_jpeg(content: bytes) -> int:
    position = 2
    while content[position] == 0xFF:
        marker, size = struct.unpack_from(">BH", content, position + 1)
        position += 2 + size
        if marker == 0xDA:
            # Compressed data follows, up to the next marker.
            found = _JPEG_MARKER.search(content, position)
            if found is None:
                return _NOT_THIS_FORMAT
            position = found.end() - 2
            if found[1] == b"\xd9":
                return position + 2
    return _NOT_THIS_FORMAT


def _end_of_gif(content: bytes) -> int:
    position = 13 + _gif_color_table_size(content[10])
    while content[position] != 0x3B:
        block = content[position]
        if block == 0x2C:
            position += 11 + _gif_color_table_size(content[position + 9])
        elif block == 0x21:
            position += 2
        else:
            return _NOT_THIS_FORMAT
        while content[position]:
            position += content[position] + 1
        position += 1
    return position + 1


def _gif_color_table_size(flags: int) -> int:
    if not flags & 0x80:
        return 0
    return 3 * (2 << (flags & 7))


def _end_of_riff(content: bytes) -> int:
    """Return the end of WebP, WAV and AVI: chunks that fill the stated size."""
    stated_size = struct.unpack_from("<I", content, 4)[0] + 8
    if stated_size != len(content):
        return _NOT_THIS_FORMAT
    position = 12
    while position < len(content):
        name, size = struct.unpack_from("<4sI", content, position)
        if not name.strip().isalnum():
            return _NOT_THIS_FORMAT
        padding = size % 2
        position += 8 + size + padding
    if position == len(content) + 1:
        # The padding of the last chunk may be missing.
        return len(content)
    return position


def _end_of_bmp(content: bytes) -> int:
    size, reserved, offset, header, width, height, planes, bits, compression = struct.unpack_from(
        "<IIIIiiHHI", content, 2
    )
    has_known_header = size >= 54 and not reserved and header in (40, 52, 56, 108, 124) and planes == 1
    has_known_pixels = bits in (1, 4, 8, 16, 24, 32) and compression in (0, 3) and offset <= header + 1054
    if not has_known_header or not has_known_pixels:
        return _NOT_THIS_FORMAT
    row_bytes = (max(width, 0) * bits + 31) // 32 * 4
    end_of_pixels: int = offset + row_bytes * abs(height)
    if not size - 3 <= end_of_pixels <= size:
        return _NOT_THIS_FORMAT
    return int(size)


def _end_of_icon(content: bytes) -> int:
    """Return the end of ICO and CUR: a list of pictures that fill the file one after the other."""
    count = struct.unpack_from("<H", content, 4)[0]
    if not count:
        return _NOT_THIS_FORMAT
    places: list[tuple[int, int]] = []
    for number in range(count):
        size, offset = struct.unpack_from("<II", content, 14 + 16 * number)
        places.append((offset, size))
    position = 6 + 16 * count
    for offset, size in sorted(places):
        picture = content[offset : offset + size]
        if offset != position or not _is_icon_picture(picture):
            return _NOT_THIS_FORMAT
        position += size
    return int(position)


def _is_icon_picture(picture: bytes) -> bool:
    if picture.startswith(b"\x89PNG\r\n\x1a\n"):
        return _is_whole(picture, _end_of_png, _has_usual_text)
    return len(picture) >= 40 and picture.startswith(b"\x28\0\0\0")


def _end_of_iso_media(content: bytes) -> int:
    """Return the end of MP4, MOV, M4A, HEIC and AVIF: boxes that fill the file."""
    position = 0
    while position < len(content):
        size, name = struct.unpack_from(">I4s", content, position)
        if size == 1:
            size = struct.unpack_from(">Q", content, position + 8)[0]
        if size < 8 or not re.fullmatch(rb"[a-zA-Z0-9 -]{4}", name):
            return _NOT_THIS_FORMAT
        position += size
    return position


def _end_of_ogg(content: bytes) -> int:
    position = 0
    while content.startswith(b"OggS\0", position):
        count = content[position + 26]
        segment_sizes = content[position + 27 : position + 27 + count]
        position += 27 + count + sum(segment_sizes)
    return position


_MP3_BITRATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),  # MPEG 1, layer 3
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),  # MPEG 2
)
_MP3_RATES = {3: (44_100, 48_000, 32_000, 0), 2: (22_050, 24_000, 16_000, 0), 0: (11_025, 12_000, 8_000, 0)}


def _end_of_mp3(content: bytes) -> int:
    """Return the end of an ID3 tag, if there is one, at least two frames, and a tag at the end, if there is one."""
    position = 0
    frames = 0
    if content.startswith(b"ID3"):
        high, upper, lower, low = content[6:10]
        position = 10 + (high << 21) + (upper << 14) + (lower << 7) + low
    while content[position : position + 1] == b"\xff" and content[position + 1] & 0xE6 == 0xE2:
        version = content[position + 1] >> 3 & 3
        flags = content[position + 2]
        bitrates = _MP3_BITRATES[0] if version == 3 else _MP3_BITRATES[1]
        bitrate = bitrates[flags >> 4]
        rate = _MP3_RATES[version][flags >> 2 & 3]
        if not bitrate or not rate:
            return _NOT_THIS_FORMAT
        samples = 144 if version == 3 else 72
        padding = flags >> 1 & 1
        position += samples * bitrate * 1000 // rate + padding
        frames += 1
    if frames < 2:
        return _NOT_THIS_FORMAT
    if content.startswith(b"TAG", position):
        position += 128
    return position


def _end_of_opentype(content: bytes) -> int:
    """Return the end of TTF and OTF: tables that are in the file and reach its end."""
    count = struct.unpack_from(">H", content, 4)[0]
    names: set[bytes] = set()
    end = 0
    for number in range(count):
        name, _checksum, offset, size = struct.unpack_from(">4sIII", content, 12 + 16 * number)
        names.add(name)
        end = max(end, offset + size)
    has_needed_tables = {b"cmap", b"head"} <= names
    # The last table may be padded to four bytes.
    if has_needed_tables and end <= len(content) <= end + 3:
        return len(content)
    return _NOT_THIS_FORMAT


def _end_of_web_font(content: bytes) -> int:
    return int.from_bytes(content[8:12])


_FORMATS = (
    _Format(SkipReason.MEDIA, rb"\x89PNG\r\n\x1a\n", _end_of_png, _has_usual_text),
    _Format(SkipReason.MEDIA, rb"\xff\xd8\xff", _end_of_jpeg, _has_usual_text),
    _Format(SkipReason.MEDIA, rb"GIF8[79]a", _end_of_gif, _has_usual_text),
    _Format(SkipReason.MEDIA, rb"RIFF.{4}WEBP", _end_of_riff, _has_usual_text),
    _Format(SkipReason.MEDIA, rb"RIFF.{4}(?:WAVE|AVI )", _end_of_riff, _has_no_script),
    _Format(SkipReason.MEDIA, rb"BM", _end_of_bmp, _has_no_script),
    _Format(SkipReason.MEDIA, rb"\x00\x00[\x01\x02]\x00", _end_of_icon, _has_no_script),
    _Format(SkipReason.MEDIA, rb".{4}ftyp", _end_of_iso_media, _has_usual_text),
    _Format(SkipReason.MEDIA, rb"OggS\x00", _end_of_ogg, _has_usual_text),
    _Format(SkipReason.MEDIA, rb"ID3|\xff", _end_of_mp3, _has_usual_text),
    _Format(SkipReason.FONT, rb"\x00\x01\x00\x00|OTTO|true", _end_of_opentype, _has_no_script),
    _Format(SkipReason.FONT, rb"wOF[F2].{40}", _end_of_web_font, _has_no_script),
)
