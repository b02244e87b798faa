"""Why a finding does not count: the baseline, which a team keeps beside its code, or a comment in the code."""

from __future__ import annotations

from datetime import date
from enum import StrEnum

from msgspec import Struct

from codeloupe.model.finding import Severity

BASELINE_NAME = "codeloupe-baseline.yaml"
EXPIRED = "baseline_expired"
UNUSED = "baseline_unused"


class BaselineEntry(Struct, frozen=True, kw_only=True):
    """One known finding. `expires` is the last day on which the entry holds.

    It covers one defect: that of its `rule`, or of what its `title` and `body` say, and none above its `severity`.
    Without a `file` it holds in any. `statement` has the names of the statements it is about, separated by spaces;
    without them it holds for its fingerprint. `evidence` is a piece of that code, for people. `line` is where it begins
    in the baseline, 0 for one that is not in it yet.
    """

    fingerprint: str
    reason: str
    file: str = ""
    title: str = ""
    body: str = ""
    evidence: str = ""
    statement: str = ""
    rule: str = ""
    severity: Severity | None = None
    owner: str = ""
    expires: date | None = None
    line: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What distinguishes entries: code that is in two files has the same fingerprint in both. Sorts by file."""
        return self.file, self.fingerprint

    @property
    def statements(self) -> frozenset[str]:
        """The names of the statements it is about."""
        return frozenset(self.statement.split())

    def is_expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return self.expires is not None and self.expires < today

    def in_short(self) -> str:
        """How a message names it; `reported_unused` finds it again by that."""
        return f"{self.fingerprint[:12]} (line {self.line})"


class Baseline(Struct, frozen=True):
    """All entries in the order of the file `name`, each key once, and those of the working tree that hold `also`."""

    entries: tuple[BaselineEntry, ...] = ()
    name: str = BASELINE_NAME
    also: tuple[BaselineEntry, ...] = ()


# What a review shows of an entry: one that is `unseen` is about what the review did not look at.
EntryState = StrEnum("EntryState", "USED UNUSED EXPIRED UNSEEN")


class EntryStanding(Struct, frozen=True):
    """An entry and its state."""

    entry: BaselineEntry
    state: EntryState


def shown_path(path: str) -> str:
    """A path as a text file can hold it: a byte that is not UTF-8 is written as `\\xff`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
