"""SARIF 2.1.0, which analysers print: its results as claimed findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from codeloupe.engine.parse import items
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity
from codeloupe.system.json_text import flaw_of

_LEVELS = {"error": Severity.HIGH, "warning": Severity.MEDIUM, "note": Severity.LOW, "none": Severity.LOW}


def looks_like_sarif(value: Mapping[str, Any]) -> bool:
    """Whether an object is a SARIF document."""
    runs = value.get("runs")
    is_named = "$schema" in value or "version" in value
    return isinstance(runs, list) and (is_named or any("tool" in _object(run) for run in runs))


def read_sarif(document: Mapping[str, Any]) -> ReviewAnswer:
    """The results of all runs that say something is wrong. The summary counts those that are suppressed."""
    open_results: list[tuple[Any, str | None]] = []
    suppressed = 0
    for run in map(_object, document["runs"]):
        rules = map(_object, _list(_at(run, "tool", "driver"), "rules"))
        levels = {str(rule.get("id")): _at(rule, "defaultConfiguration").get("level") for rule in rules}
        # Without the end of the run, a rule's own level may be missing.
        default = None if flaw_of(run) else "warning"
        for result in _list(run, "results"):
            suppressions = [_object(one) for one in _list(_object(result), "suppressions")]
            if _object(result).get("kind") in ("pass", "notApplicable", "informational"):
                continue
            if suppressions and all(one.get("status", "accepted") == "accepted" for one in suppressions):
                suppressed += 1
            else:
                level = levels.get(items.Fields(_object(result)).text("rule_id"))
                open_results.append((result, level if isinstance(level, str) else default))
    answer = items.answer_of(open_results, problem=_problem(document), read=lambda pair: _finding(*pair))
    return replace(answer, summary=f"{suppressed:,} suppressed results" if suppressed else "")


def _problem(document: Mapping[str, Any]) -> str | None:
    flaw = flaw_of(document) or flaw_of(document["runs"])
    if not flaw and not document["runs"]:
        return "missing field: runs"
    for run in map(_object, document["runs"] if not flaw else ()):
        if flaw := flaw_of(run) or flaw_of(run.get("results")):
            break
        if not isinstance(run.get("results"), list):
            return "missing field: results"
        if any(_object(call).get("executionSuccessful") is False for call in _list(run, "invocations")):
            return "the tool says that it failed"
    return f"invalid json: {flaw}" if flaw else None


def _finding(result: Any, default_level: str | None) -> ClaimedFinding:
    whole = _object(result)
    if flaw := next((flaw for part in (result, *whole.values()) if (flaw := flaw_of(part))), ""):
        raise items.UnreadableItem(f"invalid json: {flaw}")
    message = _at(whole, "message")
    title, body = items.title_and_body(items.Fields({"message": message.get("text") or message.get("markdown")}))
    fields = items.Fields(whole)
    level = fields.get("level") or default_level
    if level is None:
        raise items.UnreadableItem("missing field: level")
    if not isinstance(level, str) or level not in _LEVELS:
        raise items.UnreadableItem(f"invalid severity: {items.shown(level)}")
    physical = _at(_object(next(iter(_list(whole, "locations")), None)), "physicalLocation")
    region = _at(physical, "region")
    start, end = items.span({"start": region.get("startLine"), "end": region.get("endLine")})
    uri = _at(physical, "artifactLocation").get("uri")
    path = unquote(uri.removeprefix("file://"), errors="surrogateescape") if isinstance(uri, str) else None
    snippet = _at(region, "snippet").get("text")
    return ClaimedFinding(
        severity=_LEVELS[level],
        title=title,
        body=body,
        file=path if path and len(path) <= items.MAX_PATH_CHARACTERS else None,
        line_start=start,
        line_end=end,
        evidence=snippet[: items.MAX_TEXT_CHARACTERS] if isinstance(snippet, str) else "",
        rule=fields.text("rule_id") or None,
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _at(value: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The object at a path of names, or an empty one."""
    for name in names:
        value = _object(value.get(name))
    return value


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    return found if isinstance(found, list) else []
