"""The output formats of external reviewers. A reviewer declares its format; none is guessed.

Output that is empty, that is not in the declared format or that reports an error of the program is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never
from urllib.parse import unquote

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

_SARIF_LEVELS = {"error": "high", "warning": "medium", "note": "low", "none": "low"}
# Results of these kinds do not report a defect.
_SARIF_CLEAN_KINDS = ("pass", "notApplicable", "informational")
_SARIF_NOTIFICATIONS = ("toolExecutionNotifications", "toolConfigurationNotifications")
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
    except ValueError as error:
        return ReviewAnswer(problem=f"invalid json: {error}")
    match output_format:
        case "review-gate":
            return _read_gate_output(document)
        case "sarif":
            return _read_sarif(document, trusted=trusted)
        case "rdjson":
            return _read_rdjson(document)
        case _:
            assert_never(output_format)


def _document(text: str) -> Mapping[str, Any]:
    value = exact_value(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _read_list(items: Iterable[Any], read: Callable[[Any], RawClaim], problem: str) -> ReviewAnswer:
    """Return the claims of a list. An item that `read` refuses with ValueError makes the output incomplete."""
    claims: list[RawClaim] = []
    invalid: list[str] = []
    for number, item in enumerate(items, start=1):
        if number > MAX_ITEMS:
            invalid.append(f"more than {MAX_ITEMS:,} findings")
            break
        try:
            claims.append(read(item))
        except ValueError as error:
            invalid.append(f"{error} (finding {number:,})")
    if not problem and invalid:
        problem = invalid[0]
    return ReviewAnswer(claims=tuple(claims), problem=problem, invalid=tuple(invalid))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# The document of the review-gate.


def read_gate_document(document: Mapping[str, Any]) -> ReviewAnswer:
    """Return the claims of a document of the review-gate. Its `parse_errors` are left to the caller."""
    listed = document.get("aggregated_findings")
    if not isinstance(listed, list):
        return ReviewAnswer(problem="missing field: aggregated_findings")
    return _read_list(listed, _read_gate_item, "")


def gate_parse_errors(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the review-gate says about reviewers whose answers it could not use."""
    errors: list[str] = []
    for item in _list(document.get("parse_errors")):
        if isinstance(item, dict):
            parts = [str(item[key]) for key in ("reviewer", "error", "details") if item.get(key)]
            errors.append(": ".join(parts))
        else:
            errors.append(str(item))
    return tuple(errors)


def _read_gate_item(item: Any) -> RawClaim:
    claim = read_item(item)
    return replace(claim, reporter=_text(item.get("reviewer")).strip())


def _read_gate_output(document: Mapping[str, Any]) -> ReviewAnswer:
    answer = read_gate_document(document)
    if answer.problem:
        return answer
    try:
        verdict = _gate_verdict(document, answer.claims)
    except ValueError as error:
        return replace(answer, problem=str(error))
    return replace(answer, verdict=verdict)


def _gate_verdict(document: Mapping[str, Any], claims: Iterable[RawClaim]) -> Verdict:
    """Return the verdict of a document. Raise ValueError if it has none, or one that its findings do not explain."""
    stated = document.get("consensus_verdict")
    if stated is None:
        raise ValueError("missing field: consensus_verdict")
    if stated not in ("PASS", "NEEDS_WORK", "FAIL"):
        raise ValueError(f"invalid verdict: {shown(stated)}")
    if document.get("status") in ("timeout", "error", "no_reviewers"):
        raise ValueError(f"its status is {shown(document['status'])}")
    errors = gate_parse_errors(document)
    if errors:
        raise ValueError(f"it could not read what its reviewers said: {shown(errors[0])}")
    verdict = Verdict(stated)
    given = verdict_of(claims)
    if is_worse(verdict, given):
        raise ValueError(f"invalid verdict: {verdict.value}, but the findings give {given.value}")
    return verdict


# SARIF 2.1.0.


def _read_sarif(document: Mapping[str, Any], *, trusted: bool) -> ReviewAnswer:
    """Return the results of all runs that report a defect and are neither suppressed nor gone."""
    problem = ""
    results: list[tuple[Any, str]] = []
    runs = document.get("runs")
    if not isinstance(runs, list) or not runs:
        return ReviewAnswer(problem="missing field: runs")
    for run in runs:
        if not problem:
            problem = _sarif_problem(_object(run))
        levels = _sarif_levels(_object(run))
        for result in _list(_object(run).get("results")):
            if _reports_defect(_object(result), trusted=trusted):
                rule = _sarif_rule(_object(result))
                results.append((result, levels.get(rule, "warning")))
    return _read_list(results, _read_sarif_result, problem)


def _sarif_problem(run: Mapping[str, Any]) -> str:
    """Return the failure that a run reports, or an empty text."""
    if not isinstance(run.get("results"), list):
        return "missing field: results"
    for invocation in _list(run.get("invocations")):
        if _object(invocation).get("executionSuccessful") is False:
            return "the tool says that it failed"
        for kind in _SARIF_NOTIFICATIONS:
            for notification in _list(_object(invocation).get(kind)):
                if _object(notification).get("level") == "error":
                    message = _object(_object(notification).get("message"))
                    return f"the tool reports an error: {shown(_text(message.get('text')))}"
    return ""


def _sarif_levels(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the default level of each rule of a run that has one."""
    levels: dict[str, str] = {}
    driver = _object(_object(run.get("tool")).get("driver"))
    for rule in _list(driver.get("rules")):
        name = _text(_object(rule).get("id"))
        level = _text(_object(_object(rule).get("defaultConfiguration")).get("level"))
        if name and level:
            levels[name] = level
    return levels


def _sarif_rule(result: Mapping[str, Any]) -> str:
    return _text(result.get("ruleId")) or _text(_object(result.get("rule")).get("id"))


def _reports_defect(result: Mapping[str, Any], *, trusted: bool) -> bool:
    if result.get("kind") in _SARIF_CLEAN_KINDS or result.get("baselineState") == "absent":
        return False
    suppressions = _list(result.get("suppressions"))
    statuses = [_object(suppression).get("status", "accepted") for suppression in suppressions]
    is_suppressed = bool(statuses) and all(status == "accepted" for status in statuses)
    return not (is_suppressed and trusted)


def _read_sarif_result(pair: tuple[Any, str]) -> RawClaim:
    value, default_level = pair
    result = _object(value)
    level = result.get("level") or default_level
    if not isinstance(level, str) or level not in _SARIF_LEVELS:
        raise ValueError(f"invalid severity: {shown(level)}")
    message = _object(result.get("message"))
    location: Mapping[str, Any] = {}
    locations = _list(result.get("locations"))
    if locations:
        location = _object(_object(locations[0]).get("physicalLocation"))
    region = _object(location.get("region"))
    uri = _text(_object(location.get("artifactLocation")).get("uri"))
    claim = read_item(
        {
            "body": _text(message.get("text")) or _text(message.get("markdown")),
            "severity": _SARIF_LEVELS[level],
            "file": unquote(uri.removeprefix("file://"), errors="surrogateescape"),
            "line_start": region.get("startLine"),
            "line_end": region.get("endLine"),
            "quote": _text(_object(region.get("snippet")).get("text")),
        }
    )
    return replace(claim, rule=_sarif_rule(result) or None)


# Reviewdog's diagnostic format.


def _read_rdjson(document: Mapping[str, Any]) -> ReviewAnswer:
    listed = document.get("diagnostics")
    if not isinstance(listed, list):
        return ReviewAnswer(problem="missing field: diagnostics")
    default_severity = document.get("severity")

    def read(item: Any) -> RawClaim:
        return _read_diagnostic(item, default_severity)

    return _read_list(listed, read, "")


def _read_rdjsonl(text: str) -> ReviewAnswer:
    if is_no_issues(text):
        return ReviewAnswer()
    lines = [line for line in text.splitlines() if line.strip()]
    return _read_list(lines, _read_diagnostic_line, "")


def _read_diagnostic_line(line: str) -> RawClaim:
    try:
        item = parsed(line)
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error
    return _read_diagnostic(item, None)


def _read_diagnostic(item: Any, default_severity: Any) -> RawClaim:
    diagnostic = _object(item)
    stated = diagnostic.get("severity") or default_severity or "UNKNOWN_SEVERITY"
    severity = _RDJSON_SEVERITIES.get(str(stated).upper())
    if severity is None:
        raise ValueError(f"invalid severity: {shown(stated)}")
    location = _object(diagnostic.get("location"))
    lines = _object(location.get("range"))
    claim = read_item(
        {
            "body": _text(diagnostic.get("message")),
            "severity": severity,
            "file": _text(location.get("path")),
            "line_start": _object(lines.get("start")).get("line"),
            "line_end": _object(lines.get("end")).get("line"),
        }
    )
    return replace(claim, rule=_text(_object(diagnostic.get("code")).get("value")) or None)


# Lines, as compilers and linters print them.


def _read_lines(text: str) -> ReviewAnswer:
    """Return the claims of `path:line[:col]: severity: message` lines. Any other line makes the output incomplete."""
    if is_no_issues(text):
        return ReviewAnswer()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _read_list(lines, _read_line, "")


def _read_line(line: str) -> RawClaim:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not `path:line: severity: message`: {shown(line)}")
    path, number, word, message = found.groups()
    severity = word
    if word.lower() == "note":
        severity = Severity.LOW.label
    return read_item({"file": path, "line": number, "severity": severity, "body": message})
