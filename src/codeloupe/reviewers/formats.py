"""The output formats of external reviewers. A reviewer declares its format; none is guessed.

Output that is empty, that is not in the declared format or that reports an error of the program is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, assert_never
from urllib.parse import unquote

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from codeloupe.config.schema import ReviewFormat
from codeloupe.model.finding import Severity
from codeloupe.model.review import Verdict
from codeloupe.reviewers.answers import (
    EMPTY_OUTPUT,
    MAX_ITEMS,
    RawClaim,
    ReviewAnswer,
    is_no_issues,
    is_worse,
    read_item,
    read_review,
    shown,
    verdict_of,
)
from codeloupe.system.json_values import exact_value, parsed
from codeloupe.system.regex import regex

_Kind = TypeVar("_Kind")
_Item = TypeVar("_Item")
_SARIF_LEVELS = {"error": "high", "warning": "medium", "note": "low", "none": "low"}
# Results of these kinds do not report a defect.
_SARIF_CLEAN_KINDS = ("pass", "notApplicable", "informational")
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
        document = _document(text)
        match output_format:
            case "review-gate":
                return _read_gate_output(document)
            case "sarif":
                return _read_sarif(document, trusted=trusted)
            case "rdjson":
                return _read_rdjson(document)
            case _:
                assert_never(output_format)
    except ValueError as error:
        return ReviewAnswer(problem=str(error))


def _document(text: str) -> Any:
    try:
        return _without_nulls(exact_value(text))
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error


def _without_nulls(value: Any) -> Any:
    """Remove each key without a value: programs write null for a part that they do not have."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _parts(value: Any, kind: type[_Kind]) -> _Kind:
    """Return the parts of a value that we read. Raise ValueError if one of them has another type."""
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise ValueError(f"invalid json: {error}") from error


def _read_list(items: Iterable[_Item], read: Callable[[_Item], RawClaim | None], problem: str = "") -> ReviewAnswer:
    """Return the claims of a list. An item that `read` refuses with ValueError makes the output incomplete."""
    claims: list[RawClaim] = []
    invalid: list[str] = []
    for number, item in enumerate(items, start=1):
        if len(claims) + len(invalid) == MAX_ITEMS:
            invalid.append(f"more than {MAX_ITEMS:,} findings")
            break
        try:
            claim = read(item)
        except ValueError as error:
            invalid.append(f"{error} (finding {number:,})")
            continue
        if claim is not None:
            claims.append(claim)
    if not problem and invalid:
        problem = invalid[0]
    return ReviewAnswer(claims=tuple(claims), problem=problem, invalid=tuple(invalid))


# The document of the review-gate.


class GateDocument(Struct, frozen=True):
    """The parts of a document that we read. The items of both lists are read one by one."""

    status: str = ""
    consensus_verdict: str = ""
    aggregated_findings: list[Any] | None = None
    parse_errors: tuple[Any, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Tell whether the status says that there is no verdict."""
        return self.status in ("timeout", "error", "no_reviewers")


def gate_document(text: str) -> GateDocument:
    """Return the document that the review-gate printed. Raise ValueError if it is not one."""
    return _parts(_document(text), GateDocument)


def read_gate_document(document: GateDocument) -> ReviewAnswer:
    """Return the claims of a document of the review-gate. Its `parse_errors` are left to the caller."""
    if document.aggregated_findings is None:
        return ReviewAnswer(problem="missing field: aggregated_findings")
    return _read_list(document.aggregated_findings, _read_gate_item)


def gate_parse_errors(document: GateDocument) -> tuple[str, ...]:
    """Return what the review-gate says about reviewers whose answers it could not use."""
    errors: list[str] = []
    for item in document.parse_errors:
        if isinstance(item, dict):
            parts = [str(item[key]) for key in ("reviewer", "error", "details") if item.get(key)]
            errors.append(": ".join(parts))
        else:
            errors.append(str(item))
    return tuple(errors)


def _read_gate_item(item: Any) -> RawClaim:
    claim = read_item(item)
    reporter = str(item.get("reviewer", ""))
    return replace(claim, reporter=reporter.strip())


def _read_gate_output(value: Any) -> ReviewAnswer:
    document = _parts(value, GateDocument)
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
    if document.has_failed:
        raise ValueError(f"its status is {document.status}")
    errors = gate_parse_errors(document)
    if errors:
        raise ValueError(f"it could not read what its reviewers said: {shown(errors[0])}")
    verdict = Verdict(stated)
    given = verdict_of(claims)
    if is_worse(verdict, given):
        raise ValueError(f"invalid verdict: {verdict.value}, but the findings give {given.value}")
    return verdict


# SARIF 2.1.0: the parts that we read.


class _Message(Struct, frozen=True):
    text: str = ""
    markdown: str = ""


class _Configuration(Struct, frozen=True):
    level: str = ""


class _Rule(Struct, frozen=True, rename="camel"):
    id: str = ""
    default_configuration: _Configuration = _Configuration()


class _Driver(Struct, frozen=True):
    rules: tuple[_Rule, ...] = ()


class _Tool(Struct, frozen=True):
    driver: _Driver = _Driver()


class _Notification(Struct, frozen=True):
    level: str = ""
    message: _Message = _Message()


class _Invocation(Struct, frozen=True, rename="camel"):
    execution_successful: bool = True
    tool_execution_notifications: tuple[_Notification, ...] = ()
    tool_configuration_notifications: tuple[_Notification, ...] = ()


class _SarifRun(Struct, frozen=True):
    tool: _Tool = _Tool()
    invocations: tuple[_Invocation, ...] = ()
    # Each is read as a `_SarifResult` of its own, so that one invalid result does not hide the others.
    results: list[Any] | None = None


class _SarifLog(Struct, frozen=True):
    runs: tuple[_SarifRun, ...] = ()


class _Snippet(Struct, frozen=True):
    text: str = ""


class _Region(Struct, frozen=True, rename="camel"):
    start_line: int | None = None
    end_line: int | None = None
    snippet: _Snippet = _Snippet()


class _ArtifactLocation(Struct, frozen=True):
    uri: str = ""


class _PhysicalLocation(Struct, frozen=True, rename="camel"):
    artifact_location: _ArtifactLocation = _ArtifactLocation()
    region: _Region = _Region()


class _Location(Struct, frozen=True, rename="camel"):
    physical_location: _PhysicalLocation = _PhysicalLocation()


class _Suppression(Struct, frozen=True):
    status: str = "accepted"


class _SarifResult(Struct, frozen=True, rename="camel"):
    rule_id: str = ""
    rule: _Rule = _Rule()
    level: str = ""
    kind: str = ""
    baseline_state: str = ""
    message: _Message = _Message()
    locations: tuple[_Location, ...] = ()
    suppressions: tuple[_Suppression, ...] = ()


def _read_sarif(document: Any, *, trusted: bool) -> ReviewAnswer:
    """Return the results of all runs that report a defect and are neither suppressed nor gone."""
    log = _parts(document, _SarifLog)
    if not log.runs:
        raise ValueError("missing field: runs")
    problem = ""
    results: list[tuple[Any, Mapping[str, str]]] = []
    for run in log.runs:
        problem = problem or _sarif_problem(run)
        levels = {rule.id: rule.default_configuration.level for rule in run.tool.driver.rules}
        results.extend((result, levels) for result in run.results or ())

    def read(result_and_levels: tuple[Any, Mapping[str, str]]) -> RawClaim | None:
        value, levels = result_and_levels
        result = _parts(value, _SarifResult)
        if not _reports_defect(result, trusted=trusted):
            return None
        return _claim_of_result(result, levels)

    return _read_list(results, read, problem)


def _sarif_problem(run: _SarifRun) -> str:
    """Return the failure that a run reports, or an empty text."""
    if run.results is None:
        return "missing field: results"
    for invocation in run.invocations:
        if not invocation.execution_successful:
            return "the tool says that it failed"
        notifications = (*invocation.tool_execution_notifications, *invocation.tool_configuration_notifications)
        for notification in notifications:
            if notification.level == "error":
                return f"the tool reports an error: {shown(notification.message.text)}"
    return ""


def _reports_defect(result: _SarifResult, *, trusted: bool) -> bool:
    if result.kind in _SARIF_CLEAN_KINDS or result.baseline_state == "absent":
        return False
    if not trusted or not result.suppressions:
        return True
    return any(suppression.status != "accepted" for suppression in result.suppressions)


def _claim_of_result(result: _SarifResult, levels: Mapping[str, str]) -> RawClaim:
    """Return the claim of a result; `levels` are the default levels of rules. Raise ValueError if it is invalid."""
    rule = result.rule_id or result.rule.id
    level = result.level or levels.get(rule) or "warning"
    if level not in _SARIF_LEVELS:
        raise ValueError(f"invalid severity: {shown(level)}")
    location = _PhysicalLocation()
    if result.locations:
        location = result.locations[0].physical_location
    uri = location.artifact_location.uri
    claim = read_item(
        {
            "body": result.message.text or result.message.markdown,
            "severity": _SARIF_LEVELS[level],
            "file": unquote(uri.removeprefix("file://"), errors="surrogateescape"),
            "line_start": location.region.start_line,
            "line_end": location.region.end_line,
            "quote": location.region.snippet.text,
        }
    )
    return replace(claim, rule=rule or None)


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


class _DiagnosticResult(Struct, frozen=True):
    severity: str | int = ""
    # Each is read as a `_ReviewdogDiagnostic` of its own.
    diagnostics: list[Any] | None = None


def _read_rdjson(document: Any) -> ReviewAnswer:
    result = _parts(document, _DiagnosticResult)
    if result.diagnostics is None:
        raise ValueError("missing field: diagnostics")

    def read(item: Any) -> RawClaim:
        return _read_diagnostic(item, result.severity)

    return _read_list(result.diagnostics, read)


def _read_rdjsonl(text: str) -> ReviewAnswer:
    if is_no_issues(text):
        return ReviewAnswer()
    lines = [line for line in text.splitlines() if line.strip()]
    return _read_list(lines, _read_diagnostic_line)


def _read_diagnostic_line(line: str) -> RawClaim:
    try:
        item = _without_nulls(parsed(line))
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error
    return _read_diagnostic(item, "")


def _read_diagnostic(item: Any, default_severity: str | int) -> RawClaim:
    diagnostic = _parts(item, _ReviewdogDiagnostic)
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
    return _read_list(lines, _read_line)


def _read_line(line: str) -> RawClaim:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not `path:line: severity: message`: {shown(line)}")
    path, number, word, message = found.groups()
    severity = word
    if word.lower() == "note":
        severity = Severity.LOW.label
    return read_item({"file": path, "line": number, "severity": severity, "body": message})
