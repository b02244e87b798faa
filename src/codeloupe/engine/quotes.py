"""What a claim says of its place: the quote in all its readings, the path it names, and the code it offers instead."""

from __future__ import annotations

import html
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, islice
from typing import NamedTuple

from codeloupe.engine.code_text import fold, has_letters
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import has_hidden, one_line

# What redaction puts in the place of a secret.
MASK = "[redacted]"
# Folded text holds no white space but single spaces, so no quote reaches over this sign from one run into the next.
_BOUNDARY = "\x1c"
_LOOSE_NEWLINE = regex(r"\n(?!\w)|(?<!\w)\n")


class SearchText:
    """Runs of lines to find quotes in: folded, without blank ones, joined into `text` with a newline around each.

    Each line is known by its row; rows only grow. A place is a pair of offsets into `text`, start and end.
    """

    def __init__(self, runs: Iterable[Iterable[tuple[int, str]]]) -> None:
        lines: list[tuple[int, str]] = []
        for run in runs:
            lines += ((row, folded) for row, line in run if (folded := fold(line)))
            lines.append((lines[-1][0] if lines else 0, _BOUNDARY))
        self.text = "\n" + "".join(f"{line}\n" for _, line in lines)
        self._rows = array("q", (row for row, _ in lines))
        # One more than there are lines: the last is the end of the text.
        self._starts = array("q", accumulate((len(line) + 1 for _, line in lines), initial=1))

    @cached_property
    def _joined(self) -> str:
        return _LOOSE_NEWLINE.sub("", self.text).replace("\n", " ")

    def rows(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last row of a place."""
        first, last = (bisect_right(self._starts, offset) - 1 for offset in (start, max(start, end - 1)))
        return self._rows[first], self._rows[last]

    def stretch(self, first_row: int, last_row: int) -> tuple[int, int]:
        """The place that holds all lines between two rows, with the newlines around them."""
        first, last = bisect_left(self._rows, first_row), bisect_right(self._rows, last_row)
        return self._starts[first] - 1, self._starts[last]

    def around(self, offset: int, *, lines_before: int = 0, lines_after: int = 0) -> tuple[int, int]:
        """The place of the line at an offset, or of so many more before and after it, without newlines around."""
        index = bisect_right(self._starts, offset) - 1
        last = min(index + lines_after + 1, len(self._rows))
        return self._starts[max(0, index - lines_before)], self._starts[last] - 1

    def places_run_together(self, pattern: str, most: int) -> list[tuple[int, int]]:
        """The places of a pattern in the text with its lines run together: a line that was broken is found so."""
        found: list[int] = []
        start = self._joined.find(pattern)
        while start >= 0 and len(found) < most:
            found.append(start)
            start = self._joined.find(pattern, start + 1)
        if not found:
            return []
        lost = accumulate(_LOOSE_NEWLINE.match(self.text, start - 1) is not None for start in self._starts)
        starts = array("q", (start - gone for start, gone in zip(self._starts, lost, strict=True)))

        def restored(offset: int) -> int:
            index = bisect_right(starts, offset) - 1
            return offset + self._starts[index] - starts[index]

        return [(restored(start), restored(start + len(pattern) - 1) + 1) for start in found]


_FENCE = regex(r"\s{0,99}(?:`{3,9}|~{3,9})[^`]{0,80}$")
_REMARK = regex(r"\s{0,9}(?:#|//|/\*|--)?\s{0,9}(?:<-{1,3}|←)\s[^\n]{0,200}$", re.MULTILINE)
_BULLET = regex(r"^\s{0,9}[>*•]\s", re.MULTILINE)
_ESCAPE = regex(r'\\(?:u([0-9a-fA-F]{4})|(["\'\\/nrt]))')
_ESCAPED = {"n": "\n", "r": "", "t": "\t"}
_VISIBLE = regex(r"<(?:U\+([0-9A-F]{4,6})(?:×(\d{1,7}))?|0x[0-9A-F]{2}(?:×\d{1,7})?)>")
_PLACE = regex(r"[^\s:]{1,300}:(\d{1,7})(?:[-:]\d{1,7})?(?:\s{0,9}[-:|\u2013\u2014]\s{1,9}|\s{1,9}|$)")
_NUMBER = regex(r"\s{0,9}[>*]?\s{0,9}[Ll]?(\d{1,7})(?::\d{1,4})?(?:\s{0,9}[:|│→).]\s?|\t|\s{2})")
_PLAIN_NUMBER = regex(r"\s{0,9}>?\s{0,9}(\d{1,7})(?:\s|$)")
_NUMBER_ROW = regex(r"\s{0,9}:(\d{1,7})\s{0,9}$")
_DIFF_ROW = regex(r"@@ |diff --git |index [0-9a-f]{7}|--- [ab]/|\+\+\+ [ab]/|=== |\\ [Nn]o newline at")


class Reading(NamedTuple):
    """One reading of a quote, with the number in its margin; `of_deletion` when its own marks show deleted lines."""

    lines: tuple[str, ...]
    of_deletion: bool = False
    first_line: int | None = None
    folded: tuple[str, ...] = ()


def readings_of(quote: str) -> list[Reading]:
    """The readings of a quote, the most literal first. A very long quote is read at its beginning. Never raises."""
    text = quote[:20_000]
    if text != quote:
        # The last line is cut somewhere, so that it is nowhere as it is.
        text = quote[:20_001].rpartition("\n")[0] or text
    kept: dict[tuple[tuple[str, ...], bool], Reading] = {}
    for spelling in dict.fromkeys(_spellings(text.replace("\r\n", "\n"))):
        plain = Reading(tuple(spelling.split("\n")[:200]))
        for margins in _MARGINS:
            read = [plain]
            for without_margin in margins:
                read = [changed for one in read for changed in without_margin(one)]
            for one in read:
                folded = tuple(filter(None, map(fold, one.lines)))
                if folded:
                    kept.setdefault((folded, one.of_deletion), one._replace(folded=folded))
    return list(kept.values())


def _spellings(quote: str) -> Iterator[str]:
    yield quote
    lines = quote.strip("\n").split("\n")
    if len(lines) > 1 and _FENCE.match(lines[0]):
        lines = lines[1 : -1 if _FENCE.match(lines[-1]) else None]
    bare = unquoted = "\n".join(lines)
    stripped = bare.strip()
    for sign in ("```", "``", "`", '"', "'"):
        if len(stripped) > 2 * len(sign) and stripped.startswith(sign) and stripped.endswith(sign):
            unquoted = stripped[len(sign) : -len(sign)]
            break
    yield bare
    yield unquoted
    for text in (bare, unquoted):
        yield _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2]), text)
        yield _VISIBLE.sub(_hidden, text)
        yield html.unescape(text)
    yield _REMARK.sub("", bare)
    yield _BULLET.sub("", bare)
    # Between an odd backtick and the next even one is code, everything else is words.
    yield max(bare.split("`")[1:-1:2], key=len, default=bare)


def _hidden(shown: re.Match[str]) -> str:
    """The characters that a prompt shows as `<U+200B×40>`; a byte that is not UTF-8 is nothing to compare with."""
    code = int(shown[1], 16) if shown[1] else 0x110000
    return chr(code) * min(int(shown[2] or 1), 200) if code < 0x110000 else ""


def _without_numbers(reading: Reading) -> Iterator[Reading]:
    """Without line numbers in the margin, on each line or on some, and without rows that hold a number alone."""
    rows = [line for line in reading.lines if not _NUMBER_ROW.match(line)]
    alone = [int(found[1]) for line in reading.lines if (found := _NUMBER_ROW.match(line))]
    numbered = [_NUMBER.match(line) for line in rows]
    if not any(numbered):
        numbered = [_PLAIN_NUMBER.match(line) for line in rows]
        numbers = [int(found[1]) for found in numbered if found]
        # A number and a space may be code; several that count upwards are a margin.
        if len(numbers) < len(rows) or len(rows) < 2 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            numbered = [None] * len(rows)
    numbers = [int(found[1]) for found in numbered if found]
    if numbers or alone:
        lines = tuple(line[found.end() :] if found else line for line, found in zip(rows, numbered, strict=True))
        yield reading._replace(lines=lines, first_line=min(numbers or alone))


def _without_place(reading: Reading) -> Iterator[Reading]:
    """Without `path:12 - ` before the code."""
    first = reading.lines[0].lstrip()
    if found := _PLACE.match(first):
        yield reading._replace(lines=(first[found.end() :], *reading.lines[1:]), first_line=int(found[1]))


def _without_signs(reading: Reading) -> Iterator[Reading]:
    """Without the column of a diff: the new side first, or the old one when nothing is added."""
    rows = [line for line in reading.lines if not _DIFF_ROW.match(line)]
    signs = {row[:1] for row in rows}

    def without(sign: str) -> tuple[str, ...]:
        return tuple(row[1:] if row[:1] in {"+", "-"} else row for row in rows if not sign or row[:1] != sign)

    if "+" in signs:
        yield reading._replace(lines=without("-"))
    if "-" in signs:
        yield reading._replace(lines=without("+"), of_deletion=True)
        yield reading._replace(lines=without(""), of_deletion=True)
    if not signs & {"+", "-"} and len(rows) < len(reading.lines):
        yield reading._replace(lines=tuple(rows))


_MARGINS: tuple[tuple[Callable[[Reading], Iterator[Reading]], ...], ...] = (
    (),
    (_without_numbers,),
    (_without_signs,),
    (_without_numbers, _without_signs),
    (_without_signs, _without_numbers),
    (_without_place,),
)
_GAP = regex(r"\[redacted\]|\.{3,99}|\[cut:[0-9,]{1,20} more bytes\]")
_GAP_LINE = regex(r"[\[\](){}<>#/*;!-]{0,9}(?:\[redacted\]|\.{3,99})[\[\](){}<>#/*;!-]{0,9}$")
# How many lines an ellipsis may replace, and a mask: a private key is many lines.
_LINES_LEFT_OUT, _LINES_OF_A_SECRET = 200, 60
_WIDEST_GAP = 8_000
# A part of a quote after a gap: its text, how many lines the gap may span, 0 for one within a line, and whether it is
# a mask.
_Piece = tuple[str, int, bool]


def pieces_of(lines: Sequence[str]) -> list[_Piece]:
    """The parts between the gaps of folded lines; none when nothing is left out, or too little is quoted."""
    if not any(_GAP.search(line) for line in lines):
        return []
    pieces = [piece for piece in _split(lines) if piece[0]]
    longest, *others = sorted((text for text, *_ in pieces), key=len, reverse=True) or [""]
    if len(longest.strip("\n")) < 3 or not has_letters(longest) or any(len(other) > 1000 for other in others):
        return []
    return pieces


def _split(lines: Sequence[str]) -> Iterator[_Piece]:
    text, reach, masked = "", 0, False
    for index, line in enumerate(lines):
        if _GAP_LINE.match(line):
            yield text, reach, masked
            text, reach, masked = "", _LINES_OF_A_SECRET if MASK in line else _LINES_LEFT_OUT, False
            continue
        if text or (index and not reach):
            text += "\n"
        position = 0
        for gap in _GAP.finditer(line):
            yield text + line[position : gap.start()], reach, masked
            text, position, masked = "", gap.end(), gap[0] == MASK
            reach = _LINES_LEFT_OUT if gap[0][0] == "." and gap.end() == len(line) else 0
        text += line[position:]
    yield text, reach, masked


def places_with_gaps(
    lines: Sequence[str], text: SearchText, literal: Callable[[str], Iterable[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Where all pieces of a quote with gaps are in order, around some of the `literal` places of the longest one."""
    pieces = pieces_of(lines)
    if not pieces:
        return []
    longest = max(range(len(pieces)), key=lambda index: len(pieces[index][0]))
    starts = [start for start, _ in islice(literal(pieces[longest][0]), 100)]
    for hidden_lines in (0, _LINES_OF_A_SECRET):
        reaches = [max(reach, hidden_lines) if masked else reach for _, reach, masked in pieces]
        found = [_gapped_place(text, [piece[0] for piece in pieces], reaches, longest, start) for start in starts]
        if places := [place for place in found if place is not None]:
            return places
    return []


def _gapped_place(
    text: SearchText, pieces: Sequence[str], reaches: Sequence[int], longest: int, start: int
) -> tuple[int, int] | None:
    """The place of all pieces in order around the longest one, each in the reach of the gap between."""
    first, end = start, start + len(pieces[longest])
    for index in range(longest - 1, -1, -1):
        piece = pieces[index]
        low, _ = text.around(first - 1, lines_before=reaches[index + 1] + piece.count("\n"))
        first = text.text.rfind(piece, max(low, first - _WIDEST_GAP - len(piece)), first)
        if first < 0:
            return None
    for index in range(longest + 1, len(pieces)):
        piece = pieces[index]
        _, high = text.around(max(end - 1, 0), lines_after=reaches[index])
        found = text.text.find(piece, end, min(high, end + _WIDEST_GAP) + len(piece))
        if found < 0:
            return None
        end = found + len(piece)
    are_whole_lines = text.text[first - 1] == "\n" and text.text[end : end + 1] == "\n"
    says_enough = are_whole_lines or len(pieces[longest]) >= 6
    return (first, end) if says_enough and _BOUNDARY not in text.text[first:end] else None


_LONGEST_PATH = 4096
_LOCATION = regex(r"(?::\d{1,9}(?:[-:]\d{1,9}){0,2}|#L\d{1,9}(?:-L?\d{1,9})?|\s{0,9}\((?:lines?|L)\s?\d[^()]{0,40}\))$")
_MANY_SLASHES = regex(r"/(?:\.?/){1,999}")
_WRAPPING = " \t\r\n`'\"<>*,;"


class ClaimedPaths:
    """Finds the file of a claimed path: among the changed files, then in the tree, asked for clean relative paths."""

    def __init__(self, files: Sequence[FileChange], is_readable: Callable[[str], bool]) -> None:
        self._is_readable = is_readable
        self._changed = {file.path: file.path for file in files}
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        for path in self._changed:
            self._by_name[path.rpartition("/")[2]].append(path)
        for file in files:
            self._changed.setdefault(one_line(file.path), file.path)
            if file.status is FileStatus.RENAMED and file.old_path:
                self._changed.setdefault(file.old_path, file.path)
        self._found = lru_cache(maxsize=4096)(self._find)

    @staticmethod
    def plain(claimed: str) -> str:
        """A claimed path without all that may be around it."""
        return list(_path_spellings(claimed[:_LONGEST_PATH]))[-1]

    def candidates(self, claimed: str, unit_files: Sequence[str]) -> tuple[str, ...]:
        """The files that may be meant, the likeliest first; none when none is, or when too many could be."""
        if claimed in self._changed:
            return (self._changed[claimed],)
        return self._found(claimed[: _LONGEST_PATH + 1], tuple(unit_files))

    def _find(self, claimed: str, unit_files: tuple[str, ...]) -> tuple[str, ...]:
        spellings = list(_path_spellings(claimed))
        for path in spellings:
            if path in self._changed:
                return (self._changed[path],)
        path = spellings[-1]
        parts = path.split("/")
        if not _is_inside(path.lstrip("/")) or len(parts) > 64:
            return ()
        ends = ("/".join(parts[index:]) for index in range(1, len(parts)))
        if path.startswith("/") or path[1:3] == ":/":
            # The longest end of it that names a file, as nobody knows where the tree was for the reviewer.
            found = (self._changed.get(end, end) for end in ends if end in self._changed or self._is_readable(end))
            return tuple(islice(found, 1))
        exact = [spelling for spelling in spellings if _is_inside(spelling) and self._is_readable(spelling)]
        longer = [known for known in self._by_name.get(parts[-1], ()) if known.endswith(f"/{path}")]
        if len(longer) > 1 and len(longer := [known for known in longer if known in unit_files]) != 1:
            return ()
        shorter = next(((self._changed[end],) for end in ends if end in self._changed), ())
        return tuple(dict.fromkeys((*longer, *exact[:1], *shorter)))


def _path_spellings(claimed: str) -> Iterator[str]:
    """The path without more and more of what is around it: quotes, line numbers, prefixes of a diff, extra slashes."""
    path = claimed.strip(_WRAPPING)
    yield path
    path = _LOCATION.sub("", path).strip(_WRAPPING)
    yield path
    path = path.removeprefix("file://").replace("\\", "/")
    yield path
    path = _MANY_SLASHES.sub("/", path)
    while path.startswith("./"):
        path = path[2:]
    yield path
    if path.startswith(("a/", "b/")):
        yield path[2:]


def _is_inside(path: str) -> bool:
    """Whether a relative path stays in the tree, is not the repository's own storage, and can name a file at all."""
    ordinary = not any(part in {"", ".", ".."} or part.lower() == ".git" for part in path.split("/"))
    return ordinary and 0 < len(path) <= _LONGEST_PATH and "\0" not in path


# How advice begins. No line of code begins with such a word in this spelling and goes on in words.
_ADVICE = regex(
    r"(?:Use|Replace|Add|Remove|Change|Consider|Instead|Make|Move|Wrap|Escape|Validate|Ensure|Rename|Avoid|Delete|"
    r"Pass|Set|Keep|Handle|Guard|Close|Do not|Don't|The|This|You|It|N/A|None needed|No change)[ ,][`'\"\w]"
)
_PROSE_SUFFIXES = (".md", ".markdown", ".txt", ".rst", ".adoc", ".tex", ".html", ".htm")


def replacement_of(offered: str | None, *, quote: str, lines: str, path: str) -> str | None:
    """The code that takes the place of `lines`, the whole lines that were found for `quote`; None for anything else.

    Fences and the marks of a diff are taken off, and indentation that was left out is put back. It is none when it
    changes nothing, is advice in words, holds what was masked or cannot be seen, or when the quote is only a part of
    the lines: then nobody knows what it replaces.
    """
    if offered is None or not lines.strip() or len(offered) > 20_000 or MASK in lines:
        return None
    code, bare = _without_fence(offered), _without_fence(quote)
    if code is None or bare is None:
        return None
    rows = code.strip("\n").split("\n")
    if all(row.startswith("+") for row in rows if row.strip()):
        code = "\n".join(row[1:] for row in rows)
    if not code.strip() or MASK in code or has_hidden(code):
        return None
    # The quote is these lines, whole, but for indentation, the marks of a diff and a fence.
    wanted, quoted = ([row.strip() for row in text.split("\n") if row.strip()] for text in (lines, bare))
    if wanted not in (quoted, [row.removeprefix("+").strip() for row in quoted]):
        return None
    if not path.lower().endswith(_PROSE_SUFFIXES) and _ADVICE.match(code.lstrip()):
        return None
    fitted = _indented(code.strip("\n").rstrip(), lines)
    return None if fitted == lines.rstrip() else fitted


def _without_fence(text: str) -> str | None:
    """What is in a block that is the whole text; the text when it has none; None for words around a block."""
    text = text.replace("\r\n", "\n")
    rows = text.strip().split("\n")
    fences = [number for number, row in enumerate(rows) if _FENCE.match(row)]
    if not fences:
        return text
    return "\n".join(rows[1:-1]) if fences == [0, len(rows) - 1] else None


def _indented(code: str, lines: str) -> str:
    """The code, indented as the lines are where its first line has lost its indentation."""
    first = next((row for row in lines.split("\n") if row.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    rows = code.split("\n")
    if not indent or rows[0][:1].isspace():
        return code
    others = [row for row in rows[1:] if row.strip()]
    if others and all(row.startswith(indent) for row in others):
        return f"{indent}{code}"
    return "\n".join(f"{indent}{row}" if row.strip() else row for row in rows)
