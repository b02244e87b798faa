"""What is known of a run as JSON and back, exactly.

Moments are written in UTC. Lone surrogates, which paths may hold, are written as they are: an escaped one would join
with its neighbour into another character when it is read. So a document is UTF-8 as far as its texts are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from codeloupe.model.pipeline import Approval, PipelineEvent, RunRecord
from codeloupe.store.record_text import plain, read
from codeloupe.store.records import FromNewerVersion, Unreadable

# Raised when what is written can no longer be read by an older version, not when a field is added.
VERSION = 1


def run_to_json(run: RunRecord) -> bytes:
    """The state of a run. Raises ValueError for what cannot be written."""
    return _encoded(run) + b"\n"


def run_from_json(data: bytes) -> RunRecord:
    """The run that was written. Raises Unreadable, or FromNewerVersion for a version that is not known.

    Fields that this version does not know are ignored, and those that an older one did not write get their default.
    """
    document = _document(data)
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise Unreadable("it has no version, so it is no state of a run")
    if version > VERSION:
        raise FromNewerVersion(f"it was written by a newer codeloupe (version {version}, this one reads {VERSION})")
    return read(RunRecord, document, in_utc=True)


def event_to_line(event: PipelineEvent) -> bytes:
    """One line of a journal, with its end. Raises ValueError for what cannot be written."""
    return _encoded(event) + b"\n"


def event_from_line(line: bytes) -> PipelineEvent:
    """The event that was written. Raises Unreadable."""
    return read(PipelineEvent, _document(line), in_utc=True)


def approval_to_json(approval: Approval) -> bytes:
    """A person's word. Raises ValueError for what cannot be written."""
    return _encoded(approval) + b"\n"


def approval_from_json(data: bytes) -> Approval:
    """The word that was written. Raises Unreadable."""
    return read(Approval, _document(data), in_utc=True)


def _encoded(value: object) -> bytes:
    try:
        text = json.dumps(plain(value, in_utc=True), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return text.encode("utf-8", "surrogatepass")


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not whole, or no JSON ({error})") from error
    if not isinstance(document, dict):
        raise Unreadable("it is no JSON object")
    return document
