"""SARIF 2.1.0, as an external reviewer prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.reviewers.answers import RawClaim, ReviewAnswer, read_item, shown
from codeloupe.reviewers.documents import read_list, read_parts

_SEVERITIES = {"error": "high", "warning": "medium", "note": "low", "none": "low"}
# Results of these kinds do not report a defect.
_CLEAN_KINDS = ("pass", "notApplicable", "informational")


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


def read_sarif(document: Any, *, trusted: bool) -> ReviewAnswer:
    """Return the results of all runs that report a defect and are neither suppressed nor gone."""
    log = read_parts(document, _SarifLog)
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
        result = read_parts(value, _SarifResult)
        if not _reports_defect(result, trusted=trusted):
            return None
        return _claim_of_result(result, levels)

    return read_list(results, read, problem)


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
    if result.kind in _CLEAN_KINDS or result.baseline_state == "absent":
        return False
    if not trusted or not result.suppressions:
        return True
    return any(suppression.status != "accepted" for suppression in result.suppressions)


def _claim_of_result(result: _SarifResult, levels: Mapping[str, str]) -> RawClaim:
    """Return the claim of a result; `levels` are the default levels of rules. Raise ValueError if it is invalid."""
    rule = result.rule_id or result.rule.id
    level = result.level or levels.get(rule) or "warning"
    if level not in _SEVERITIES:
        raise ValueError(f"invalid severity: {shown(level)}")
    location = _PhysicalLocation()
    if result.locations:
        location = result.locations[0].physical_location
    uri = location.artifact_location.uri
    claim = read_item(
        {
            "body": result.message.text or result.message.markdown,
            "severity": _SEVERITIES[level],
            "file": unquote(uri.removeprefix("file://"), errors="surrogateescape"),
            "line_start": location.region.start_line,
            "line_end": location.region.end_line,
            "quote": location.region.snippet.text,
        }
    )
    return replace(claim, rule=rule or None)
