"""The diff of a unit as a prompt shows it: like git's, with less around it and nothing hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from codeloupe.model.change import DiffLine, FileStatus, Hunk, UnitPart
from codeloupe.planning.units import MAX_LINE_BYTES
from codeloupe.system.untrusted import has_hidden, one_line, visible

_SIGNS = {"context": " ", "added": "+", "deleted": "-"}


def light_diff(parts: Iterable[UnitPart]) -> tuple[str, list[str]]:
    """Return the diff of some parts, and a note for each part with lines that were cut.

    Each file starts with `=== path`, each hunk with `@@ -a,b +c,d @@ section`, each line with `+`, `-` or a space.
    Every tenth line of the new file follows its number, as `:120` on a row of its own. A row of code cannot start with
    a colon, so the two cannot be confused. More numbers would cost tokens without a use, because the quote decides the
    place of a finding.
    """
    rows: list[str] = []
    notes: list[str] = []
    for part in parts:
        lines: list[DiffLine] = []
        for hunk in part.hunks:
            lines.extend(hunk.lines())
        line_end = _common_line_end(lines)
        header = f"=== {one_line(part.file.path)}"
        facts = "; ".join(_facts(part, lines, line_end))
        if facts:
            header += f" ({facts})"
        rows.append(header)
        for hunk in part.hunks:
            rows.extend(_hunk_rows(hunk, line_end))
        long_lines = sum(len(line.text) > MAX_LINE_BYTES for line in lines)
        if long_lines:
            notes.append(
                f"{part.file.path}: {long_lines} line(s) longer than {MAX_LINE_BYTES:,} bytes were sent truncated"
            )
    return "\n".join(rows), notes


def shown_line(text: bytes) -> str:
    """Return one line with hidden characters and bytes that are not UTF-8 made visible; a very long line is cut."""
    shown = visible(text[:MAX_LINE_BYTES].decode("utf-8", "surrogateescape"))
    cut_bytes = len(text) - MAX_LINE_BYTES
    if cut_bytes > 0:
        shown += f" [cut: {cut_bytes:,} more bytes]"
    return shown


def _common_line_end(lines: Sequence[DiffLine]) -> bytes:
    """Return CR if every line ends with CR LF; the header of the file then says so once instead of every line."""
    complete = [line for line in lines if line.ends_with_newline]
    if complete and all(line.text.endswith(b"\r") for line in complete):
        return b"\r"
    return b""


def _hunk_rows(hunk: Hunk, line_end: bytes) -> Iterator[str]:
    header = f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@"
    if hunk.section:
        header += f" {one_line(hunk.section)}"
    yield header
    for line in hunk.lines():
        number = line.new_number
        # The header gives the first number; another one right after it would be redundant.
        if number is not None and number % 10 == 0 and number - hunk.new_start >= 5:
            yield f":{number}"
        yield _SIGNS[line.kind] + shown_line(line.text.removesuffix(line_end))
        if not line.ends_with_newline:
            yield "\\ no newline at the end"


def _facts(part: UnitPart, lines: Sequence[DiffLine], line_end: bytes) -> Iterator[str]:
    """Yield what the lines alone do not show about a file."""
    file = part.file
    if file.status in (FileStatus.RENAMED, FileStatus.COPIED):
        yield f"{file.status.value} from {one_line(file.old_path or '')}"
    elif file.status is not FileStatus.MODIFIED:
        yield file.status.value.replace("_", " ")
    if file.old_mode and file.new_mode and file.old_mode != file.new_mode:
        yield f"mode {file.old_mode} to {file.new_mode}"
    if file.is_symlink:
        yield "symbolic link"
    if not file.hunks:
        yield "content not shown" if file.binary else "content not changed"
    if part.repeated_rows:
        yield f"the first {part.repeated_rows} lines are reviewed elsewhere"
    if line_end:
        yield "lines end with CR LF"
    if any(_has_hidden(line.text.removesuffix(line_end)) for line in lines):
        yield "hidden characters shown as <U+code>, other bytes as <0xcode>"


def _has_hidden(text: bytes) -> bool:
    return has_hidden(text[:MAX_LINE_BYTES].decode("utf-8", "surrogateescape"))
