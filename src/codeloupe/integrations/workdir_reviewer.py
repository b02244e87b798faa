"""The reviewer that is given a work directory and the branch it came from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from codeloupe.config.arguments import check_arguments
from codeloupe.config.schema import Settings
from codeloupe.configuring import configure
from codeloupe.errors import RevisionError
from codeloupe.git.repository import find_base_branch, open_repository
from codeloupe.integrations.results import WorkdirReviewResult, counting, joined, reasons_of, workdir_issue_of
from codeloupe.integrations.running import ReviewFunction, Voice, WarningSink, own_review, trouble_of
from codeloupe.model.review import Review
from codeloupe.model.scope import RangeScope
from codeloupe.runtime import Runtime

NO_OUTPUT = "No structured review output"
UNREADABLE_OUTPUT = "Failed to parse review output"

_log = logging.getLogger(__name__)
_INCOMPLETE = 3
_UNREADABLE = ("missing field", "invalid verdict", "invalid severity", "invalid json", "invalid answer", "empty output")
_NOTHING_TO_READ = ("empty output", "invalid json: no JSON found")


class WorkdirReviewer:
    """Reviews what the branch in a work directory has over its base: `git diff BASE...HEAD`.

    `on_parse_error` says whether an answer that cannot be read passes; without it the settings do, and by default it
    fails. Without `settings` they are loaded for each review as the program would. With a `runtime` its settings count
    and its limits hold for all reviews together. A review for which no agent can be used fails; only `reviewer_type:
    offline` reviews without one.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        on_parse_error: Literal["pass", "fail"] | None = None,
        timeout_seconds: float | None = None,
        on_review_warning: WarningSink | None = None,
        review: ReviewFunction | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        check_arguments(
            settings=settings,
            timeout_seconds=timeout_seconds,
            on_review_warning=on_review_warning,
            review=review,
            runtime=runtime,
        )
        self._settings = settings
        self._on_parse_error = on_parse_error
        self._timeout_seconds = timeout_seconds
        self._on_warning = on_review_warning
        self._review = review or own_review(runtime)

    @property
    def name(self) -> str:
        """The type of the reviewer, as in `reviewer_type`."""
        return (self._settings or Settings()).reviewer_type

    async def review(self, workdir: Path | str, base_branch: str) -> WorkdirReviewResult:
        """Review the commits that HEAD has and the base branch has not. Raises ValueError without a base branch."""
        check_arguments(workdir=workdir, base_branch=base_branch)
        if not base_branch.strip():
            raise ValueError("a review needs the branch to compare with")
        voice = Voice(self._on_warning, f"{base_branch}...HEAD")
        settings = self._settings
        reviews: list[Review] = []

        async def work() -> None:
            nonlocal settings
            scope = await _since(Path(workdir), base_branch)
            settings = settings or (await configure(scope, repo=workdir)).settings
            reviews.append(await self._review(scope, repo=Path(workdir), settings=settings, emit=voice.take))

        trouble = await trouble_of(work(), timeout=self._timeout_seconds)
        if trouble is not None:
            voice.warn(trouble.words)
            return WorkdirReviewResult(passed=False, summary=f"The review failed: {trouble.words}")
        policy = self._on_parse_error or (settings or Settings()).on_parse_error
        return _result(reviews[0], voice, unreadable_passes=policy == "pass")


def make_workdir_reviewer(
    settings: Settings,
    *,
    on_parse_error: Literal["pass", "fail"] | None = None,
    timeout_seconds: float | None = None,
    on_review_warning: WarningSink | None = None,
    review: ReviewFunction | None = None,
    runtime: Runtime | None = None,
) -> WorkdirReviewer:
    """The reviewer under these settings, made as WorkdirReviewer says. Says in the log which it is."""
    made = WorkdirReviewer(
        settings=settings,
        on_parse_error=on_parse_error,
        timeout_seconds=timeout_seconds,
        on_review_warning=on_review_warning,
        review=review,
        runtime=runtime,
    )
    _log.info("Initializing code reviewer: %s", settings.reviewer_type)
    return made


async def _since(workdir: Path, base_branch: str) -> RangeScope:
    """What HEAD has over a branch, which in a CI checkout may be known as origin's alone."""
    base = await find_base_branch(await open_repository(workdir), base_branch)
    if base is None:
        raise RevisionError(f"{workdir} has no commits yet", hint="make a first commit")
    return RangeScope(f"{base.sha}...HEAD")


def _result(review: Review, voice: Voice, *, unreadable_passes: bool) -> WorkdirReviewResult:
    reasons = reasons_of(review)
    for reason in reasons:
        voice.warn(reason)
    only_unreadable = bool(reasons) and all(reason.startswith(_UNREADABLE) for reason in reasons)
    passes = only_unreadable and unreadable_passes and review.exit_code == _INCOMPLETE
    return WorkdirReviewResult(
        passed=review.passed or passes,
        summary=_unreadable_summary(review, reasons) if only_unreadable else _summary(review, reasons),
        issues=tuple(workdir_issue_of(finding) for finding in counting(review)),
        raw_output="\n".join(error.detail for error in review.errors if error.detail),
    )


def _summary(review: Review, reasons: Sequence[str]) -> str:
    return f"{review.summary}: {joined(reasons)}" if reasons else review.summary


def _unreadable_summary(review: Review, reasons: Sequence[str]) -> str:
    """The sentence on answers that could not be read, alone when nothing else was."""
    nothing = all(reason in _NOTHING_TO_READ for reason in reasons)
    sentence = NO_OUTPUT if nothing else UNREADABLE_OUTPUT
    was_all = len(review.coverage.units_failed) >= review.coverage.units_total and not review.findings
    return sentence if was_all else f"{review.summary}; {sentence}"
