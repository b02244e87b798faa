"""What a file is, by its content: text in an encoding, media, a font, an archive, a compiled program, or none of these.

Text becomes UTF-8. An encoding counts where whoever runs the file would believe it too: a byte order mark, a
declaration in the first lines, NULs between ASCII letters; not one that gives readable bytes another meaning.

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

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import FileChange, Hunk
from codeloupe.model.review import SkipReason
from codeloupe.system.regex import regex

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_HEAD_BYTES = 1024
_DECLARED = regex(
    rb"coding[:=][ \t]{0,4}([-\w.]{1,40})|<\?xml[^>]{0,200}encoding=[\"']([-\w.]{1,40})"
    rb"|<meta[^>]{0,200}charset=[\"']?([-\w.]{1,40})|@charset \"([-\w.]{1,40})\"|fileencoding=([-\w.]{1,40})",
    re.IGNORECASE,
)
_ASCII = bytes((*range(0x20, 0x7F), *b"\t\n\r"))
_LINE = regex(rb"[^\n]*\n|[^\n]+")
_WORD = regex(rb"[\t\x20-\x7e]{4,}")


class Encoding(Struct, frozen=True):
    """How a content is encoded. `keeps_lines` where a line of bytes is a line of text, and ASCII is ASCII."""

    name: str
    keeps_lines: bool
    mark: bytes = b""


def encoding_of(content: bytes, path: str) -> Encoding | None:
    """The encoding of a content that is not UTF-8; None for UTF-8, and where nothing says which one it is."""
    for mark, name in _MARKS.items():
        if content.startswith(mark):
            # With more of it in ASCII it is no UTF-16, whatever its first two bytes say.
            is_ascii = len(content.translate(None, _ASCII)) <= len(content) * (1 - 0.85)
            return None if is_ascii else Encoding(name, keeps_lines=False, mark=mark)
    if b"\0" in content[:_HEAD_BYTES] and (found := _interleaved(content[:_HEAD_BYTES])):
        without_mark = Encoding(found, keeps_lines=False)
        return None if hides_text(content, without_mark) else without_mark
    return _declared(content[:_HEAD_BYTES], path)


def hides_text(content: bytes, encoding: Encoding, *, least: int = 4) -> bool:
    """Whether who ignores the encoding, and NULs as a shell does, reads `least` bytes that the text has not."""
    if encoding.keeps_lines:
        return False
    decoded = in_utf8(content, encoding)
    if decoded is None:
        return True
    position = 0
    for word in _WORD.findall(content.replace(b"\0", b"")):
        if len(word) >= least:
            position = decoded.find(word, position)
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
    same = next((n for n in range(shorter - start) if before[-1 - n] != after[-1 - n]), shorter - start)
    deleted, added = before[start : len(before) - same], after[start : len(after) - same]
    if not deleted and not added:
        return _with_rows(file, [], first=0)
    first, following = max(0, start - 3), after[len(after) - same :][:3]
    parts = ((b" ", before[first:start]), (b"-", deleted), (b"+", added), (b" ", following))
    return _with_rows(file, [sign + line for sign, lines in parts for line in lines], first=first + 1)


def shown_whole(file: FileChange, text: bytes) -> FileChange:
    """The file with all lines of its new text as added ones, and its deleted ones where they were."""
    added = [b"+" + line for line in _LINE.findall(text)]
    rows: list[bytes] = []
    position = 0
    for hunk in file.hunks:
        for line in hunk.lines():
            end = hunk.new_start - bool(hunk.new_lines) if line.new_number is None else line.new_number
            rows += added[position:end]
            position = max(position, end)
            if line.new_number is None:
                rows.append(b"-" + line.text + b"\n")
    return _with_rows(file, rows + added[position:], first=1)


def _with_rows(file: FileChange, rows: list[bytes], *, first: int) -> FileChange:
    """The file as text with these rows of a diff alone, which begin at the line `first`."""
    added, deleted = (sum(row.startswith(sign) for row in rows) for sign in (b"+", b"-"))
    old, new = len(rows) - added, len(rows) - deleted
    body = b"".join(row if row.endswith(b"\n") else row + b"\n\\ No newline at end of file\n" for row in rows)
    hunk = Hunk(first if old else 0, old, first if new else 0, new, body, added=added, deleted=deleted)
    return replace(file, binary=False, hunks=(hunk,) if rows else (), counts=None)


def _interleaved(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark: ASCII characters with NULs in the places of their upper bytes."""
    for name, width, place in (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1)):
        count = len(head) // width
        letters = head[place : count * width : width]
        others = b"".join(head[n : count * width : width] for n in range(width) if n != place)
        is_text = count > 1 and len(letters.translate(None, _ASCII)) <= count * (1 - 0.7)
        if is_text and others.count(0) >= len(others) * 0.7 and letters.count(0) < count // 4 + 1:
            return name
    return None


def _declared(head: bytes, path: str) -> Encoding | None:
    is_python = path.lower().endswith((".py", ".pyw", ".pyi")) or (head[:2] == b"#!" and b"python" in head[:80])
    found = _DECLARED.search(b"\n".join(head.split(b"\n")[:2]) if is_python else head)
    if found is None:
        return None
    try:
        codec = codecs.lookup(next(group for group in found.groups() if group).decode("ascii"))
    except LookupError:
        return None
    if codec.name in ("utf-8", "ascii", "utf-8-sig") or not codec._is_text_encoding:  # noqa: SLF001 - the only way to ask
        return None
    keeps_lines = in_utf8(_ASCII + b"+AGE-\\x61", Encoding(codec.name, keeps_lines=False)) == _ASCII + b"+AGE-\\x61"
    # Only Python itself reads a source in an encoding that gives ASCII another meaning.
    return Encoding(codec.name, keeps_lines=keeps_lines) if keeps_lines or is_python else None


# A picture without such a text holds no script; compressed pixels do not look like one by chance.
_LONG_TEXT = regex(rb"[\t\n\r\x20-\x7e]{100,}")
_SCRIPT = regex(rb"<\?php|<\?=[\t\n\r\x20-\x7e]{8}|<script|<%[\t\n\r\x20-\x7e]{12}|#!\s*/[a-z/]{3,40}", re.IGNORECASE)
_USUAL_METADATA = regex(rb"<\?xpacket|<x:xmpmeta|<rdf:|xmlns:|Adobe |Photoshop |ICC_PROFILE|\bICC\b|Copyright")
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1b\b") + b"\x7f"
_PRINTABLE = bytes((*b"\t\n\r\f", *range(0x20, 0x7F)))
_MOST_CONTROL = 0.05
# Of these the beginning is enough, since none of them is accepted unread from a stranger, and text is never one.
_PROGRAM_MARKS = (
    *(b"\x7fELF", b"MZ", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe"),
    *(b"\xcf\xfa\xed\xfe", b"\0asm", b"\x1bLua", b"dex\n", b"BC\xc0\xde", b"!<arch>\n"),
)
_PYTHON_FLAGS = (b"\0\0\0\0", b"\1\0\0\0", b"\3\0\0\0")  # in compiled Python
_ARCHIVE_MARKS = (
    *(b"PK\3\4", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"7z\xbc\xaf\x27\x1c", b"\x28\xb5\x2f\xfd", b"Rar!\x1a\x07"),
    *(b"\x04\x22\x4d\x18", b"MSCF", b"\xed\xab\xee\xdb", b"LZIP"),
)


def kind_of_content(content: bytes) -> SkipReason | None:
    """MEDIA, FONT, ARCHIVE, PROGRAM, or BINARY for what nobody recognises; None for text, which is to be read."""
    for reason, mark, end_of, is_clean in _FORMATS:
        if re.match(mark, content, re.DOTALL) and _is_whole(content, end_of, is_clean):
            return reason
    is_python = content[2:4] == b"\r\n" and content[4:8] in _PYTHON_FLAGS and content[16:17] in (b"\xe3", b"c")
    by_mark = SkipReason.ARCHIVE if content.startswith(_ARCHIVE_MARKS) else None
    by_mark = SkipReason.PROGRAM if is_python or content.startswith(_PROGRAM_MARKS) else by_mark
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
    return most_control == _MOST_CONTROL and printable >= len(shown) * 0.75


def _has_usual_text(content: bytes) -> bool:
    """Whether a compressed picture or sound holds no text but metadata of the usual kind."""
    return not _SCRIPT.search(content) and all(_USUAL_METADATA.search(text[0]) for text in _LONG_TEXT.finditer(content))


def _is_whole(content: bytes, end_of: Callable[[bytes], int], is_clean: Callable[[bytes], bool]) -> bool:
    """Whether the structure of a format, which `end_of` follows, ends where the content does."""
    try:
        return end_of(content) == len(content) and is_clean(content)
    except (struct.error, LookupError, ValueError):  # it ends too early, or holds what the format does not know
        return False


def _end_of_png(content: bytes) -> int:
    position, name = 8, b""
    while name != b"IEND":
        size, name = struct.unpack_from(">I4s", content, position)
        end = position + 8 + size
        has_sum = content[end : end + 4] == zlib.crc32(content[position + 4 : end]).to_bytes(4)
        if not has_sum or (position == 8) != (name == b"IHDR"):
            return -1
        position = end + 4
    return position


_JPEG_MARKER = regex(rb"\xff+([^\x00\xff\xd0-\xd7])")


def _end_of_jpeg(content: bytes) -> int:
    position = 2
    while content[position] == 0xFF:
        marker, size = struct.unpack_from(">BH", content, position + 1)
        position += 2 + size
        if marker == 0xDA:  # what follows is compressed, up to the next marker
            found = _JPEG_MARKER.search(content, position)
            if found is None:
                return -1
            position = found.end() - 2
            if found[1] == b"\xd9":
                return position + 2
    return -1


def _end_of_gif(content: bytes) -> int:
    def color_table(flags: int) -> int:
        return 3 * (2 << (flags & 7)) if flags & 0x80 else 0

    position = 13 + color_table(content[10])
    while (mark := content[position]) != 0x3B:
        if mark == 0x2C:
            position += 11 + color_table(content[position + 9])
        elif mark == 0x21:
            position += 2
        else:
            return -1
        while content[position]:
            position += content[position] + 1
        position += 1
    return position + 1


def _end_of_riff(content: bytes) -> int:
    """WebP, WAV and AVI: chunks that fill the stated size."""
    position = 12
    while position < len(content):
        name, size = struct.unpack_from("<4sI", content, position)
        if not name.strip().isalnum():
            return -1
        position += 8 + size + size % 2
    # The padding of the last one may be missing.
    is_stated = struct.unpack_from("<I", content, 4)[0] + 8 == len(content)
    return position - (position == len(content) + 1) if is_stated else -1


def _end_of_bmp(content: bytes) -> int:
    size, reserved, offset, header, width, height, planes, bits, compression = struct.unpack_from(
        "<IIIIiiHHI", content, 2
    )
    is_known = size >= 54 and not reserved and header in (40, 52, 56, 108, 124) and planes == 1
    is_known = is_known and bits in (1, 4, 8, 16, 24, 32) and compression in (0, 3) and offset <= header + 1054
    row = (max(width, 0) * bits + 31) // 32 * 4
    return size if is_known and offset + row * abs(height) in range(size - 3, size + 1) else -1


def _end_of_icon(content: bytes) -> int:
    """ICO and CUR: a list of pictures which, one after the other, fill the file."""
    count = struct.unpack_from("<H", content, 4)[0]
    position = 6 + 16 * count
    for offset, size in sorted(struct.unpack_from("<II", content, 14 + 16 * number)[::-1] for number in range(count)):
        part = content[offset : offset + size]
        is_png = part.startswith(b"\x89PNG\r\n\x1a\n") and _is_whole(part, _end_of_png, _has_usual_text)
        if offset != position or not (is_png or (len(part) >= 40 and part.startswith(b"\x28\0\0\0"))):
            return -1
        position += size
    return position if count else -1


def _end_of_iso_media(content: bytes) -> int:
    """MP4, MOV, M4A, HEIC and AVIF: boxes that fill the file, the first of which says the kind."""
    position = 0
    while position < len(content):
        size, name = struct.unpack_from(">I4s", content, position)
        if size == 1:
            size = struct.unpack_from(">Q", content, position + 8)[0]
        if size < 8 or not re.fullmatch(rb"[a-zA-Z0-9 -]{4}", name):
            return -1
        position += size
    return position


def _end_of_ogg(content: bytes) -> int:
    position = 0
    while content.startswith(b"OggS\0", position):
        count = content[position + 26]
        position += 27 + count + sum(content[position + 27 : position + 27 + count])
    return position


_MP3_BITRATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),  # MPEG 1, layer 3
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),  # MPEG 2
)
_MP3_RATES = {3: (44_100, 48_000, 32_000, 0), 2: (22_050, 24_000, 16_000, 0), 0: (11_025, 12_000, 8_000, 0)}


def _end_of_mp3(content: bytes) -> int:
    """An ID3 tag, if there is one, and frames up to the end, or to a tag there."""
    position = frames = 0
    if content[:3] == b"ID3":
        position = 10 + sum(byte << shift for byte, shift in zip(content[6:10], (21, 14, 7, 0), strict=True))
    while content[position : position + 1] == b"\xff" and content[position + 1] & 0xE6 == 0xE2:
        version, flags = content[position + 1] >> 3 & 3, content[position + 2]
        bitrate, rate = _MP3_BITRATES[version != 3][flags >> 4], _MP3_RATES[version][flags >> 2 & 3]
        if not bitrate or not rate:
            return -1
        position += (144 if version == 3 else 72) * bitrate * 1000 // rate + (flags >> 1 & 1)
        frames += 1
    return position + 128 * content.startswith(b"TAG", position) if frames > 1 else -1


def _end_of_matroska(content: bytes) -> int:
    """WebM and Matroska: a header and a segment that reaches the end, or has no stated size."""
    position, is_open = 0, False
    for mark in (b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"):
        if not content.startswith(mark, position):
            return -1
        position += 4
        width = 9 - (content[position].bit_length() or 8)
        size, largest = int.from_bytes(content[position : position + width]), (1 << 7 * width) - 1
        position += width + (size & largest)
        is_open = size & largest == largest
    return len(content) if is_open else position


def _end_of_opentype(content: bytes) -> int:
    """TTF and OTF: tables that lie in the file and reach its end."""
    count = struct.unpack_from(">H", content, 4)[0]
    tables = [struct.unpack_from(">4sIII", content, 12 + 16 * number) for number in range(count)]
    end = max(offset + size for _, _, offset, size in tables)
    has_all = {b"cmap", b"head"} <= {name for name, *_ in tables}
    return len(content) if has_all and end <= len(content) <= end + 3 else -1


def _end_of_tar(content: bytes) -> int:
    position, block = 0, 512
    while (header := content[position : position + block]).strip(b"\0"):
        size, stated = (int(header[a:b].strip(b" \0") or b"0", 8) for a, b in ((124, 136), (148, 156)))
        is_valid = len(header) == block and header[257:262] == b"ustar" and size >= 0
        if not is_valid or sum(header) - sum(header[148:156]) + 8 * 0x20 != stated:
            return -1
        position += block + -(-size // block) * block
    return len(content) if position and not content[position:].strip(b"\0") else -1


def _has_no_script(content: bytes) -> bool:
    return not _SCRIPT.search(content)


# What a content is, how it begins, and how its structure and the texts in it are checked.
_FORMATS: tuple[tuple[SkipReason, bytes, Callable[[bytes], int], Callable[[bytes], bool]], ...] = (
    (SkipReason.MEDIA, rb"\x89PNG\r\n\x1a\n", _end_of_png, _has_usual_text),
    (SkipReason.MEDIA, rb"\xff\xd8\xff", _end_of_jpeg, _has_usual_text),
    (SkipReason.MEDIA, rb"GIF8[79]a", _end_of_gif, _has_usual_text),
    (SkipReason.MEDIA, rb"RIFF.{4}WEBP", _end_of_riff, _has_usual_text),
    (SkipReason.MEDIA, rb"RIFF.{4}(?:WAVE|AVI )", _end_of_riff, lambda _content: True),
    (SkipReason.MEDIA, rb"BM", _end_of_bmp, _has_no_script),
    (SkipReason.MEDIA, rb"\x00\x00[\x01\x02]\x00", _end_of_icon, _has_no_script),
    (SkipReason.MEDIA, rb".{4}ftyp", _end_of_iso_media, _has_usual_text),
    (SkipReason.MEDIA, rb"OggS\x00", _end_of_ogg, _has_usual_text),
    (SkipReason.MEDIA, rb"ID3|\xff", _end_of_mp3, _has_usual_text),
    (SkipReason.MEDIA, rb"\x1a\x45\xdf\xa3", _end_of_matroska, _has_usual_text),
    (SkipReason.FONT, rb"\x00\x01\x00\x00|OTTO|true", _end_of_opentype, _has_no_script),
    (SkipReason.FONT, rb"wOF[F2].{40}", lambda content: int.from_bytes(content[8:12]), _has_no_script),
    (SkipReason.ARCHIVE, rb".{257}ustar", _end_of_tar, lambda _content: True),
)
