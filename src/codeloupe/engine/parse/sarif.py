"""SARIF 2.1.0, which analysers print: its results as claimed findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from codeloupe.engine.parse.fields import Fields
from codeloupe.engine.parse.finding_item import UnreadableItem, findings_of, first_reason, title_and_body
from codeloupe.engine.parse.flaws import flaw_of
from codeloupe.engine.parse.places import span
from codeloupe.engine.parse.reasons import invalid_json, missing_field, shown
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity

_LEVELS = {"error": Severity.HIGH, "warning": Severity.MEDIUM, "note": Severity.LOW, "none": Severity.LOW}
_DEFAULT_LEVEL = "warning"
_NO_FAILURES = ("pass", "notApplicable", "informational")
_MAX_NAME_CHARACTERS = 200
_MAX_PATH_CHARACTERS = 4096
_MAX_SNIPPET_CHARACTERS = 10_000


def looks_like_sarif(value: Mapping[str, Any]) -> bool:
    """Whether an object is a SARIF document."""
    runs = value.get("runs")
    if not isinstance(runs, list):
        return False
    return "$schema" in value or "version" in value or any("tool" in _object(run) for run in runs)


def read_sarif(document: Mapping[str, Any]) -> ReviewAnswer:
    """The results of all runs that say something is wrong. The summary counts those that are suppressed.

    A run without results, and one that says it failed, is a problem.
    """
    runs = [_object(run) for run in document["runs"]]
    results = [(result, rules) for run in runs for rules in [_Rules(run)] for result in _failures(run)]
    open_results = [(result, rules) for result, rules in results if not _is_suppressed(result)]
    suppressed = len(results) - len(open_results)
    found, dropped = findings_of(open_results, lambda pair: _finding(*pair))
    problem = _problem(document, runs) or (None if found else first_reason(dropped))
    summary = f"{suppressed:,} suppressed results" if suppressed else ""
    return ReviewAnswer(findings=tuple(found), dropped=tuple(dropped), problem=problem, summary=summary)


def _problem(document: Mapping[str, Any], runs: list[Mapping[str, Any]]) -> str | None:
    if flaw := flaw_of(document) or flaw_of(document["runs"]):
        return invalid_json(flaw)
    if not runs:
        return missing_field("runs")
    for run in runs:
        if flaw := flaw_of(run) or flaw_of(run.get("results")):
            return invalid_json(flaw)
        if not isinstance(run.get("results"), list):
            return missing_field("results")
        if any(_object(call).get("executionSuccessful") is False for call in _list(run.get("invocations"))):
            return "the tool says that it failed"
    return None


def _failures(run: Mapping[str, Any]) -> Iterator[Any]:
    for result in _list(run.get("results")):
        if _object(result).get("kind") not in _NO_FAILURES:
            yield result


def _is_suppressed(result: Any) -> bool:
    suppressions = _list(_object(result).get("suppressions"))
    return bool(suppressions) and all(_object(one).get("status", "accepted") == "accepted" for one in suppressions)


class _Rules:
    """The rules of a run by name. `is_whole` is off when some may have been cut off."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        listed = _list(_object(_object(run.get("tool")).get("driver")).get("rules"))
        self._by_name = {str(rule.get("id")): rule for rule in map(_object, listed)}
        self._is_whole = not flaw_of(run)

    def level(self, rule: str) -> str | None:
        """The level of results that state none."""
        configured = _object(self._by_name.get(rule, {}).get("defaultConfiguration")).get("level")
        if isinstance(configured, str):
            return configured
        return _DEFAULT_LEVEL if self._is_whole else None


def _finding(result: Any, rules: _Rules) -> ClaimedFinding:
    if flaw := next((flaw for part in _parts(result) if (flaw := flaw_of(part))), ""):
        raise UnreadableItem(invalid_json(flaw))
    fields = Fields(_object(result))
    message = _object(fields.get("message"))
    title, body = title_and_body(Fields({"message": message.get("text") or message.get("markdown")}))
    rule = fields.text("rule_id", most=_MAX_NAME_CHARACTERS)
    physical = _object(_object(next(iter(_list(fields.get("locations"))), None)).get("physicalLocation"))
    region = _object(physical.get("region"))
    start, end = span({"start": region.get("startLine"), "end": region.get("endLine")})
    return ClaimedFinding(
        severity=_severity(fields.get("level") or rules.level(rule)),
        title=title,
        body=body,
        file=_path(_object(physical.get("artifactLocation")).get("uri")),
        line_start=start,
        line_end=end,
        evidence=_snippet(region),
        rule=rule or None,
    )


def _parts(result: Any) -> Iterator[Any]:
    yield result
    if isinstance(result, Mapping):
        yield from result.values()


def _severity(level: Any) -> Severity:
    if level is None:
        raise UnreadableItem(missing_field("level"))
    severity = _LEVELS.get(level) if isinstance(level, str) else None
    if severity is None:
        raise UnreadableItem(f"invalid severity: {shown(level)}")
    return severity


def _path(uri: Any) -> str | None:
    if not isinstance(uri, str) or not 0 < len(uri) <= _MAX_PATH_CHARACTERS:
        return None
    return unquote(uri.removeprefix("file://"), errors="surrogateescape")


def _snippet(region: Mapping[str, Any]) -> str:
    text = _object(region.get("snippet")).get("text")
    return text[:_MAX_SNIPPET_CHARACTERS] if isinstance(text, str) else ""


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
