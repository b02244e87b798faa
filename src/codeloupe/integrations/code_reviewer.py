"""The reviewer that is called with a range or with commits."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.config.arguments import check_arguments
from codeloupe.config.schema import Settings
from codeloupe.errors import UsageError
from codeloupe.integrations.results import ReviewResult, counting, issue_of, joined, reasons_of, worst_verdict
from codeloupe.integrations.running import ReviewFunction, Trouble, Voice, WarningSink, own_review, trouble_of
from codeloupe.model.review import Review, Verdict
from codeloupe.model.scope import CommitScope, RangeScope, ScopeRequest
from codeloupe.reports.json_v1 import render_json
from codeloupe.runtime import Runtime
from codeloupe.system.redaction import redact

_log = logging.getLogger(__name__)
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
