"""SARIF 2.1.0, which analysers print: its results as claimed findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from codeloupe.engine.parse.items import (
    MAX_EVIDENCE_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_PATH_CHARACTERS,
    Fields,
    UnreadableItem,
    answer_of,
    invalid_json,
    missing_field,
    shown,
    span,
    title_and_body,
)
from codeloupe.engine.parse.loose_json import flaw_of
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity

_LEVELS = {"error": Severity.HIGH, "warning": Severity.MEDIUM, "note": Severity.LOW, "none": Severity.LOW}
_NO_FAILURES = ("pass", "notApplicable", "informational")


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
    open_results: list[tuple[Any, str | None]] = []
    suppressed = 0
    for run in runs:
        levels = _default_levels(run)
        for result in _list(run.get("results")):
            fields = _object(result)
            suppressions = [_object(one) for one in _list(fields.get("suppressions"))]
            if fields.get("kind") in _NO_FAILURES:
                continue
            if suppressions and all(one.get("status", "accepted") == "accepted" for one in suppressions):
                suppressed += 1
            else:
                # Without the end of the run, a rule's own level may be missing.
                default = None if flaw_of(run) else "warning"
                open_results.append((result, levels.get(_rule(Fields(fields)), default)))
    answer = answer_of(open_results, problem=_problem(document, runs), read=lambda pair: _finding(*pair))
    return replace(answer, summary=f"{suppressed:,} suppressed results" if suppressed else "")


def _default_levels(run: Mapping[str, Any]) -> dict[str, str]:
    """The level of results that state none, by rule."""
    rules = [_object(rule) for rule in _list(_object(_object(run.get("tool")).get("driver")).get("rules"))]
    levels = {str(rule.get("id")): _object(rule.get("defaultConfiguration")).get("level") for rule in rules}
    return {rule: level for rule, level in levels.items() if isinstance(level, str)}


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


def _finding(result: Any, default_level: str | None) -> ClaimedFinding:
    parts = (result, *_object(result).values())
    if flaw := next((flaw for part in parts if (flaw := flaw_of(part))), ""):
        raise UnreadableItem(invalid_json(flaw))
    fields = Fields(_object(result))
    message = _object(fields.get("message"))
    title, body = title_and_body(Fields({"message": message.get("text") or message.get("markdown")}))
    level = fields.get("level") or default_level
    if level is None:
        raise UnreadableItem(missing_field("level"))
    if not isinstance(level, str) or level not in _LEVELS:
        raise UnreadableItem(f"invalid severity: {shown(level)}")
    physical = _object(_object(next(iter(_list(fields.get("locations"))), None)).get("physicalLocation"))
    region = _object(physical.get("region"))
    start, end = span({"start": region.get("startLine"), "end": region.get("endLine")})
    uri = _object(physical.get("artifactLocation")).get("uri")
    path = unquote(uri.removeprefix("file://"), errors="surrogateescape") if isinstance(uri, str) else None
    snippet = _object(region.get("snippet")).get("text")
    return ClaimedFinding(
        severity=_LEVELS[level],
        title=title,
        body=body,
        file=path if path and len(path) <= MAX_PATH_CHARACTERS else None,
        line_start=start,
        line_end=end,
        evidence=snippet[:MAX_EVIDENCE_CHARACTERS] if isinstance(snippet, str) else "",
        rule=_rule(fields) or None,
    )


def _rule(fields: Fields) -> str:
    return fields.text("rule_id", most=MAX_NAME_CHARACTERS)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
