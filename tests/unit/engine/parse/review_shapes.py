"""One review in every shape that is accepted, and what is to be read from it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from codeloupe.model.finding import ClaimedFinding, Severity


def _finding(severity: Severity, title: str, file: str, lines: tuple[int, int], **more: Any) -> ClaimedFinding:
    return ClaimedFinding(severity=severity, title=title, file=file, line_start=lines[0], line_end=lines[1], **more)


def short_finding(severity: Severity, title: str, file: str, **more: Any) -> ClaimedFinding:
    """A finding with all that a shape can say of it, in few characters."""
    rest = {"body": "{\nb", "category": "c", "suggestion": "s", "confidence": 0.5}
    return _finding(severity, title, file, (12, 13), **{**rest, **more})


FINDINGS = (
    _finding(
        *(Severity.HIGH, 'A query is built from "text"', "src/data base/query.py", (12, 14)),
        body='Use {"placeholders": [1, 2]} instead.\n\n```python\nrun("...", (name,))\n```',
        category="security",
        evidence="q = f\"select * from t where n = '{name}'\"  # }]",
        suggestion="q = 'select * from t where n = ?'",
        confidence=0.8,
    ),
    _finding(
        *(Severity.LOW, "Größe wird nie geprüft 🔍", "src/größe.py", (3, 3)),
        body="C:\\temp\\new is a path, \\d a pattern.",
        category="correctness",
        evidence="if größe > 10: pass",
        suggestion="check it",
        confidence=1.0,
    ),
    _finding(
        *(Severity.CRITICAL, "The loop never ends", "a.py", (1, 2)),
        body="Nothing changes i.",
        category="reliability",
        evidence="while i < 3:",
        suggestion="i += 1",
        confidence=0.5,
    ),
)

Item = dict[str, Any]
Wrap = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class JsonShape:
    """How an item is written, what stands around the items, and what of a finding such an item can say."""

    item: Callable[[ClaimedFinding], Item]
    around: Wrap
    kept: tuple[str, ...]

    def value(self, findings: Sequence[ClaimedFinding]) -> Any:
        return self.around([self.item(finding) for finding in findings])

    def expected(self, findings: Sequence[ClaimedFinding]) -> tuple[ClaimedFinding, ...]:
        """The findings with nothing but severity, title and what is kept."""
        bare = [ClaimedFinding(severity=finding.severity, title=finding.title) for finding in findings]
        kept = [{name: getattr(finding, name) for name in self.kept} for finding in findings]
        return tuple(replace(finding, **values) for finding, values in zip(bare, kept, strict=True))


def _written(names: str, **stated: Callable[[Severity], Any]) -> Callable[[ClaimedFinding], Item]:
    """How an item is written: `name=field` for each of its members, and how a member states the severity."""
    pairs = [pair.split("=") for pair in names.split()]

    def written(finding: ClaimedFinding) -> Item:
        values = {name: getattr(finding, field) for name, field in pairs}
        return {**values, **{name: word(finding.severity) for name, word in stated.items()}}

    return written


own_item = _written(
    "file=file line=line_start line_end=line_end quote=evidence severity=severity category=category title=title "
    "body=body suggestion=suggestion confidence=confidence",
    severity=lambda severity: severity.label,
)
gate_item = _written(
    "file_path=file line_start=line_start line_end=line_end priority=severity title=title body=body",
    priority=lambda severity: severity.priority,
)
_WORDS = {Severity.HIGH: "error", Severity.LOW: "suggestion", Severity.MEDIUM: "Warning", Severity.CRITICAL: "P0"}
issue_item = _written(
    "file=file line=line_start severity=severity message=title suggestion=suggestion", severity=_WORDS.__getitem__
)
described_item = _written(
    "severity=severity category=category description=title evidence=evidence",
    severity=lambda severity: severity.label.upper(),
)
_codex_fields = _written(
    "title=title body=body confidence_score=confidence", priority=lambda severity: f"[P{severity.priority}]"
)


def codex_item(finding: ClaimedFinding) -> Item:
    lines = {"start": finding.line_start, "end": finding.line_end}
    place = {"absolute_file_path": finding.file, "line_range": lines}
    return {**_codex_fields(finding), "code_location": place}


_PLACE = ("file", "line_start", "line_end")
_OWN = (*_PLACE, "body", "category", "evidence", "suggestion", "confidence")
_GATE = (*_PLACE, "body")

JSON_SHAPES = {
    "own": JsonShape(own_item, lambda items: {"findings": items}, _OWN),
    "list": JsonShape(own_item, lambda items: items, _OWN),
    "verdict": JsonShape(gate_item, lambda items: {"verdict": "FAIL", "findings": items}, _GATE),
    "verdict last": JsonShape(gate_item, lambda items: {"findings": items, "verdict": "needs work"}, _GATE),
    "passed": JsonShape(
        issue_item,
        lambda items: {"passed": False, "summary": "s", "issues": items},
        ("file", "line_start", "suggestion"),
    ),
    "described": JsonShape(described_item, lambda items: {"findings": items}, ("category", "evidence")),
    "consensus": JsonShape(
        gate_item, lambda items: {"status": "x", "consensus_verdict": "FAIL", "aggregated_findings": items}, _GATE
    ),
    "codex": JsonShape(
        codex_item,
        lambda items: {"findings": items, "overall_correctness": "patch is incorrect", "overall_explanation": "e"},
        (*_GATE, "confidence"),
    ),
    "wrapped": JsonShape(own_item, lambda items: {"review": {"by": "x", "findings": items}}, _OWN),
}


def dumped(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


ENVELOPES: dict[str, Callable[[Any], str]] = {
    "bare": dumped,
    "escaped": json.dumps,
    "fence": lambda value: f"Here it is:\n\n```json\n{dumped(value)}\n```\nI hope it helps.",
    "plain fence": lambda value: f"```\n{dumped(value)}\n```",
    "tildes": lambda value: f"~~~json\n{dumped(value)}\n~~~",
    "open fence": lambda value: f"```json\n{dumped(value)}",
    "prose": lambda value: f'I looked at {{all}} of it [1], "it\'s" 6" long: {dumped(value)} That is {{all}}.',
    "several": lambda value: f'```json\n{{"example": [1]}}\n```\nand\n```json\n{dumped(value)}\n```\n[2] {{"a": {{}}}}',
    "string": lambda value: json.dumps(json.dumps(value)),
    "claude": lambda value: json.dumps(
        {"type": "result", "is_error": False, "num_turns": 1, "result": json.dumps(value), "session_id": "1"}
    ),
    "claude structured": lambda value: json.dumps({"type": "result", "structured_output": value, "result": "done"}),
    "claude messages": lambda value: json.dumps(
        [
            {"type": "system", "subtype": "init"},
            {"type": "user", "message": {"content": '{"findings": [{"severity": "low", "title": "said to it"}]}'}},
            {"type": "result", "is_error": False, "result": f"So:\n```json\n{json.dumps(value)}\n```"},
        ]
    ),
    "gemini": lambda value: json.dumps(
        {"session_id": "1", "response": json.dumps(value), "stats": {"models": {}}}, indent=1
    ),
    "codex": lambda value: "\n".join(
        json.dumps(line)
        for line in (
            {"type": "thread.started", "thread_id": "1"},
            {"type": "item.completed", "item": {"type": "error", "message": "no metadata"}},
            {"type": "item.completed", "item": {"type": "agent_message", "text": json.dumps(value)}},
            {"type": "turn.completed", "usage": {"input_tokens": 1}},
        )
    ),
}
