"""The journal of a run: one event a line, only ever added to. What a crash cut off counts as never written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from codeloupe.model.pipeline import PipelineEvent
from codeloupe.store.records import Unreadable
from codeloupe.store.run_files import flush, open_file, read_file, write_all
from codeloupe.store.run_json import event_from_line, event_to_line

JOURNAL_FILE = "journal.jsonl"
_LARGEST_BYTES = 256 * 1024 * 1024
_PIECE_BYTES = 64 * 1024


def append(events: Sequence[PipelineEvent], *, inside: int) -> None:
    """Add events durably, behind the last whole line. Raises ValueError before anything is written, or OSError."""
    lines = [event_to_line(event) for event in events]
    descriptor = open_file(JOURNAL_FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT, inside=inside)
    try:
        size = os.fstat(descriptor).st_size
        whole = _whole_bytes(descriptor, size)
        if whole < size:
            os.ftruncate(descriptor, whole)
        for line in lines:
            write_all(descriptor, line)
        flush(descriptor)
        if not size:
            flush(inside)
    finally:
        os.close(descriptor)


def read(*, inside: int) -> tuple[PipelineEvent, ...]:
    """All events, the oldest first. Raises UnfitFile or OSError; a journal that is not there has no events.

    A last line without an end is left out. In the place of any other line that cannot be read stands a note.
    """
    try:
        data = read_file(JOURNAL_FILE, inside=inside, limit_bytes=_LARGEST_BYTES)
    except FileNotFoundError:
        return ()
    return tuple(_events(data.split(b"\n")[:-1]))


def _events(lines: Sequence[bytes]) -> Iterator[PipelineEvent]:
    last = datetime.fromtimestamp(0, UTC)
    for number, line in enumerate(lines, start=1):
        try:
            event = event_from_line(line)
        except Unreadable as error:
            event = PipelineEvent(at=last, kind="note", message=f"line {number} of the journal cannot be read: {error}")
        last = event.at
        yield event


def _whole_bytes(descriptor: int, size: int) -> int:
    """How far the file goes up to the end of its last whole line."""
    end = size
    while end > 0:
        start = max(end - _PIECE_BYTES, 0)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
