"""A diff in the light form that a model gets: what git shows, with less around it and nothing hidden.

Each file begins with `=== path`, each hunk with `@@ -a,b +c,d @@ section`, each line with `+`, `-` or a space. Before
every tenth line of the new file stands its number, as `:120` on a line of its own: no line of code can begin with a
colon here, and the quote decides the place, so more numbers would cost tokens for nothing. Linear in the diff.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from codeloupe.engine.prompt_text import has_hidden, one_line, visible
from codeloupe.model.change import DiffLine, FileChange, FileStatus, Hunk, LineKind, UnitPart

# Below a unit of medium effort, so that only a line that is longer than a whole unit loses its end.
MAX_LINE_BYTES = 8_000
_NUMBER_EVERY = 10
# The hunk's header tells where it begins; a number right behind it would say the same again.
_QUIET_LINES = 5
_SIGNS: dict[LineKind, str] = {"context": " ", "added": "+", "deleted": "-"}
_NO_NEWLINE = "\\ no newline at the end"


class LightDiff(Struct, frozen=True):
    """The text, and in words what of the diff is not in it as it is."""

    text: str
    notes: tuple[str, ...] = ()


def light_diff(parts: Iterable[UnitPart]) -> LightDiff:
    """The parts of a unit, one after the other."""
    rendered = [_render(part) for part in parts]
    return LightDiff("\n".join(one.text for one in rendered), tuple(note for one in rendered for note in one.notes))


def shown_line(text: bytes) -> str:
    """One line as it is shown: hidden characters and bytes that are not UTF-8 visible, an endless one cut."""
    shown = visible(text[:MAX_LINE_BYTES].decode("utf-8", "surrogateescape"))
    left_out = len(text) - MAX_LINE_BYTES
    return shown if left_out <= 0 else f"{shown} [cut: {left_out:,} more bytes]"


def _render(part: UnitPart) -> LightDiff:
    hunks = [(hunk, list(hunk.lines())) for hunk in part.hunks]
    lines = [line for _, of_hunk in hunks for line in of_hunk]
    end = b"\r" if _is_crlf(lines) else b""
    rows = [_header(part, lines, end)]
    for hunk, of_hunk in hunks:
        rows += _hunk_rows(hunk, of_hunk, end)
    return LightDiff("\n".join(rows), tuple(_notes(part.file, lines)))


def _is_crlf(lines: Sequence[DiffLine]) -> bool:
    """Whether every line ends with CR LF: then the CR is told once. A change of line ends shows each of them."""
    ended = [line for line in lines if line.ends_with_newline]
    return bool(ended) and all(line.text.endswith(b"\r") for line in ended)


def _header(part: UnitPart, lines: Sequence[DiffLine], end: bytes) -> str:
    facts = list(_facts(part.file))
    if part.repeated_rows:
        facts.append(f"the first {part.repeated_rows} lines are reviewed elsewhere")
    if end:
        facts.append("lines end with CR LF")
    if any(
        has_hidden(line.text.removesuffix(end)[:MAX_LINE_BYTES].decode("utf-8", "surrogateescape")) for line in lines
    ):
        facts.append("hidden characters shown as <U+code>, other bytes as <0xcode>")
    return f"=== {one_line(part.file.path)}" + (f" ({'; '.join(facts)})" if facts else "")


def _facts(file: FileChange) -> Iterator[str]:
    match file.status:
        case FileStatus.MODIFIED:
            pass
        case FileStatus.RENAMED | FileStatus.COPIED:
            yield f"{file.status.value} from {one_line(file.old_path or '')}"
        case _:
            yield file.status.value.replace("_", " ")
    if file.old_mode and file.new_mode and file.old_mode != file.new_mode:
        yield f"mode {file.old_mode} to {file.new_mode}"
    if file.is_symlink:
        yield "symbolic link"
    if not file.hunks:
        yield "content not shown" if file.binary else "content not changed"


def _hunk_rows(hunk: Hunk, lines: Sequence[DiffLine], end: bytes) -> Iterator[str]:
    section = f" {one_line(hunk.section)}" if hunk.section else ""
    yield f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@{section}"
    for line in lines:
        number = line.new_number
        if number is not None and number % _NUMBER_EVERY == 0 and number - hunk.new_start >= _QUIET_LINES:
            yield f":{number}"
        yield _SIGNS[line.kind] + shown_line(line.text.removesuffix(end))
        if not line.ends_with_newline:
            yield _NO_NEWLINE


def _notes(file: FileChange, lines: Sequence[DiffLine]) -> Iterator[str]:
    cut_lines = sum(len(line.text) > MAX_LINE_BYTES for line in lines)
    if cut_lines:
        yield f"{file.path}: {cut_lines} line(s) longer than {MAX_LINE_BYTES:,} bytes were sent without their ends"
