"""A sweep: many commits, each reviewed by itself, with a score and a word on what to do with it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from codeloupe.model.agent import Usage
from codeloupe.model.change import Commit
from codeloupe.model.review import Review, ReviewerInfo


class CommitQuery(Struct, frozen=True, kw_only=True):
    """Which commits: of a branch or range (default HEAD), since and until in git's words, newest first.

    By default a merge is one change, against its first parent. With `merges`, or an author, the commits that merges
    brought in are there too, each by itself, and a merge is only what it changed itself.
    """

    revision: str = "HEAD"
    since: str | None = None
    until: str | None = None
    author: str | None = None
    max_count: int | None = None
    merges: bool = False

    @property
    def looks_into_merges(self) -> bool:
        """Whether commits that merges brought in are meant; somebody's commits are theirs, whoever merged them."""
        return self.merges or self.author is not None


# What kind of work a commit is; it chooses the experts.
CommitCategory = StrEnum("CommitCategory", "BUG_FIX FEATURE REFACTOR TEST_CHANGE DOCUMENTATION CHORE OTHER")


# What to do with a commit.
CommitVerdict = StrEnum("CommitVerdict", {"LEAVE": "LEAVE", "FIX": "FIX", "REVERT": "REVERT"})


class PlanStep(Struct, frozen=True):
    """One step of a plan: `fix`, or test first: `red` writes a failing test, `green` fixes it, `refactor` cleans up."""

    phase: str
    text: str
    code: str = ""


class CommitReview(Struct, frozen=True, kw_only=True):
    """One commit of a sweep. `verdict` and `score` are None when it could not be reviewed; `failure` says why.

    `score` is None also where there was nothing to read in it. A `review` that is not complete is kept.
    """

    commit: Commit
    category: CommitCategory
    experts: tuple[str, ...]
    review: Review | None = None
    failure: str = ""
    score: float | None = None
    verdict: CommitVerdict | None = None
    plan: tuple[PlanStep, ...] = ()

    @property
    def reviewed(self) -> bool:
        """Whether all of it was looked at."""
        return self.review is not None and self.review.complete and not self.failure


class SweepPart(Struct, frozen=True, kw_only=True):
    """One commit of a sweep that is spread over machines: the one at `position` of `total`.

    `newest` is the commit whose guidance and baseline apply to all of them. `revision` names the requested commits, and
    `work_tree` the work tree in which the sweep was asked for.
    """

    sweep_id: str
    description: str
    commit: str
    newest: str
    revision: str
    total: int
    position: int
    work_tree: str = ""
    merges: bool = False
    strict: bool = False


class CommitSweep(Struct, frozen=True, kw_only=True):
    """The outcome of a sweep; `score` is the mean of the reviewed commits. `strict`: a high finding is exit code 1."""

    sweep_id: str
    description: str
    commits: tuple[CommitReview, ...]
    summary: str
    exit_code: int
    reviewer: ReviewerInfo | None = None
    strict: bool = False
    score: float | None = None
    usage: Usage = Usage()
