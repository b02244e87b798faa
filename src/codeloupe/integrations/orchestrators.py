"""What orchestrators get, and how it is made of a review."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.arguments import check_arguments
from codeloupe.config.schema import Settings
from codeloupe.engine.settings import configure
from codeloupe.errors import CodeloupeError, RevisionError, UsageError
from codeloupe.git.repository import find_base_branch, open_repository
from codeloupe.model.events import Event, ReviewerChosen, UnitFinished, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.review import Review, Verdict, claim_in_words
from codeloupe.model.scope import CommitScope, RangeScope, ScopeRequest
from codeloupe.model.severity import Severity
from codeloupe.reports.json_v1 import render_json
from codeloupe.runtime import Runtime
from codeloupe.system.redaction import redact

_NAMED_REASONS = 5
_PRIORITY = re.compile(r"\s{0,8}\[\s{0,8}P[0-3]\s{0,8}\]\s*", re.IGNORECASE)
_UNPLACED = "(The code that this speaks of was not found in the reviewed files.)"


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


def reasons_of(review: Review) -> list[str]:
    """Why a part of the change was not reviewed, each reason once; none when everything was."""
    failed = (unit.reason for unit in review.coverage.units_failed)
    gaps = (f"{skip.file}: {skip.in_words()}" for skip in review.coverage.skipped if skip.is_gap)
    claims = (f"{claim.file or '?'}: {claim_in_words(claim)}" for claim in review.unsettled)
    found = list(dict.fromkeys((*failed, *gaps, *claims)))
    return found or ([] if review.complete else ["not everything was reviewed"])


_FROM_WORST = (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.NEEDS_WORK, Verdict.PASS)


def worst_verdict(reviews: Sequence[Review], *, ended: bool) -> Verdict:
    """The worst verdict of some reviews; at best INCOMPLETE unless all of them ended."""
    verdicts = {review.verdict for review in reviews} | ({Verdict.PASS} if ended else {Verdict.INCOMPLETE})
    return next(verdict for verdict in _FROM_WORST if verdict in verdicts)


def joined(reasons: Sequence[str]) -> str:
    """The first few reasons in one line, and how many more there are."""
    more = len(reasons) - _NAMED_REASONS
    return "; ".join(reasons[:_NAMED_REASONS]) + (f"; and {more} more" if more > 0 else "")


def issue_of(finding: Finding) -> ReviewIssue:
    """A finding as an issue with a priority."""
    priority = finding.severity.priority
    return ReviewIssue(
        file=finding.file,
        line_start=finding.line_start,
        line_end=finding.line_end,
        priority=priority,
        title=f"[P{priority}] {_plain_title(finding)}",
        body=_body(finding),
        reviewer=finding.reviewer,
    )


def workdir_issue_of(finding: Finding) -> WorkdirIssue:
    """A finding as an issue with one of three severities."""
    title, body = _plain_title(finding), _body(finding)
    return WorkdirIssue(
        file=finding.file,
        line=finding.line_start,
        severity=_word(finding.severity),
        message=f"{title}: {body}" if body and body != title else title,
        suggestion=finding.suggestion,
    )


def counting(review: Review) -> Iterator[Finding]:
    """The findings that are open, those in a known place first."""
    still_open = [finding for finding in review.findings if finding.is_open]
    yield from (finding for finding in still_open if finding.anchored)
    yield from (finding for finding in still_open if not finding.anchored)


def _word(severity: Severity) -> Literal["error", "warning", "suggestion"]:
    if severity.at_least(Severity.HIGH):
        return "error"
    return "warning" if severity is Severity.MEDIUM else "suggestion"


def _plain_title(finding: Finding) -> str:
    """The title without a priority of the reviewer's own, which need not be the one that counts."""
    stated = _PRIORITY.match(finding.title)
    return finding.title[stated.end() :] if stated else finding.title


def _body(finding: Finding) -> str:
    return finding.body if finding.anchored else f"{finding.body}\n\n{_UNPLACED}".strip()


ReviewFunction = Callable[..., Awaitable[Review]]
"""`codeloupe.review`, or anything that is called like it."""

WarningSink = Callable[[str], None]

TIMEOUT = "timeout"
_log = logging.getLogger(__name__)


def own_review(shared: Runtime | None) -> ReviewFunction:
    """`codeloupe.review`, or the review of a runtime, for whoever counts on an agent: without one it fails."""

    async def review(scope: ScopeRequest, *, settings: Settings | None, **options: Any) -> Review:
        if shared is not None:
            return await shared.review(scope, needs_agent=True, **options)
        async with Runtime(settings) as runtime:
            return await runtime.review(scope, needs_agent=True, **options)

    return review


class Trouble(Struct, frozen=True):
    """Why a review did not come to its end; `fatal` when trying again makes no sense."""

    words: str
    fatal: bool = False


class Voice:
    """Tells each warning once, and the log who reviews what. Keeps what was found so far, and the warnings."""

    def __init__(self, sink: WarningSink | None, what: str) -> None:
        self._sink = sink
        self.what = what
        self.warnings: set[str] = set()
        self.findings: list[Finding] = []

    def take(self, event: Event) -> None:
        """Take an event of the review."""
        match event:
            case ReviewerChosen(reviewer):
                _log.info("Starting review for %s with %s", self.what, reviewer.type)
            case Warned(message):
                self.warn(message)
            case UnitFinished(findings=findings):
                self.findings += findings
            case _:
                pass

    def warn(self, message: str) -> None:
        """Tell a warning, unless it was told before. A sink that fails takes nothing from the review."""
        if message in self.warnings:
            return
        self.warnings.add(message)
        if self._sink is None:
            return
        try:
            self._sink(message)
        except Exception:  # noqa: BLE001 - it is the caller's own code, and may raise anything
            _log.warning("a warning could not be passed on: %s", message, exc_info=True)


async def trouble_of(work: Coroutine[Any, Any, None], *, timeout: float | None) -> Trouble | None:
    """Do some work within its time; why it did not come to its end, or None. Only a cancellation is raised."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await work
    except TimeoutError as error:
        return Trouble(TIMEOUT) if limit.expired() else _unexpected(error)
    except CodeloupeError as error:
        _log.warning("the review failed", exc_info=True)
        words = f"{error.message} ({error.hint})" if error.hint else error.message
        return Trouble(redact(words), fatal=isinstance(error, UsageError))
    except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, an orchestrator gets an answer
        return _unexpected(error)
    return None


def _unexpected(error: Exception) -> Trouble:
    _log.error("the review failed", exc_info=error)
    return Trouble(redact(f"{type(error).__name__}: {error}"))


# The kind of an error that trying again does not mend.
_FATAL = "fatal"
_CONTEXT_BYTES = 1024 * 1024


class CodeReviewer:
    """Reviews ranges and commits of one repository.

    Without `settings` they are loaded for each review as the program would. A JSON report of each review goes to
    `log_directory`, if one is given. `on_review_warning` gets a sentence for whatever degrades a review. With a
    `runtime` its settings count and its limits hold for all reviews together. A review for which no agent can be used
    fails; only `reviewer_type: offline` reviews without one.
    """

    def __init__(
        self,
        repo: Path | str = ".",
        *,
        settings: Settings | None = None,
        log_directory: Path | str | None = None,
        on_review_warning: WarningSink | None = None,
        review: ReviewFunction | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        check_arguments(
            repo=repo,
            settings=settings,
            log_directory=log_directory,
            on_review_warning=on_review_warning,
            review=review,
            runtime=runtime,
        )
        self._repo = Path(repo)
        self._settings = settings
        self._log_directory = None if log_directory is None else Path(log_directory)
        self._on_warning = on_review_warning
        self._review = review or own_review(runtime)

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
            raise ValueError(f"a review needs time, and the timeout is {timeout}")
        scopes = _scopes(diff_range, commit_shas)
        voice = Voice(self._on_warning, " ".join(commit_shas) if commit_shas else diff_range)
        reviews: list[Review] = []

        async def work() -> None:
            options: dict[str, Any] = {"context": _read_context(context_file, voice)}
            if claude_session_id is not None:
                options["session_id"] = claude_session_id
            # An external reviewer is told how long it may take.
            settings = self._settings and replace(self._settings, timeout_seconds=float(timeout))
            for scope in scopes:
                # One after the other, so that what was reviewed before a failure is kept.
                done = await self._review(scope, repo=self._repo, settings=settings, emit=voice.take, **options)
                reviews.append(done)

        trouble = await trouble_of(work(), timeout=timeout)
        log_path = _write_log(self._log_directory, reviews, trouble, voice) if self._log_directory else None
        result = _result(reviews, trouble, log_path)
        if result.parse_error is not None:
            voice.warn(result.parse_error)
        return result


def make_reviewer(
    settings: Settings,
    *,
    repo: Path | str = ".",
    log_directory: Path | str | None = None,
    on_review_warning: WarningSink | None = None,
    review: ReviewFunction | None = None,
    runtime: Runtime | None = None,
) -> CodeReviewer:
    """The callable reviewer under these settings, made as CodeReviewer says. Says in the log which it is."""
    made = CodeReviewer(
        repo,
        settings=settings,
        log_directory=log_directory,
        on_review_warning=on_review_warning,
        review=review,
        runtime=runtime,
    )
    _log.info("Initializing code reviewer: %s", settings.reviewer_type)
    return made


def _scopes(diff_range: str, commit_shas: Sequence[str] | None) -> list[ScopeRequest]:
    if isinstance(commit_shas, str):
        raise ValueError("commit_shas is a list of commits, not one text")
    check_arguments(diff_range=diff_range, commit_shas=commit_shas)
    if commit_shas:
        return [CommitScope(sha) for sha in dict.fromkeys(commit_shas)]
    if not diff_range.strip():
        raise ValueError("a review needs a range or commits")
    return [RangeScope(diff_range)]


def _read_context(file: Path | str | None, voice: Voice) -> str:
    if file is None:
        return ""
    path = Path(file)
    if not path.is_file():
        raise UsageError(
            f"the context file {path} does not exist or is not a file", hint="give the path of a text file"
        )
    try:
        with path.open("rb") as stream:
            content = stream.read(_CONTEXT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the context file {path} cannot be read: {error.strerror}", hint="check its mode") from error
    if len(content) > _CONTEXT_BYTES:
        voice.warn(f"the context file {path} is longer than {_CONTEXT_BYTES:,} bytes; the rest of it is left out")
    return content[:_CONTEXT_BYTES].decode("utf-8", "replace")


def _result(reviews: Sequence[Review], trouble: Trouble | None, log_path: Path | None) -> ReviewResult:
    reasons = list(dict.fromkeys(reason for review in reviews for reason in reasons_of(review)))
    if trouble is not None:
        reasons.append(trouble.words)
    fatal = any(error.kind == _FATAL for review in reviews for error in review.errors)
    issues = dict.fromkeys(issue_of(finding) for review in reviews for finding in counting(review))
    return ReviewResult(
        passed=trouble is None and all(review.passed for review in reviews),
        verdict=worst_verdict(reviews, ended=trouble is None),
        issues=tuple(issues),
        parse_error=joined(reasons) or None,
        fatal_error=fatal or (trouble is not None and trouble.fatal),
        review_log_path=log_path,
    )


def _write_log(directory: Path, reviews: Sequence[Review], trouble: Trouble | None, voice: Voice) -> Path | None:
    """Write the report in one step. That it cannot be written takes nothing from the review."""
    documents = [render_json(review) for review in reviews]
    if trouble is not None:
        documents.append(_unfinished(trouble, voice))
    text = documents[0] if len(documents) == 1 else f"[{','.join(documents)}]\n"
    path = directory / f"review-{reviews[0].review_id if reviews else uuid.uuid4()}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
    except OSError as error:
        voice.warn(f"the report of the review could not be written to {path}: {error.strerror}")
        return None
    return path


def _unfinished(trouble: Trouble, voice: Voice) -> str:
    """What is known of a review that did not come to its end, in the names that the report of one has."""
    known = {
        "scope": {"description": voice.what},
        "verdict": Verdict.INCOMPLETE.value,
        "passed": False,
        "complete": False,
        "findings": [
            {
                "file": found.file,
                "severity": found.severity.value,
                "title": redact(found.title),
                "body": redact(found.body),
            }
            for found in voice.findings
        ],
        "errors": [{"kind": "unfinished", "message": trouble.words}],
        "warnings": [redact(warning) for warning in sorted(voice.warnings)],
    }
    return f"{json.dumps(known, indent=2, ensure_ascii=False)}\n"


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".review-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:  # whatever ended the writing, no half of a report is left
        with suppress(OSError):
            Path(name).unlink()
        raise


NO_OUTPUT = "No structured review output"
UNREADABLE_OUTPUT = "Failed to parse review output"

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
        return _workdir_reviewer_result(reviews[0], voice, unreadable_passes=policy == "pass")


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


def _workdir_reviewer_result(review: Review, voice: Voice, *, unreadable_passes: bool) -> WorkdirReviewResult:
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
