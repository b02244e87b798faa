"""detect-secrets on the added lines of every text file, in a child process that cannot reach a network.

The repository's own baselines are not read: they are configuration of the change's author. `pragma: allowlist secret`
is honoured when the change is trusted.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget, Issue
from codeloupe.analysers.paths import is_prose_file, is_test_file, read_regular_file
from codeloupe.analysers.secret_detectors import AWS_SECRET, BASIC_AUTH, ENTROPY, KEYWORD, PRIVATE_KEY, WEB_TOKEN
from codeloupe.analysers.secret_values import looks_random
from codeloupe.errors import AnalyserFailed, ProgramNotFound
from codeloupe.model.records import dataclass
from codeloupe.model.severity import Severity
from codeloupe.model.token_forms import FORMS
from codeloupe.process import Command, Completed, inherited_environment, run

_NAME = "detect-secrets"
_WORKER = "codeloupe.analysers.secrets_worker"
_VERSION_SCRIPT = f"from importlib.metadata import version; print(version('{_NAME}'))"
_VERSION_TIMEOUT_SECONDS = 20.0
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_LINE_SECONDS = 1.0
# Kept for starting the child and for reading its answer, but never more than half of the time.
_RESERVED_SECONDS = 10.0

_ALLOWED_LINE = re.compile(r"pragma: ?(?:allow|white)list[ -]secret")
_ALLOWED_NEXT_LINE = re.compile(r"\s*(?:#|//|/\*|--|'|<!--)[ \t]*pragma: ?allowlist[ -]nextline[ -]secret")

_TITLES: Mapping[str, tuple[Severity, str]] = {
    **{form.name: (form.severity, f"{form.name} committed") for form in FORMS},
    AWS_SECRET: (Severity.MEDIUM, "Value in the form of an AWS secret key committed"),
    PRIVATE_KEY: (Severity.CRITICAL, "Private key committed"),
    "Age Secret Key": (Severity.CRITICAL, "age secret key committed"),
    "AWS Access Key": (Severity.CRITICAL, "AWS access key committed"),
    "Azure Shared Access Key": (Severity.CRITICAL, "Azure shared access key committed"),
    "Azure Storage Account access key": (Severity.CRITICAL, "Azure storage key committed"),
    "DigitalOcean Token": (Severity.CRITICAL, "DigitalOcean token committed"),
    "HashiCorp Vault Token": (Severity.CRITICAL, "HashiCorp Vault token committed"),
    "IBM COS HMAC Credentials": (Severity.CRITICAL, "IBM Cloud storage credential committed"),
    "IBM Cloud IAM Key": (Severity.CRITICAL, "IBM Cloud key committed"),
    "SoftLayer Credentials": (Severity.CRITICAL, "SoftLayer credential committed"),
    "Anthropic API Key": (Severity.HIGH, "Anthropic API key committed"),
    "Artifactory Credentials": (Severity.HIGH, "Artifactory credential committed"),
    "Bearer Token": (Severity.HIGH, "Bearer token committed"),
    "Cloudant Credentials": (Severity.HIGH, "Cloudant credential committed"),
    "Databricks Token": (Severity.HIGH, "Databricks token committed"),
    "Discord Bot Token": (Severity.HIGH, "Discord bot token committed"),
    "GitHub Token": (Severity.HIGH, "GitHub token committed"),
    "GitLab Token": (Severity.HIGH, "GitLab token committed"),
    "Google API Key": (Severity.HIGH, "Google API key committed"),
    "Google OAuth Secret": (Severity.HIGH, "Google OAuth client secret committed"),
    "Hugging Face Token": (Severity.HIGH, "Hugging Face token committed"),
    "Mailchimp Access Key": (Severity.HIGH, "Mailchimp key committed"),
    "NPM tokens": (Severity.HIGH, "npm token committed"),
    "OpenAI Token": (Severity.HIGH, "OpenAI API key committed"),
    "PyPI Token": (Severity.HIGH, "PyPI token committed"),
    "SendGrid API Key": (Severity.HIGH, "SendGrid API key committed"),
    "Shopify Token": (Severity.HIGH, "Shopify token committed"),
    "Slack Token": (Severity.HIGH, "Slack token or webhook committed"),
    "Square OAuth Secret": (Severity.HIGH, "Square OAuth secret committed"),
    "Stripe Access Key": (Severity.HIGH, "Stripe live key committed"),
    "Stripe Webhook Secret": (Severity.HIGH, "Stripe webhook secret committed"),
    "Telegram Bot Token": (Severity.HIGH, "Telegram bot token committed"),
    "Twilio API Key": (Severity.HIGH, "Twilio key committed"),
    BASIC_AUTH: (Severity.HIGH, "Password in an address committed"),
    KEYWORD: (Severity.HIGH, "Password or key committed in clear text"),
    WEB_TOKEN: (Severity.MEDIUM, "JSON web token committed"),
    ENTROPY: (Severity.MEDIUM, "Random value under the name of a credential committed"),
}
_WHY = (
    "Whoever can read the repository, a fork, a backup or a build log can use it. Deleting the line later does not "
    "help: the value stays in the history."
)
_WHY_KEY = (
    "With the private key anybody can pass for its owner and read what was meant for it. Deleting the file later does "
    "not help: the key stays in the history."
)
_FIX = (
    "revoke it where it was issued and make a new one, keep that in a secret store or the environment, and take the "
    "line out of the history before it is shared"
)

_Lines = list[tuple[int, str]]


class SecretsAnalyser:
    """Secrets on added lines, whatever the language. The issues never hold a value; `sensitive` of the report does.

    `program` is the Python interpreter of the child; None is the one that runs now.
    """

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    @property
    def name(self) -> str:
        """Its short name in reports."""
        return _NAME

    @property
    def needs_only_added_lines(self) -> Literal[True]:
        """A bare diff is enough."""
        return True

    def accepts(self, path: str) -> bool:
        """Every file may hold a secret."""
        return bool(path)

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Search the added lines.

        Raises AnalyserFailed when the child fails or its answer cannot be read, or a ProcessError.
        """
        lines, failed = _added_lines(target)
        if not any(lines.values()):
            return AnalyserReport((), failed)
        request = {
            "budget_seconds": max(target.timeout_seconds - _RESERVED_SECONDS, target.timeout_seconds / 2),
            "line_seconds": _LINE_SECONDS,
            "files": [{"file": file, "lines": rows} for file, rows in lines.items() if rows],
        }
        completed = await run(
            self._command(("-m", _WORKER), target.timeout_seconds, json.dumps(request).encode("ascii"))
        )
        return _report(_reply(completed), failed)

    async def version(self) -> str:
        """The version of detect-secrets that the child would use. Raises AnalyserFailed or a ProcessError."""
        completed = await run(self._command(("-c", _VERSION_SCRIPT), _VERSION_TIMEOUT_SECONDS))
        words = completed.stdout.decode("utf-8", "replace").split()
        if completed.exit_code != 0 or len(words) != 1:
            raise _failure("does not say its version", completed.stderr)
        return words[0]

    def _command(self, arguments: Sequence[str], timeout_seconds: float, stdin: bytes = b"") -> Command:
        program = self._program or sys.executable
        if not program:
            raise ProgramNotFound(
                "the Python interpreter that runs this program is not known",
                program="python",
                hint="start it by its path",
            )
        return Command(
            argv=(program, "-I", *arguments),
            cwd=Path(os.sep),
            environment=inherited_environment(),
            timeout_seconds=timeout_seconds,
            max_output_bytes=_MAX_OUTPUT_BYTES,
            stdin=stdin,
        )


def _added_lines(target: AnalysisTarget) -> tuple[dict[str, _Lines], dict[str, str]]:
    lines: dict[str, _Lines] = {}
    failed: dict[str, str] = {}
    for file in target.files:
        if file in target.added_text:
            known = target.added_text[file]
        elif not target.added_lines.get(file):
            continue
        else:
            try:
                known = dict(enumerate(read_regular_file(target.root / file).split(b"\n"), start=1))
            except OSError as error:
                failed[file] = f"cannot be read: {error.strerror}"
                continue
        numbers = sorted(target.added_lines.get(file, frozenset()))
        if any(number not in known for number in numbers):
            failed[file] = "has fewer lines than the change says; it was changed meanwhile"
        lines[file] = [
            (number, known[number].decode("utf-8", "replace").rstrip("\r"))
            for number in numbers
            if number in known and not (target.trusted and _is_allowed(known, number))
        ]
    return lines, failed


def _is_allowed(known: Mapping[int, bytes], number: int) -> bool:
    line = known[number].decode("utf-8", "replace")
    before = known.get(number - 1, b"").decode("utf-8", "replace")
    return _ALLOWED_LINE.search(line) is not None or _ALLOWED_NEXT_LINE.match(before) is not None


@dataclass(frozen=True, slots=True)
class _Hit:
    file: str
    line: int
    kind: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Reply:
    hits: tuple[_Hit, ...]
    failed: Mapping[str, str]


def _reply(completed: Completed) -> _Reply:
    if completed.exit_code != 0:
        raise _failure(f"ended with exit code {completed.exit_code}", completed.stderr)
    try:
        answer: Mapping[str, Any] = json.loads(completed.stdout)
        hits = tuple(_Hit(row["file"], int(row["line"]), row["kind"], tuple(row["values"])) for row in answer["hits"])
        failed = {file: f"line {line} took too long to search for secrets" for file, line in answer["slow"]}
        for file in answer["unfinished"]:
            failed[file] = "the time ran out before all its added lines were searched for secrets"
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _failure("wrote something that is not its JSON", completed.stderr) from error
    if unknown := {hit.kind for hit in hits} - {"", *_TITLES}:
        raise _failure(f"found kinds of secrets that are not known here: {', '.join(sorted(unknown))}", "")
    return _Reply(hits, failed)


def _failure(what: str, stderr: str) -> AnalyserFailed:
    lines = stderr.strip().splitlines()
    detail = f": {lines[-1][:300]}" if lines else ""
    return AnalyserFailed(f"{_NAME} {what}{detail}", analyser=_NAME, hint=f"pip install {_NAME}")


def _report(reply: _Reply, failed: Mapping[str, str]) -> AnalyserReport:
    by_line: dict[tuple[str, int], list[_Hit]] = defaultdict(list)
    sensitive: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for hit in reply.hits:
        by_line[hit.file, hit.line].append(hit)
        sensitive[hit.file][hit.line] = (*sensitive[hit.file].get(hit.line, ()), *hit.values)
    issues = (_issue(hits) for hits in by_line.values())
    return AnalyserReport(
        issues=tuple(issue for issue in issues if issue is not None),
        failed={**reply.failed, **failed},
        sensitive=dict(sensitive),
    )


def _issue(hits: Sequence[_Hit]) -> Issue | None:
    """One issue for a line, for the worst secret on it; None when nothing there is worth a word."""
    judged = [(severity, hit) for hit in hits if (severity := _severity(hit)) is not None]
    if not judged:
        return None
    severity, worst = min(judged, key=lambda pair: pair[0].priority)
    more = f" This line holds {len(judged)} secrets." if len(judged) > 1 else ""
    return Issue(
        file=worst.file,
        line_start=worst.line,
        line_end=worst.line,
        rule=worst.kind.lower().replace(" ", "-"),
        severity=severity,
        category="security",
        title=_TITLES[worst.kind][1],
        body=(_WHY_KEY if worst.kind == PRIVATE_KEY else _WHY) + more,
        suggestion=_FIX,
    )


def _severity(hit: _Hit) -> Severity | None:
    """How bad a hit is. In tests and prose only what looks made by a generator counts, unless its form is certain."""
    if not hit.kind:
        return None
    severity = _TITLES[hit.kind][0]
    random = any(looks_random(value) for value in hit.values)
    if hit.kind in (KEYWORD, BASIC_AUTH, ENTROPY, WEB_TOKEN) and (is_test_file(hit.file) or is_prose_file(hit.file)):
        return Severity.LOW if random else None
    if hit.kind == PRIVATE_KEY and is_test_file(hit.file):
        return Severity.MEDIUM
    if hit.kind in (KEYWORD, BASIC_AUTH) and not random:
        return Severity.MEDIUM
    return severity
