"""The output formats of external reviewers. A reviewer declares its format; none is guessed.

Output that is empty, that is not in the declared format or that reports an error of the program is not exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import ReviewFormat
from codeloupe.model.finding import Severity
from codeloupe.model.review import Verdict
from codeloupe.reviewers.answers import (
    EMPTY_OUTPUT,
    RawClaim,
    ReviewAnswer,
    is_no_issues,
    is_worse,
    read_item,
    read_list,
    read_review,
    shown,
    verdict_of,
)
from codeloupe.reviewers.sarif import read_sarif
from codeloupe.system.json_values import parse_document, parsed, read_parts, without_nulls
from codeloupe.system.regex import regex

# The number of a severity in rdjson is accepted, too. A diagnostic without a severity counts as a warning.
_RDJSON_SEVERITIES = {
    "ERROR": "high",
    "WARNING": "medium",
    "INFO": "low",
    "UNKNOWN_SEVERITY": "medium",
    "0": "medium",
    "1": "high",
    "2": "medium",
    "3": "low",
}
_LINE = regex(r"([^:]+):(\d{1,8})(?::\d{1,8})?: *([A-Za-z0-9]+): *(\S.*)")


def read_output(text: str, output_format: ReviewFormat, *, trusted: bool = True) -> ReviewAnswer:
    """Return the claims of an external reviewer's output, and why it is not a complete review. Never raise.

    In an untrusted change suppressions are ignored: its author may have written them.
    """
    if not text.strip():
        return ReviewAnswer(problem=EMPTY_OUTPUT)
    if output_format == "findings":
        return read_review(text)
    if output_format == "lines":
        return _read_lines(text)
    if output_format == "rdjsonl":
        return _read_rdjsonl(text)
    try:
        document = parse_document(text)
        match output_format:
            case "review-gate":
                return _read_gate_output(document)
            case "sarif":
                return read_sarif(document, trusted=trusted)
            case "rdjson":
                return _read_rdjson(document)
            case _:
                assert_never(output_format)
    except ValueError as error:
        return ReviewAnswer(problem=str(error))


# The document of the review-gate.


class GateDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """The document that `review-gate wait --json` prints. The items of both lists are read one by one."""

    status: str = "complete"
    consensus_verdict: str = ""
    reviewers: dict[str, Any] = {}
    aggregated_findings: list[Any] | None = None
    parse_errors: tuple[Any, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Tell whether the status is one with a verdict."""
        return self.status in ("complete", "resolved")


def gate_document(text: str) -> GateDocument:
    """Return the document that the review-gate printed. Raise ValueError if it is not one."""
    return read_parts(parse_document(text), GateDocument)


def read_gate_document(document: GateDocument) -> ReviewAnswer:
    """Return the claims of a document of the review-gate. Its `parse_errors` are left to the caller."""
    if document.aggregated_findings is None:
        return ReviewAnswer(problem="missing field: aggregated_findings")
    return read_list(document.aggregated_findings, _read_gate_item)


def gate_parse_errors(document: GateDocument) -> tuple[str, ...]:
    """Return what the review-gate says about each reviewer that failed."""
    errors: list[str] = []
    for item in document.parse_errors:
        words = ""
        if isinstance(item, str):
            words = item
        elif isinstance(item, dict):
            words = ": ".join(str(item[key]) for key in ("reviewer", "error", "details") if item.get(key))
        errors.append(words or repr(item))
    return tuple(errors)


def _read_gate_item(item: Any) -> RawClaim:
    claim = read_item(item)
    reporter = str(item.get("reviewer", ""))
    return replace(claim, reporter=reporter.strip())


def _read_gate_output(value: Any) -> ReviewAnswer:
    document = read_parts(value, GateDocument)
    answer = read_gate_document(document)
    if answer.problem:
        return answer
    try:
        verdict = _gate_verdict(document, answer.claims)
    except ValueError as error:
        return replace(answer, problem=str(error))
    return replace(answer, verdict=verdict)


def _gate_verdict(document: GateDocument, claims: Iterable[RawClaim]) -> Verdict:
    """Return the verdict of a document. Raise ValueError if it has none, or one that its findings do not explain."""
    stated = document.consensus_verdict
    if not stated:
        raise ValueError("missing field: consensus_verdict")
    if stated not in ("PASS", "NEEDS_WORK", "FAIL"):
        raise ValueError(f"invalid verdict: {shown(stated)}")
    if not document.has_ended:
        raise ValueError(f"its status is {shown(document.status)}")
    errors = gate_parse_errors(document)
    if errors:
        raise ValueError(f"one of its reviewers failed: {shown(errors[0])}")
    verdict = Verdict(stated)
    given = verdict_of(claims)
    if is_worse(verdict, given):
        raise ValueError(f"invalid verdict: {verdict.value}, but the findings give {given.value}")
    return verdict


# Reviewdog's diagnostic format: the parts that we read.


class _Position(Struct, frozen=True):
    line: int | None = None


class _Range(Struct, frozen=True):
    start: _Position = _Position()
    end: _Position = _Position()


class _DiagnosticLocation(Struct, frozen=True):
    path: str = ""
    range: _Range = _Range()


class _DiagnosticCode(Struct, frozen=True):
    value: str = ""


class _ReviewdogDiagnostic(Struct, frozen=True):
    message: str = ""
    location: _DiagnosticLocation = _DiagnosticLocation()
    severity: str | int = ""
    code: _DiagnosticCode = _DiagnosticCode()


class _DiagnosticResult(Struct, frozen=True, forbid_unknown_fields=True):
    source: dict[str, Any] = {}
    severity: str | int = ""
    # Each is read as a `_ReviewdogDiagnostic` of its own.
    diagnostics: list[Any] | None = None


def _read_rdjson(document: Any) -> ReviewAnswer:
    result = read_parts(document, _DiagnosticResult)
    if result.diagnostics is None:
        raise ValueError("missing field: diagnostics")

    def read(item: Any) -> RawClaim:
        return _read_diagnostic(item, result.severity)

    return read_list(result.diagnostics, read)


def _read_rdjsonl(text: str) -> ReviewAnswer:
    if is_no_issues(text):
        return ReviewAnswer()
    lines = [line for line in text.splitlines() if line.strip()]
    return read_list(lines, _read_diagnostic_line)


def _read_diagnostic_line(line: str) -> RawClaim:
    try:
        item = without_nulls(parsed(line))
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error
    return _read_diagnostic(item, "")


def _read_diagnostic(item: Any, default_severity: str | int) -> RawClaim:
    diagnostic = read_parts(item, _ReviewdogDiagnostic)
    stated = diagnostic.severity or default_severity or "UNKNOWN_SEVERITY"
    severity = _RDJSON_SEVERITIES.get(str(stated).upper())
    if severity is None:
        raise ValueError(f"invalid severity: {shown(stated)}")
    claim = read_item(
        {
            "body": diagnostic.message,
            "severity": severity,
            "file": diagnostic.location.path,
            "line_start": diagnostic.location.range.start.line,
            "line_end": diagnostic.location.range.end.line,
        }
    )
    return replace(claim, rule=diagnostic.code.value or None)


# Lines, as compilers and linters print them.


def _read_lines(text: str) -> ReviewAnswer:
    """Return the claims of `path:line[:col]: severity: message` lines. Any other line makes the output incomplete."""
    if is_no_issues(text):
        return ReviewAnswer()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return read_list(lines, _read_line)


def _read_line(line: str) -> RawClaim:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not `path:line: severity: message`: {shown(line)}")
    path, number, word, message = found.groups()
    severity = word
    if word.lower() == "note":
        severity = Severity.LOW.label
    return read_item({"file": path, "line": number, "severity": severity, "body": message})
