"""What people said about stages that wait, as files beside the run: left by any process, taken by the one that runs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets

from codeloupe.model.pipeline import Approval
from codeloupe.store.records import Unreadable
from codeloupe.store.run_files import UnfitFile, opened_directory, opened_or_made, read_file, replace_file
from codeloupe.store.run_json import approval_from_json, approval_to_json

APPROVALS_DIRECTORY = "approvals"
_LARGEST_BYTES = 4 * 1024 * 1024


def put(approval: Approval, *, inside: int) -> None:
    """Leave a word on a stage, in the place of an earlier one. Raises ValueError, UnfitFile or OSError."""
    data = approval_to_json(approval)
    if len(data) > _LARGEST_BYTES:
        raise ValueError(f"the note has more than {_LARGEST_BYTES:,} bytes")
    with opened_or_made(APPROVALS_DIRECTORY, inside=inside) as approvals:
        replace_file(_name(approval.stage), data, inside=approvals)


def take(stage: str, *, inside: int) -> Approval | None:
    """The word on a stage, which is then gone, readable or not. Raises UnfitFile or OSError."""
    try:
        with opened_directory(APPROVALS_DIRECTORY, inside=inside) as approvals:
            return _taken(stage, approvals)
    except FileNotFoundError:
        return None


def _taken(stage: str, approvals: int) -> Approval:
    # Renamed before it is read: a newer word that comes meanwhile is not lost with this one.
    ours = f".taken.{secrets.token_hex(8)}"
    os.rename(_name(stage), ours, src_dir_fd=approvals, dst_dir_fd=approvals)
    try:
        approval = approval_from_json(read_file(ours, inside=approvals, limit_bytes=_LARGEST_BYTES))
    except Unreadable as error:
        raise UnfitFile(f"the word on {stage!r} cannot be read ({error})") from error
    except UnfitFile as error:
        raise UnfitFile(f"the word on {stage!r} is not a readable file") from error
    finally:
        with contextlib.suppress(OSError):  # whatever cannot be removed has lost its name
            os.unlink(ours, dir_fd=approvals)
    if approval.stage != stage:
        raise UnfitFile(f"the word on {stage!r} speaks of {approval.stage!r}")
    return approval


def _name(stage: str) -> str:
    # A stage may have any name, a file may not.
    return hashlib.sha256(stage.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".json"
