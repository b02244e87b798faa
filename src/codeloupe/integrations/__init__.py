"""Reviewers in the two shapes that orchestrators hold: called with a range or commits, or given a work directory.

Neither raises for a review that failed: it is not passed, and says why. Only wrong arguments and a cancellation are
raised, and after a cancellation nothing of the review is left running.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.arguments import check_arguments
from codeloupe.config.schema import Settings
from codeloupe.errors import CodeloupeError, RevisionError, UsageError
from codeloupe.git.repository import find_base_branch, open_repository
from codeloupe.model.events import Event, ReviewerChosen, UnitFinished, Warned
from codeloupe.model.finding import Claim
from codeloupe.model.review import Review, Verdict
from codeloupe.model.scope import CommitScope, RangeScope, ScopeRequest
from codeloupe.reports.json_v1 import render_json
from codeloupe.reports.wording import CLAIM, UNIT, gaps_of
from codeloupe.runtime import Runtime, configure
from codeloupe.store.records import replace_file
from codeloupe.system.logs import log_failure
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex

ReviewFunction = Callable[..., Awaitable[Review]]
"""`codeloupe.review`, or anything that is called like it."""

WarningSink = Callable[[str], None]

_log = logging.getLogger(__name__)
_CONTEXT_BYTES = 1024 * 1024
_PRIORITY = regex(r"\A\s{0,8}\[\s{0,8}P[0-3]\s{0,8}\]\s*", re.IGNORECASE)
_UNREADABLE = ("missing field", "invalid verdict", "invalid severity", "invalid json", "invalid answer", "empty output")
# By priority.
_SEVERITIES: Sequence[Literal["error", "warning", "suggestion"]] = ("error", "error", "warning", "suggestion")
_FROM_WORST = (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.NEEDS_WORK, Verdict.PASS)


class ReviewIssue(Struct, frozen=True, kw_only=True):
    """One issue of a `ReviewResult`. `priority` is 0 to 3, and the title begins with it, as in `[P1] …`."""

    file: str
    line_start: int | None
    line_end: int | None
    priority: int
    title: str
    body: str
    reviewer: str


class ReviewResult(Struct, frozen=True, kw_only=True):
    """Whether a change may go on. `parse_error` says what could not be reviewed, and is None when everything was.

    `passed` follows `fail_on`; `verdict` is that of the review, the worst of several, and INCOMPLETE when none ended.
    `fatal_error` tells that trying again makes no sense. `review_log_path` is the JSON report of the review; of
    several commits, a list of their reports.
    """

    passed: bool
    verdict: Verdict = Verdict.PASS
    issues: tuple[ReviewIssue, ...] = ()
    parse_error: str | None = None
    fatal_error: bool = False
    review_log_path: Path | None = None


class WorkdirIssue(Struct, frozen=True, kw_only=True):
    """One issue of a `WorkdirReviewResult`."""

    file: str
    line: int | None
    severity: Literal["error", "warning", "suggestion"]
    message: str
    suggestion: str | None = None


class WorkdirReviewResult(Struct, frozen=True, kw_only=True):
    """Whether a work directory may go on. `raw_output` is what a reviewer printed that could not be read, or empty."""

    passed: bool
    summary: str
    issues: tuple[WorkdirIssue, ...] = ()
    raw_output: str = ""


class ReviewerOptions(TypedDict, total=False):
    """A sink for whatever degrades a review, a function that reviews, or a runtime, whose settings and limits count."""

    on_review_warning: WarningSink | None
    review: ReviewFunction | None
    runtime: Runtime | None


class _Reviewer:
    def __init__(self, settings: Settings | None, options: ReviewerOptions) -> None:
        if unknown := options.keys() - ReviewerOptions.__annotations__.keys():
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        check_arguments(settings=settings, **options)
        self._settings = settings
        self._on_warning = options.get("on_review_warning")
        self._runtime = options.get("runtime")
        # For whoever counts on an agent: without one the review fails.
        self._review = options.get("review") or self._own_review

    async def _own_review(self, scope: ScopeRequest, *, settings: Settings | None, **options: Any) -> Review:
        async with nullcontext(self._runtime) if self._runtime else Runtime(settings) as runtime:
            return await runtime.review(scope, needs_agent=True, **options)


class CodeReviewer(_Reviewer):
    """Reviews ranges and commits of one repository.

    Without `settings` they are loaded for each review as the program would. A JSON report of each review goes to
    `log_directory`, if one is given. A review for which no agent can be used fails; only `reviewer_type: offline`
    reviews without one.
    """

    def __init__(
        self,
        repo: Path | str = ".",
        *,
        settings: Settings | None = None,
        log_directory: Path | str | None = None,
        **options: Unpack[ReviewerOptions],
    ) -> None:
        super().__init__(settings, options)
        check_arguments(repo=repo, log_directory=log_directory)
        self._repo = Path(repo)
        self._log_directory = None if log_directory is None else Path(log_directory)

    def overrides_disabled_setting(self) -> bool:
        """Whether it reviews although reviews are switched off: no."""
        return False

    async def __call__(
        self,
        diff_range: str,
        context_file: Path | str | None = None,
        timeout: float = 300,
        claude_session_id: str | None = None,
        *,
        commit_shas: Sequence[str] | None = None,
    ) -> ReviewResult:
        """Review a range such as `main..HEAD`, or each of some commits against its first parent.

        The whole review, of all commits, ends within `timeout` seconds. `context_file` says what the change is meant
        to do; `claude_session_id` is for a review-gate. Raises ValueError when there is nothing named to review, or no
        time for it, and UsageError for an argument of a wrong type.
        """
        check_arguments(context_file=context_file, timeout=timeout, claude_session_id=claude_session_id)
        if not timeout > 0:
            raise ValueError(f"the timeout must be positive, not {timeout}")
        if isinstance(commit_shas, str):
            raise ValueError("commit_shas must be a list of commits, not a string")
        check_arguments(diff_range=diff_range, commit_shas=commit_shas)
        if not commit_shas and not diff_range.strip():
            raise ValueError("diff_range or commit_shas must name something to review")
        commits = [CommitScope(sha) for sha in dict.fromkeys(commit_shas or ())]
        scopes: Sequence[ScopeRequest] = commits or [RangeScope(diff_range)]
        listener = _Listener(self._on_warning, " ".join(commit_shas or [diff_range]))
        # So that an external reviewer knows how long it may take.
        settings = self._settings and replace(self._settings, timeout_seconds=float(timeout))
        reviews: list[Review] = []

        async def work() -> None:
            options: dict[str, Any] = {"repo": self._repo, "settings": settings, "emit": listener.take}
            options |= {} if claude_session_id is None else {"session_id": claude_session_id}
            options["context"] = _read_context(Path(context_file), listener) if context_file is not None else ""
            for scope in scopes:
                # One after the other, so that what was reviewed before a failure is kept.
                done = await self._review(scope, **options)
                reviews.append(done)

        failure, is_fatal = await _failure_of(work(), timeout=timeout)
        log_path = _write_log(self._log_directory, reviews, failure, listener) if self._log_directory else None
        reasons = list(dict.fromkeys(reason for review in reviews for reason in _reasons_of(review)))
        if why := _joined([*reasons, *([failure] if failure else [])]):
            listener.warn(why)
        verdicts = {review.verdict for review in reviews} | {Verdict.INCOMPLETE if failure else Verdict.PASS}
        issues = dict.fromkeys(issue for review in reviews for issue, _ in _issues_of(review))
        return ReviewResult(
            passed=not failure and all(review.passed for review in reviews),
            verdict=next(verdict for verdict in _FROM_WORST if verdict in verdicts),
            issues=tuple(issues),
            parse_error=why or None,
            fatal_error=is_fatal or any(error.kind == "fatal" for review in reviews for error in review.errors),
            review_log_path=log_path,
        )


class WorkdirReviewer(_Reviewer):
    """Reviews what the branch in a work directory has over its base: `git diff BASE...HEAD`.

    `on_parse_error` says whether an answer that cannot be read passes; without it the settings do, and by default it
    fails. The other options are those of a CodeReviewer.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        on_parse_error: Literal["pass", "fail"] | None = None,
        timeout_seconds: float | None = None,
        **options: Unpack[ReviewerOptions],
    ) -> None:
        super().__init__(settings, options)
        check_arguments(timeout_seconds=timeout_seconds)
        self._on_parse_error = on_parse_error
        self._timeout_seconds = timeout_seconds

    @property
    def name(self) -> str:
        """The type of the reviewer, as in `reviewer_type`."""
        return (self._settings or Settings()).reviewer_type

    async def review(self, workdir: Path | str, base_branch: str) -> WorkdirReviewResult:
        """Review the commits that HEAD has and the base branch has not. Raises ValueError without a base branch."""
        check_arguments(workdir=workdir, base_branch=base_branch)
        if not base_branch.strip():
            raise ValueError("base_branch must not be empty")
        listener = _Listener(self._on_warning, f"{base_branch}...HEAD")
        settings = self._settings
        reviews: list[Review] = []

        async def work() -> None:
            nonlocal settings
            # In a CI checkout the base may be known as origin's alone.
            base = await find_base_branch(await open_repository(Path(workdir)), base_branch)
            if base is None:
                raise RevisionError(f"{workdir} has no commits yet", hint="create a first commit")
            scope = RangeScope(f"{base.sha}...HEAD")
            settings = settings or (await configure(scope, repo=workdir)).settings
            reviews.append(await self._review(scope, repo=Path(workdir), settings=settings, emit=listener.take))

        failure, _ = await _failure_of(work(), timeout=self._timeout_seconds)
        if failure:
            listener.warn(failure)
            return WorkdirReviewResult(passed=False, summary=f"The review failed: {failure}")
        review = reviews[0]
        reasons = _reasons_of(review)
        for reason in reasons:
            listener.warn(reason)
        summary = f"{review.summary}: {_joined(reasons)}" if reasons else review.summary
        is_excused = False
        if reasons and all(reason.startswith(_UNREADABLE) for reason in reasons):
            policy = self._on_parse_error or (settings or Settings()).on_parse_error
            is_excused = policy == "pass" and review.exit_code == 3
            # The sentence on answers that could not be read, alone when nothing else was.
            is_empty = all(reason in ("empty output", "invalid json: no JSON found") for reason in reasons)
            said = "No structured review output" if is_empty else "Failed to parse review output"
            was_all = len(review.coverage.units_failed) >= review.coverage.units_total and not review.findings
            summary = said if was_all else f"{review.summary}; {said}"
        return WorkdirReviewResult(
            passed=review.passed or is_excused,
            summary=summary,
            issues=tuple(issue for _, issue in _issues_of(review)),
            raw_output="\n".join(error.detail for error in review.errors if error.detail),
        )


def make_reviewer(
    settings: Settings,
    *,
    repo: Path | str = ".",
    log_directory: Path | str | None = None,
    **options: Unpack[ReviewerOptions],
) -> CodeReviewer:
    """Return the callable reviewer under these settings, made as CodeReviewer says. The log says which it is."""
    made = CodeReviewer(repo, settings=settings, log_directory=log_directory, **options)
    _log_reviewer(settings)
    return made


def make_workdir_reviewer(
    settings: Settings,
    *,
    on_parse_error: Literal["pass", "fail"] | None = None,
    timeout_seconds: float | None = None,
    **options: Unpack[ReviewerOptions],
) -> WorkdirReviewer:
    """Return the reviewer under these settings, made as WorkdirReviewer says. The log says which it is."""
    made = WorkdirReviewer(settings=settings, on_parse_error=on_parse_error, timeout_seconds=timeout_seconds, **options)
    _log_reviewer(settings)
    return made


def _log_reviewer(settings: Settings) -> None:
    """Log who will review. Each review chooses among several agents, and logs the one that it chose."""
    names = settings.reviewers or (settings.reviewer_type,)
    if names == ("auto",):
        _log.info("Initializing code reviewer: the first usable agent of %s", ", ".join(settings.agents))
    else:
        _log.info("Initializing code reviewer: %s", "+".join(names))


class _Listener:
    """Pass each warning on once, log who reviews what, and collect the claims so far."""

    def __init__(self, sink: WarningSink | None, what: str) -> None:
        self._sink = sink
        self.what = what
        self.warnings: set[str] = set()
        self.claims: list[Claim] = []

    def take(self, event: Event) -> None:
        match event:
            case ReviewerChosen(reviewer):
                _log.info("Starting review for %s with %s", self.what, reviewer.type)
            case Warned(message):
                self.warn(message)
            case UnitFinished(claims=claims):
                self.claims += claims

    def warn(self, message: str) -> None:
        """Pass a warning on, once. A sink that fails takes nothing from the review."""
        is_new = message not in self.warnings
        self.warnings.add(message)
        try:
            if is_new and self._sink is not None:
                self._sink(message)
        except Exception as error:  # noqa: BLE001 - it is the caller's own code, and may raise anything
            log_failure(_log, error, "cannot pass on a warning: %s", message)


async def _failure_of(work: Coroutine[Any, Any, None], *, timeout: float | None) -> tuple[str, bool]:
    """Why some work did not come to its end in time, and whether trying again makes no sense; raises cancellations."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await work
    except CodeloupeError as error:
        why = redact(f"{error.message} ({error.hint})" if error.hint else error.message)
        log_failure(_log, error, "the review failed: %s", why)
        return why, isinstance(error, UsageError)
    except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, an orchestrator gets an answer
        if isinstance(error, TimeoutError) and limit.expired():
            return "timeout", False
        why = redact(f"{type(error).__name__}: {error}")
        log_failure(_log, error, "the review failed: %s", why)
        return why, False
    return "", False


def _read_context(path: Path, listener: _Listener) -> str:
    if not path.is_file() or not os.access(path, os.R_OK):
        what = f"the context file {path} does not exist, is not a file or cannot be read"
        raise UsageError(what, hint="give the path of a text file")
    with path.open("rb") as stream:
        content = stream.read(_CONTEXT_BYTES + 1)
    if len(content) > _CONTEXT_BYTES:
        listener.warn(f"the context file {path} is longer than {_CONTEXT_BYTES:,} bytes; the rest is ignored")
    return content[:_CONTEXT_BYTES].decode("utf-8", "replace")


def _write_log(directory: Path, reviews: Sequence[Review], failure: str, listener: _Listener) -> Path | None:
    """Write the report in one step. If that fails, warn; the review is still valid."""
    documents = [render_json(review) for review in reviews]
    if failure:
        # What is known of a review that did not come to its end, in the names that the report of one has.
        known = {
            "scope": {"description": listener.what},
            "verdict": Verdict.INCOMPLETE.value,
            "passed": False,
            "complete": False,
            "findings": [
                {"file": one.file, "severity": one.severity.label, "title": redact(one.title), "body": redact(one.body)}
                for one in listener.claims
            ],
            "errors": [{"kind": "unfinished", "message": failure}],
            "warnings": [redact(warning) for warning in sorted(listener.warnings)],
        }
        documents.append(f"{json.dumps(known, indent=2, ensure_ascii=False)}\n")
    text = documents[0] if len(documents) == 1 else f"[{','.join(documents)}]\n"
    path = directory / f"review-{reviews[0].review_id if reviews else uuid.uuid4()}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        listener.warn(f"cannot write the report of the review to {path}: {error.strerror}")
        return None
    return path


def _reasons_of(review: Review) -> list[str]:
    """Why a part of the change was not reviewed, each reason once; none when everything was."""
    # What a reviewer answered wrongly comes before what it claimed.
    gaps = sorted(gaps_of(review), key=lambda gap: gap.kind == CLAIM)
    return list(dict.fromkeys(gap.reason if gap.kind == UNIT else gap.describe() for gap in gaps))


def _joined(reasons: Sequence[str]) -> str:
    return "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")


def _issues_of(review: Review) -> Iterator[tuple[ReviewIssue, WorkdirIssue]]:
    """Each open finding in both shapes, without a priority of the reviewer's own, which need not be what counts."""
    for finding in sorted(review.findings, key=lambda finding: not finding.anchored):
        if not finding.is_open:
            continue
        title, place = _PRIORITY.sub("", finding.title, count=1), finding.line_start
        unplaced = "\n\n(The code that this refers to was not found in the reviewed files.)"
        body = finding.body if finding.anchored else f"{finding.body}{unplaced}".strip()
        issue = ReviewIssue(
            file=finding.file,
            line_start=place,
            line_end=finding.line_end,
            priority=(priority := finding.severity.priority),
            title=f"[P{priority}] {title}",
            body=body,
            reviewer=finding.reviewer,
        )
        words = f"{title}: {body}" if body and body != title else title
        severity, advice = _SEVERITIES[priority], finding.suggestion
        yield issue, WorkdirIssue(file=finding.file, line=place, severity=severity, message=words, suggestion=advice)
