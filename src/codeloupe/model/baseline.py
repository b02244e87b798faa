"""Why a finding does not count: the baseline, which a team keeps beside its code, or a comment in the code."""

from __future__ import annotations

from datetime import date
from enum import StrEnum

from msgspec import Struct

from codeloupe.model.finding import Severity

BASELINE_NAME = "codeloupe-baseline.yaml"
EXPIRED = "baseline_expired"
UNUSED = "baseline_unused"
_SHORT = 12


class BaselineEntry(Struct, frozen=True, kw_only=True):
    """One known finding. `expires` is the last day on which the entry holds.

    It covers one defect: that of its `rule`, or of what its `title` and `body` say, and no graver one than its
    `severity`. What it does not tell is not compared. An entry without a `file` holds in any. `evidence` is a piece of
    the code it is about, by which it is found and shows whether that code is still there. `line` is where it begins in
    the file of the baseline, 0 for one that is not in it yet.
    """

    fingerprint: str
    reason: str
    file: str = ""
    title: str = ""
    body: str = ""
    evidence: str = ""
    rule: str = ""
    severity: Severity | None = None
    owner: str = ""
    expires: date | None = None
    line: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What distinguishes entries: code that is in two files has the same fingerprint in both. Sorts by file."""
        return self.file, self.fingerprint

    def is_expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return self.expires is not None and self.expires < today

    def in_short(self) -> str:
        """How a message names it; `reported_unused` finds it again by that."""
        return f"{self.fingerprint[:_SHORT]} (line {self.line})"


class Baseline(Struct, frozen=True):
    """All entries in the order of the file, each key once; `name` is how messages call the file.

    `also` are entries of the working tree that hold as well, where the file is that of another tree.
    """

    entries: tuple[BaselineEntry, ...] = ()
    name: str = BASELINE_NAME
    also: tuple[BaselineEntry, ...] = ()


class EntryState(StrEnum):
    """What a review shows of an entry: one that is `unseen` is about what the review did not look at."""

    USED = "used"
    UNUSED = "unused"
    EXPIRED = "expired"
    UNSEEN = "unseen"


class EntryStanding(Struct, frozen=True):
    """An entry and its state."""

    entry: BaselineEntry
    state: EntryState


def shown_path(path: str) -> str:
    """A path as a text file can hold it: a byte that is not UTF-8 is written as `\\xff`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
