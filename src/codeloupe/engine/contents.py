"""What a file is, by its content: text in an encoding, media, a font, an archive, a compiled program, or none of these.

Text in other encodings becomes UTF-8, so that a reviewer and an analyser see the characters, not their bytes. An
encoding counts where whoever runs the file would believe it too: a byte order mark, a declaration in the first lines,
NULs between ASCII letters. One that would turn readable bytes into other characters is not believed, since code could
hide behind it.

A name proves nothing, and neither does the beginning of a file: whoever wants code to stay unread puts the first bytes
of a picture in front of it. So a format counts only where its structure holds from the first byte to the last, and
a picture that carries other text than its usual metadata is not taken for one. Linear in the content.
"""

from __future__ import annotations

import codecs
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import FileChange, Hunk
from codeloupe.model.review import SkipReason

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HEAD_BYTES = 1024
_DECLARED = re.compile(
    rb"coding[:=][ \t]{0,4}([-\w.]{1,40})|<\?xml[^>]{0,200}encoding=[\"']([-\w.]{1,40})"
    rb"|<meta[^>]{0,200}charset=[\"']?([-\w.]{1,40})|@charset \"([-\w.]{1,40})\"|fileencoding=([-\w.]{1,40})",
    re.IGNORECASE,
)
_PYTHON_SUFFIXES = (".py", ".pyw", ".pyi")
_ASCII = bytes((*range(0x20, 0x7F), *b"\t\n\r"))
# More of it in ASCII than that is no UTF-16, whatever its first two bytes say.
_MOST_ASCII = 0.85
_LEAST_INTERLEAVED = 0.7
_CONTEXT_LINES = 3
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_WORD = re.compile(rb"[\t\x20-\x7e]{4,}")
_UTF8 = frozenset(("utf-8", "ascii", "utf-8-sig"))


class Encoding(Struct, frozen=True):
    """How a content is encoded. `keeps_lines` where a line of bytes is a line of text, and ASCII is ASCII."""

    name: str
    keeps_lines: bool
    mark: bytes = b""

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.name.upper().removesuffix("-LE").removesuffix("-BE")


def encoding_of(content: bytes, path: str) -> Encoding | None:
    """The encoding of a content that is not UTF-8; None for UTF-8, and where nothing tells which one it is."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            is_ascii = len(content.translate(None, _ASCII)) <= len(content) * (1 - _MOST_ASCII)
            return None if is_ascii else Encoding(name, keeps_lines=False, mark=mark)
    if b"\0" in content[:_HEAD_BYTES] and (found := _interleaved(content[:_HEAD_BYTES])):
        without_mark = Encoding(found, keeps_lines=False)
        return None if hides_text(content, without_mark) else without_mark
    return _declared(content, path)


def hides_text(content: bytes, encoding: Encoding, *, least: int = 4) -> bool:
    """Whether who ignores the encoding, and NULs as a shell does, reads words that are not in the decoded text.

    A word has at least so many bytes. Short ones come about by chance where each character is two bytes beyond ASCII.
    """
    if encoding.keeps_lines:
        return False
    decoded = in_utf8(content, encoding)
    if decoded is None:
        return True
    position = 0
    for word in _WORD.finditer(content.replace(b"\0", b"")):
        if len(word[0]) < least:
            continue
        position = decoded.find(word[0], position)
        if position < 0:
            return True
    return False


def in_utf8(content: bytes, encoding: Encoding) -> bytes | None:
    """The content as UTF-8; None when it is not what its encoding says."""
    try:
        return codecs.decode(content.removeprefix(encoding.mark), encoding.name).encode("utf-8")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def with_decoded_lines(file: FileChange, encoding: Encoding) -> FileChange:
    """The same hunks with each row in UTF-8; a row that cannot be decoded stays as it is."""

    def decoded(row: bytes) -> bytes:
        text = None if row.isascii() else in_utf8(row[1:], encoding)
        return row if text is None or b"\n" in text else row[:1] + text

    bodies = (b"\n".join(map(decoded, hunk.body.split(b"\n"))) for hunk in file.hunks)
    return replace(file, hunks=tuple(replace(hunk, body=body) for hunk, body in zip(file.hunks, bodies, strict=True)))


def with_compared_texts(file: FileChange, old: bytes, new: bytes) -> FileChange:
    """The file with the hunk that leads from one text to the other: all between the first and last changed line."""
    before, after = _LINE.findall(old), _LINE.findall(new)
    shorter = min(len(before), len(after))
    start = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    room = shorter - start
    same = next((n for n in range(room) if before[-1 - n] != after[-1 - n]), room)
    first, behind = max(0, start - _CONTEXT_LINES), min(same, _CONTEXT_LINES)
    deleted, added = len(before) - same - start, len(after) - same - start
    if not deleted and not added:
        return replace(file, hunks=(), counts=None)
    parts = (
        (b" ", before[first:start]),
        (b"-", before[start : start + deleted]),
        (b"+", after[start : start + added]),
        (b" ", after[start + added : start + added + behind]),
    )
    rows = (sign + line for sign, lines in parts for line in lines)
    around = start - first + behind
    hunk = Hunk(
        old_start=first + 1 if deleted + around else 0,
        old_lines=deleted + around,
        new_start=first + 1 if added + around else 0,
        new_lines=added + around,
        body=b"".join(row if row.endswith(b"\n") else row + b"\n\\ No newline at end of file\n" for row in rows),
        added=added,
        deleted=deleted,
    )
    return replace(file, hunks=(hunk,), counts=None)


def _interleaved(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark: ASCII characters with NULs in the places of their upper bytes."""
    for width, names in ((4, ("utf-32-le", "utf-32-be")), (2, ("utf-16-le", "utf-16-be"))):
        count = len(head) // width
        if count < 2:
            continue
        for name, place in zip(names, (0, width - 1), strict=True):
            letters = head[place : count * width : width]
            others = b"".join(head[n : count * width : width] for n in range(width) if n != place)
            is_text = len(letters.translate(None, _ASCII)) <= count * (1 - _LEAST_INTERLEAVED)
            if is_text and others.count(0) >= len(others) * _LEAST_INTERLEAVED and letters.count(0) < count // 4 + 1:
                return name
    return None


def _declared(content: bytes, path: str) -> Encoding | None:
    head = content[:_HEAD_BYTES]
    is_python = PurePosixPath(path.lower()).suffix in _PYTHON_SUFFIXES or (head[:2] == b"#!" and b"python" in head[:80])
    if is_python:
        head = b"\n".join(head.split(b"\n")[:2])
    found = _DECLARED.search(head)
    if found is None:
        return None
    try:
        codec = codecs.lookup(next(group for group in found.groups() if group).decode("ascii"))
    except LookupError:
        return None
    if codec.name in _UTF8 or not codec._is_text_encoding:  # noqa: SLF001 - the only way to ask
        return None
    try:
        told = codecs.decode(_ASCII, codec.name), codecs.decode(b"+AGE-\\x61", codec.name)
    except ValueError:
        told = "", ""
    keeps_lines = told == (_ASCII.decode("ascii"), "+AGE-\\x61")
    # Only Python itself reads a source in an encoding that gives ASCII another meaning.
    return Encoding(codec.name, keeps_lines=keeps_lines) if keeps_lines or is_python else None


_PNG = b"\x89PNG\r\n\x1a\n"
# A picture without such a text holds no script; compressed pixels do not look like one by chance.
_LONG_TEXT = re.compile(rb"[\t\n\r\x20-\x7e]{100,}")
_SCRIPT = re.compile(
    rb"<\?php|<\?=[\t\n\r\x20-\x7e]{8}|<script|<%[\t\n\r\x20-\x7e]{12}|#!\s*/[a-z/]{3,40}", re.IGNORECASE
)
_USUAL_METADATA = re.compile(rb"<\?xpacket|<x:xmpmeta|<rdf:|xmlns:|Adobe |Photoshop |ICC_PROFILE|\bICC\b|Copyright")
_TAR_BLOCK = 512
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1b\b") + b"\x7f"
_PRINTABLE = bytes((*b"\t\n\r\f", *range(0x20, 0x7F)))
_MOST_CONTROL = 0.05
_LEAST_PRINTABLE = 0.75
_LONGEST_COMMENT = 64


def kind_of_content(content: bytes) -> SkipReason | None:
    """MEDIA, FONT, ARCHIVE, PROGRAM, or BINARY for what nobody recognises; None for text, which is to be read."""
    for reason, formats in _FORMATS:
        if any(is_such(content) for is_such in formats):
            return reason
    is_compiled_python = (
        content[2:4] == b"\r\n"
        and content[4:8] in (b"\0\0\0\0", b"\1\0\0\0", b"\3\0\0\0")
        and content[16:17] in (b"\xe3", b"c")
    )
    by_mark = SkipReason.ARCHIVE if content.startswith(_ARCHIVE_MARKS) else None
    by_mark = SkipReason.PROGRAM if is_compiled_python or content.startswith(_PROGRAM_MARKS) else by_mark
    # Real programs and archives are full of bytes that no text has; a script with such a mark in front is not.
    if looks_like_text(content, most_control=0.02 if by_mark else _MOST_CONTROL):
        return None
    return by_mark or SkipReason.BINARY


def looks_like_text(content: bytes, *, most_control: float = _MOST_CONTROL) -> bool:
    """Whether somebody could read it: NULs count for nothing, and legacy encodings are text as well."""
    shown = content.replace(b"\0", b"")
    control = len(shown) - len(shown.translate(None, _CONTROL))
    if control <= len(shown) * most_control:
        return bool(shown) or not content
    printable = len(shown) - len(shown.translate(None, _PRINTABLE))
    return most_control == _MOST_CONTROL and printable >= len(shown) * _LEAST_PRINTABLE


def _is_clean(content: bytes) -> bool:
    """Whether a compressed picture or sound holds no text but metadata of the usual kind."""
    if _SCRIPT.search(content):
        return False
    return all(_USUAL_METADATA.search(text[0]) for text in _LONG_TEXT.finditer(content))


def _is_png(content: bytes) -> bool:
    if not content.startswith(_PNG):
        return False
    position, last = len(_PNG), b""
    while position + 12 <= len(content) and last != b"IEND":
        size, last = struct.unpack_from(">I4s", content, position)
        end = position + 8 + size
        if end + 4 > len(content) or (position == len(_PNG)) != (last == b"IHDR"):
            return False
        if struct.unpack_from(">I", content, end)[0] != zlib.crc32(content[position + 4 : end]):
            return False
        position = end + 4
    return last == b"IEND" and position == len(content) and _is_clean(content)


_JPEG_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")


def _is_jpeg(content: bytes) -> bool:
    if not content.startswith(b"\xff\xd8\xff"):
        return False
    position = 2
    while position + 4 <= len(content):
        if content[position] != 0xFF:
            return False
        marker, size = content[position + 1], struct.unpack_from(">H", content, position + 2)[0]
        position += 2 + size
        if marker == 0xDA:  # what follows is compressed, up to the next marker
            found = _JPEG_MARKER.search(content, position)
            if found is None:
                return False
            position = found.end() - 2
            if found[1] == b"\xd9":
                return position + 2 == len(content) and _is_clean(content)
    return False


def _is_gif(content: bytes) -> bool:
    if content[:6] not in (b"GIF87a", b"GIF89a") or len(content) < 14:
        return False
    position = 13 + _color_table(content[10])
    while position < len(content):
        mark = content[position]
        if mark == 0x3B:
            return position + 1 == len(content) and _is_clean(content)
        if mark == 0x2C and position + 10 < len(content):
            position += 11 + _color_table(content[position + 9])
        elif mark == 0x21:
            position += 2
        else:
            return False
        while position < len(content) and content[position]:
            position += content[position] + 1
        position += 1
    return False


def _color_table(flags: int) -> int:
    return 3 * (2 << (flags & 7)) if flags & 0x80 else 0


def _is_riff(content: bytes) -> bool:
    """WebP, WAV and AVI: chunks that fill the stated size."""
    if content[:4] != b"RIFF" or content[8:12] not in (b"WEBP", b"WAVE", b"AVI "):
        return False
    if struct.unpack_from("<I", content, 4)[0] + 8 != len(content):
        return False
    position = 12
    while position + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, position)
        if not name.strip().isalnum():
            return False
        position += 8 + size + size % 2
    return position in (len(content), len(content) + 1) and (content[8:12] != b"WEBP" or _is_clean(content))


def _is_bmp(content: bytes) -> bool:
    if content[:2] != b"BM" or len(content) < 54:
        return False
    size, reserved, offset, header = struct.unpack_from("<IIII", content, 2)
    width, height, planes, bits, compression = struct.unpack_from("<iiHHI", content, 18)
    if size != len(content) or reserved or header not in (40, 52, 56, 108, 124) or planes != 1:
        return False
    if bits not in (1, 4, 8, 16, 24, 32) or compression not in (0, 3) or offset > 14 + header + 1024 + 16:
        return False
    row = (max(width, 0) * bits + 31) // 32 * 4
    return offset + row * abs(height) in range(size - 3, size + 1) and _SCRIPT.search(content) is None


def _is_icon(content: bytes) -> bool:
    """ICO and CUR: a list of pictures which, one after the other, fill the file."""
    if content[:4] not in (b"\0\0\1\0", b"\0\0\2\0") or len(content) < 22:
        return False
    count = struct.unpack_from("<H", content, 4)[0]
    if not count or 6 + 16 * count > len(content):
        return False
    spans = sorted(struct.unpack_from("<II", content, 6 + 16 * number + 8)[::-1] for number in range(count))
    position = 6 + 16 * count
    for offset, size in spans:
        part = content[offset : offset + size]
        is_bitmap = len(part) >= 40 and struct.unpack_from("<I", part)[0] == 40
        if offset != position or not (_is_png(part) or is_bitmap):
            return False
        position += size
    return position == len(content) and _SCRIPT.search(content) is None


def _is_iso_media(content: bytes) -> bool:
    """MP4, MOV, M4A, HEIC and AVIF: boxes that fill the file, the first of which says the kind."""
    if content[4:8] != b"ftyp":
        return False
    position = 0
    while position + 8 <= len(content):
        size, name = struct.unpack_from(">I4s", content, position)
        if size == 1 and position + 16 <= len(content):
            size = struct.unpack_from(">Q", content, position + 8)[0]
        if size < 8 or not re.fullmatch(rb"[a-zA-Z0-9 -]{4}", name):
            return False
        position += size
    return position == len(content) and _is_clean(content)


def _is_ogg(content: bytes) -> bool:
    position = 0
    while content.startswith(b"OggS\0", position) and position + 27 <= len(content):
        count = content[position + 26]
        position += 27 + count + sum(content[position + 27 : position + 27 + count])
    return bool(position) and position == len(content) and _is_clean(content)


_MP3_BITRATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),  # MPEG 1, layer 3
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),  # MPEG 2
)
_MP3_RATES = {3: (44_100, 48_000, 32_000, 0), 2: (22_050, 24_000, 16_000, 0), 0: (11_025, 12_000, 8_000, 0)}


def _is_mp3(content: bytes) -> bool:
    """An ID3 tag, if there is one, and frames up to the end."""
    position = 0
    if content[:3] == b"ID3" and len(content) > 10:
        position = 10 + sum(byte << shift for byte, shift in zip(content[6:10], (21, 14, 7, 0), strict=True))
    frames = 0
    while position + 4 <= len(content) and content[position] == 0xFF and content[position + 1] & 0xE6 == 0xE2:
        version, flags = content[position + 1] >> 3 & 3, content[position + 2]
        bitrate = _MP3_BITRATES[version != 3][flags >> 4]
        rate = _MP3_RATES.get(version, (0,) * 4)[flags >> 2 & 3]
        if not bitrate or not rate:
            return False
        position += (144 if version == 3 else 72) * bitrate * 1000 // rate + (flags >> 1 & 1)
        frames += 1
    ends = position == len(content) or (len(content) - position == 128 and content.startswith(b"TAG", position))
    return frames > 1 and ends and _is_clean(content)


def _is_flac(content: bytes) -> bool:
    if not content.startswith(b"fLaC"):
        return False
    position, flags = 4, 0
    while not flags & 0x80 and position + 4 <= len(content):
        flags = content[position]
        position += 4 + int.from_bytes(content[position + 1 : position + 4])
    return content[position : position + 2] in (b"\xff\xf8", b"\xff\xf9") and _is_clean(content)


def _is_matroska(content: bytes) -> bool:
    """WebM and Matroska: a header and a segment that reaches the end, or has no stated size."""
    if not content.startswith(b"\x1a\x45\xdf\xa3") or len(content) < 16:
        return False
    width, size = _vint(content, 4)
    position = 4 + width + size
    if not content.startswith(b"\x18\x53\x80\x67", position):
        return False
    width, size = _vint(content, position + 4)
    is_open = size == (1 << 7 * width) - 1
    return (is_open or position + 4 + width + size == len(content)) and _is_clean(content)


def _vint(content: bytes, position: int) -> tuple[int, int]:
    first = content[position] if position < len(content) else 0
    width = 9 - first.bit_length() if first else 1
    return width, int.from_bytes(content[position : position + width]) & ((1 << 7 * width) - 1)


def _is_opentype(content: bytes) -> bool:
    """TTF and OTF: tables that lie in the file and reach its end."""
    if content[:4] not in (b"\0\1\0\0", b"OTTO", b"true") or len(content) < 28:
        return False
    count = struct.unpack_from(">H", content, 4)[0]
    if not count or 12 + 16 * count > len(content):
        return False
    tables = [struct.unpack_from(">4sIII", content, 12 + 16 * number) for number in range(count)]
    names = {name for name, *_ in tables}
    ends = [offset + size for _, _, offset, size in tables]
    return {b"cmap", b"head"} <= names and max(ends) <= len(content) <= max(ends) + 3 and not _SCRIPT.search(content)


def _is_web_font(content: bytes) -> bool:
    if content[:4] not in (b"wOFF", b"wOF2") or len(content) < 44:
        return False
    return bool(struct.unpack_from(">I", content, 8)[0] == len(content)) and not _SCRIPT.search(content)


def _is_zip(content: bytes) -> bool:
    """A ZIP file without anything in front of it or after it: its list of files ends where its own end begins."""
    if content[:4] not in (b"PK\3\4", b"PK\5\6"):
        return False
    end = content.rfind(b"PK\5\6")
    if end < 0 or end + 22 > len(content):
        return False
    size, start, comment = struct.unpack_from("<IIH", content, end + 12)
    return bool(end + 22 + comment == len(content) and start + size == end and comment <= _LONGEST_COMMENT)


def _is_tar(content: bytes) -> bool:
    position = files = 0
    while header := content[position : position + _TAR_BLOCK]:
        if not header.strip(b"\0"):
            break
        if len(header) < _TAR_BLOCK or header[257:262] != b"ustar":
            return False
        try:
            size, stated = (int(header[a:b].strip(b" \0") or b"0", 8) for a, b in ((124, 136), (148, 156)))
        except ValueError:
            return False
        if sum(header) - sum(header[148:156]) + 8 * 0x20 != stated:
            return False
        position += _TAR_BLOCK + -(-size // _TAR_BLOCK) * _TAR_BLOCK
        files += 1
    return files > 0 and not content[position:].strip(b"\0")


def _is_elf(content: bytes) -> bool:
    if content[:4] != b"\x7fELF" or len(content) < 52 or content[4] not in (1, 2) or content[5] not in (1, 2):
        return False
    order, wide = "<" if content[5] == 1 else ">", content[4] == 2
    size, version = struct.unpack_from(f"{order}H", content, 52 if wide else 40)[0], content[6]
    return version == 1 and size == (64 if wide else 52)


_FORMATS: tuple[tuple[SkipReason, tuple[Callable[[bytes], bool], ...]], ...] = (
    (
        SkipReason.MEDIA,
        (
            *(_is_png, _is_jpeg, _is_gif, _is_riff, _is_bmp, _is_icon, _is_iso_media, _is_ogg, _is_mp3, _is_flac),
            _is_matroska,
        ),
    ),
    (SkipReason.FONT, (_is_opentype, _is_web_font)),
    (SkipReason.ARCHIVE, (_is_zip, _is_tar)),
    (SkipReason.PROGRAM, (_is_elf,)),
)
# Of these the beginning is enough, since none of them is accepted unread from a stranger, and text is never one.
_PROGRAM_MARKS = (
    *(b"\x7fELF", b"MZ", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe"),
    *(b"\xcf\xfa\xed\xfe", b"\0asm", b"\x1bLua", b"dex\n", b"BC\xc0\xde", b"!<arch>\n"),
)
_ARCHIVE_MARKS = (
    *(b"PK\3\4", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"7z\xbc\xaf\x27\x1c", b"\x28\xb5\x2f\xfd", b"Rar!\x1a\x07"),
    *(b"\x04\x22\x4d\x18", b"MSCF", b"\xed\xab\xee\xdb", b"LZIP"),
)
