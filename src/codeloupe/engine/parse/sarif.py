"""SARIF 2.1.0, which analysers print: its results as claimed findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from codeloupe.engine.parse import items
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer
from codeloupe.system.json_text import flaw_of

_LEVELS = {"error": "high", "warning": "medium", "note": "low", "none": "low"}


def looks_like_sarif(value: Mapping[str, Any]) -> bool:
    """Whether an object is a SARIF document."""
    runs = value.get("runs")
    is_named = "$schema" in value or "version" in value
    return isinstance(runs, list) and (is_named or any("tool" in _object(run) for run in runs))


def read_sarif(document: Mapping[str, Any]) -> ReviewAnswer:
    """The results of all runs that say something is wrong. The summary counts those that are suppressed."""
    results: list[tuple[Any, Any]] = []
    suppressed = 0
    for run in map(_object, document["runs"]):
        rules = map(_object, _list(_object(_object(run.get("tool")).get("driver")), "rules"))
        levels = {str(rule.get("id")): _object(rule.get("defaultConfiguration")).get("level") for rule in rules}
        for result in _list(run, "results"):
            suppressions = [_object(one) for one in _list(_object(result), "suppressions")]
            if _object(result).get("kind") in ("pass", "notApplicable", "informational"):
                continue
            if suppressions and all(one.get("status", "accepted") == "accepted" for one in suppressions):
                suppressed += 1
                continue
            level = levels.get(items.Fields(_object(result)).text("rule_id"))
            # Without the end of the run, a rule's own level may be missing.
            results.append((result, level if isinstance(level, str) else None if flaw_of(run) else "warning"))
    answer = items.answer_of(results, problem=_problem(document), read=lambda pair: _finding(*pair))
    return replace(answer, summary=f"{suppressed:,} suppressed results" if suppressed else "")


def _problem(document: Mapping[str, Any]) -> str | None:
    flaw = flaw_of(document, document["runs"])
    if not flaw and not document["runs"]:
        return "missing field: runs"
    for run in map(_object, document["runs"] if not flaw else ()):
        if flaw := flaw_of(run, run.get("results")):
            break
        if not isinstance(run.get("results"), list):
            return "missing field: results"
        if any(_object(call).get("executionSuccessful") is False for call in _list(run, "invocations")):
            return "the tool says that it failed"
    return f"invalid json: {flaw}" if flaw else None


def _finding(result: Any, default_level: str | None) -> ClaimedFinding:
    whole = _object(result)
    if flaw := flaw_of(result, *whole.values()):
        raise items.UnreadableItem(f"invalid json: {flaw}")
    message, fields = _object(whole.get("message")), items.Fields(whole)
    level = fields.get("level") or default_level
    said = message.get("text") or message.get("markdown")
    if isinstance(said, str) and level is None:
        raise items.UnreadableItem("missing field: level")
    physical = _object(_object(next(iter(_list(whole, "locations")), None)).get("physicalLocation"))
    region, uri = _object(physical.get("region")), _object(physical.get("artifactLocation")).get("uri")
    return items.finding_of(
        {
            "message": said,
            "severity": _LEVELS.get(level, level) if isinstance(level, str) else level,
            "file": unquote(uri.removeprefix("file://"), errors="surrogateescape") if isinstance(uri, str) else None,
            "line_start": region.get("startLine"),
            "line_end": region.get("endLine"),
            "quote": _object(region.get("snippet")).get("text"),
            "rule": fields.text("rule_id"),
        }
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    return found if isinstance(found, list) else []
