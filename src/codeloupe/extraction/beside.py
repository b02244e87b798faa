"""What stands beside the list of findings in an answer: findings under other names, and signs that it is not whole.

Models put what matters under keys of their own, and say in a flag, a count or a sentence what they did not list. None
of that is taken for a clean answer: what looks like a finding is read as one, and the rest is a problem with a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codeloupe.extraction.alarm import is_alarming, is_unfinished
from codeloupe.extraction.fields import Fields, plain_name
from codeloupe.extraction.finding_item import looks_like_item, looks_like_unrated_item
from codeloupe.extraction.flaws import FlawedObject, flaw_of, other_values
from codeloupe.extraction.places import written_place
from codeloupe.extraction.reasons import failed_run, shown
from codeloupe.extraction.stated_severity import stated_severity
from codeloupe.model.answer import ClaimedFinding
from codeloupe.model.records import dataclass
from codeloupe.model.severity import Severity


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LIST_NAMES = ("findings", "issues", "aggregated_findings")
_MAX_DEPTH = 6
_MAX_VALUES = 5_000
_MAX_WORD_CHARACTERS = 60
_DEFECTS = _words(
    "finding findings issue issues problem problems bug bugs defect defects vulnerability vulnerabilities flaw flaws "
    "blocker blockers blocking violation violations concern concerns failure failures risk risks alert alerts "
    "error errors warning warnings critical high major severe serious fatal medium moderate low minor "
    "p0 p1 p2 p3 mistakes regressions security fix"
)
_GRADES = {
    **dict.fromkeys(("critical", "blocker", "blockers", "blocking", "fatal", "p0", "severe"), Severity.CRITICAL),
    **dict.fromkeys(("high", "major", "serious", "error", "errors", "p1", "vulnerability"), Severity.HIGH),
    **dict.fromkeys(("vulnerabilities", "security"), Severity.HIGH),
    **dict.fromkeys(("medium", "moderate", "warning", "warnings", "p2"), Severity.MEDIUM),
    **dict.fromkeys(("low", "minor", "p3", "nit", "nits", "nitpicks", "info"), Severity.LOW),
}
# What is under such a name was there before, is gone, or was never claimed.
_ASIDE = _words(
    "resolved fixed previous earlier prior dismissed suppressed hidden ignored false excluded duplicate duplicates "
    "not no non without max maximum limit min minimum threshold fail"
)
_BENIGN = _words(
    "file files change changes changed reviewed checked walkthrough overview module modules hunk hunks diff test tests "
    "strengths praise positives good steps plan context sources references scope tool usage policy coverage reviewer "
    "metadata meta suggestions recommendations notes"
)
_UNFINISHED = _words(
    "truncated incomplete partial unfinished cut cutoff interrupted continued continue more_results has_more more "
    "timed_out timeout aborted cancelled canceled degraded is_truncated is_incomplete is_partial was_truncated cut_off "
    "to_be_continued needs_continuation"
)
_FINISHED = _words(
    "complete completed finished done is_complete success successful succeeded ok valid readable is_valid"
)
_APPROVALS = _words(
    "approved approve pass passes lgtm clean safe is_safe is_clean mergeable can_merge acceptable is_correct correct"
)
_OBJECTIONS = _words(
    "has_issues has_findings has_problems has_bugs issues_found findings_found problems_found bugs_found vulnerable "
    "is_vulnerable unsafe blocked block blocking rejected failed failing needs_changes changes_requested "
    "changes_required must_fix needs_work requires_changes request_changes not_safe"
)
_STATES = ("status", "state", "review_status", "run_status", "outcome", "result_status")
_GOOD_WORDS = _words(
    "ok okay success successful succeeded complete completed done finished pass passed passing clean reviewed approved "
    "accept accepted approve good fine ready merged green valid no issues found none nothing problems findings lgtm "
    "review analysis is all checks the with and to merge"
)
_STOPS = ("stop_reason", "finish_reason", "stopreason", "finishreason", "termination_reason")
_GOOD_STOPS = _words(
    "end_turn end stop stop_sequence stopped completed complete done success tool_use tool_calls eos finish normal"
)
_ERRORS = (
    "error",
    "errors",
    "error_message",
    "exception",
    "failure",
    "failure_reason",
    "fatal_error",
    "refusal",
    "abort_reason",
)
_DECISIONS = ("decision", "recommendation", "conclusion", "assessment", "approval", "overall", "result", "action")
_BAD_WORDS = _words(
    "fail failed failing failure reject rejected block blocked blocking unsafe vulnerable broken deny denied "
    "incorrect no-go"
)
_BAD_PHRASES = ("request changes", "changes requested", "needs work", "do not merge", "not approved", "not safe")
_SEVERITIES = (
    "severity",
    "max_severity",
    "highest_severity",
    "overall_severity",
    "risk",
    "risk_level",
    "overall_risk",
    "priority",
)
_SCORES = ("score", "quality_score", "overall_score", "rating", "grade")
_RISK_SCORES = ("risk_score", "severity_score", "danger")
_POOR_SCORE = 0.5
_NOTHING = frozenset({"", "none", "null", "false", "no", "n/a", "na", "nil", "0", "[]", "-"})


@dataclass(frozen=True, slots=True)
class _Under:
    """What the names above a value say of it."""

    severity: Severity | None = None
    file: str | None = None
    is_defect: bool = False
    is_benign: bool = False
    name: str = ""


class Beside:
    """What stands beside the findings of an answer: `items` to read as findings, and `strange` that cannot be read."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.strange = ""
        self._left = _MAX_VALUES

    def look(self, value: Any, *, under: str) -> None:
        """Take in what a member of an answer holds."""
        if plain_name(under) not in (*_ERRORS, "parse_errors", "parse_error"):
            self._look(value, _named(under, _Under()), 0)

    def _look(self, value: Any, under: _Under, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            self.strange = self.strange or "more values than are read"
            return
        if isinstance(value, Mapping):
            self._look_into(value, under, depth)
        elif isinstance(value, list):
            for item in value:
                self._look_at_item(item, under, depth + 1)

    def _look_into(self, value: Mapping[str, Any], under: _Under, depth: int) -> None:
        whole = with_defaults(value, under.severity, under.file)
        if looks_like_item(whole):
            self._take(whole, under)
        elif looks_like_unrated_item(value) and not under.is_benign:
            self._take(value, under)
        else:
            for name, part in value.items():
                self._look(part, _named(name, under), depth + 1)

    def _look_at_item(self, item: Any, under: _Under, depth: int) -> None:
        if not isinstance(item, str):
            self._look(item, under, depth)
        elif under.is_defect and not _says_nothing(item):
            self._take({"title": item, **_place_in(item)} | _defaults(under), under)

    def _take(self, item: Any, under: _Under) -> None:
        if under.name and _ASIDE & set(under.name.split("_")):
            self.strange = self.strange or f"findings under {shown(under.name)}"
        else:
            self.items.append(item)


def with_defaults(item: Mapping[str, Any], severity: Severity | None, file: str | None) -> Mapping[str, Any]:
    """An item with the severity and the file that stand above it, where it states none of its own."""
    fields = Fields(item)
    more: dict[str, Any] = {}
    if severity is not None and not fields.has_any(("severity", "priority", "level")):
        more["severity"] = severity.label
    if file is not None and not fields.has_any(("file", "file_path", "path", "filename", "location", "code_location")):
        more["file"] = file
    if not more:
        return item
    whole = {**item, **more}
    return FlawedObject(whole, flaw_of(item), other_values(item)) if flaw_of(item) else whole


def keyed_items(value: Mapping[str, Any]) -> list[Any] | None:
    """The items of an object in the place of a list: by file, by severity, by number; None when it has none."""
    beside = Beside()
    beside.look(value, under="findings")
    return beside.items if beside.items or not value else None


def names_defects(name: str) -> bool:
    """Whether a name is one for defects or for a severity."""
    plain = plain_name(name)
    return plain not in _ERRORS and bool(set(plain.split("_")) & _DEFECTS)


def _named(name: str, above: _Under) -> _Under:
    plain = plain_name(name)
    words = set(plain.split("_"))
    grades = [grade for word in words if (grade := _GRADES.get(word)) is not None]
    grade = min(grades, key=lambda each: each.priority) if grades and len(words) <= 4 else above.severity
    file = name if _is_path(name) else above.file
    return _Under(
        severity=grade,
        file=file,
        is_defect=above.is_defect or bool(words & _DEFECTS),
        is_benign=(above.is_benign or bool(words & _BENIGN)) and not words & _DEFECTS,
        name=plain if words & (_DEFECTS | _ASIDE) else above.name,
    )


def _is_path(name: str) -> bool:
    head, dot, suffix = name.rpartition(".")
    return bool(head and dot) and len(name) < 1_000 and " " not in name and suffix[:1].isalnum()


def _place_in(text: str) -> dict[str, Any]:
    for word in text.split()[:200]:
        place = written_place(word.strip("()[],;`'\""))
        if place.file and place.line_start:
            return {"file": place.file, "line": place.line_start}
    return {}


def _defaults(under: _Under) -> dict[str, Any]:
    more: dict[str, Any] = {"severity": under.severity.label} if under.severity is not None else {}
    return more | ({"file": under.file} if under.file else {})


def sign_of_failure(members: Mapping[str, Any], *, is_clean: bool) -> str | None:
    """What an object tells of itself that makes it no whole answer, or None: a flag, a state, an error.

    Of a clean one every state must be known as a good one; else those that are known as bad count.
    """
    fields = Fields(members)
    if fields.get("complete") is False:
        return failed_run("it is not complete")
    for name, value in members.items():
        plain = plain_name(name)
        if plain in _UNFINISHED and _is_on(value):
            return failed_run(f"it says {plain}: {shown(value)}")
        if plain in _FINISHED and _is_off(value):
            return failed_run(f"it says {plain}: {shown(value)}")
        if plain in _STOPS and isinstance(value, str) and plain_name(value) not in _GOOD_STOPS | _NOTHING:
            return failed_run(f"it stopped: {shown(value)}")
        if plain in _STATES and isinstance(value, str) and not _is_good(value, is_clean=is_clean):
            return failed_run(f"its {plain} is {shown(value)}")
    for name in _ERRORS:
        if _is_on(told := fields.get(name)):
            return failed_run(told[0] if isinstance(told, list) else told)
    return None


def contradiction(members: Mapping[str, Any], findings: Sequence[ClaimedFinding]) -> str | None:
    """What an answer says beside its findings that they do not tell, or None: a count, a verdict, a sentence."""
    worst = min((finding.severity.priority for finding in findings), default=None)
    told = [
        reason
        for name, value, depth in _members(members)
        if (reason := _objection(plain_name(name), value, findings, depth))
    ]
    if told:
        return told[0]
    if worst is not None and worst <= Severity.HIGH.priority:
        return None
    sentence = next((text for _, text, _ in _members(members) if isinstance(text, str) and is_alarming(text)), None)
    if sentence is not None:
        return shown(sentence)
    return next(
        (shown(text) for _, text, _ in _members(members) if isinstance(text, str) and is_unfinished(text)), None
    )


def _members(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any, int]]:
    """Every plain value in an object that is not in one of its findings, with its name."""
    if isinstance(value, Mapping):
        if depth and (looks_like_item(value) or depth > _MAX_DEPTH):
            return
        for key, part in value.items():
            if not depth and plain_name(key) in LIST_NAMES:
                continue
            yield from _members(part, key, depth + 1)
    elif isinstance(value, list):
        for part in value[:_MAX_VALUES] if depth <= _MAX_DEPTH else ():
            yield from _members(part, name, depth + 1)
    else:
        yield name, value, depth


def _objection(name: str, value: Any, findings: Sequence[ClaimedFinding], depth: int) -> str | None:
    words = set(name.split("_"))
    if isinstance(value, bool):
        objects = (value and name in _OBJECTIONS) or (not value and name in _APPROVALS)
        return f"{name} is {shown(value)}, and nothing says why" if objects and not findings else None
    if isinstance(value, int | float) and words & _DEFECTS and not words & _ASIDE:
        known = _counted(words, findings)
        if name in _RISK_SCORES or "score" in words:
            return None if findings or _share(value) <= _POOR_SCORE else f"{name} is {shown(value)} without findings"
        return f"{name} is {shown(value)}, and {known} are listed" if value > known and "line" not in words else None
    if name in _SCORES and not findings and _is_poor(value):
        return f"{name} is {shown(value)} without findings"
    if isinstance(value, str) and len(value) <= _MAX_WORD_CHARACTERS and not findings:
        return _objection_in_word(name, value, depth)
    return None


def _objection_in_word(name: str, value: str, depth: int) -> str | None:
    plain = " ".join(value.lower().replace("_", " ").replace("-", " ").split())
    if name in _OBJECTIONS and plain in ("true", "yes"):
        return f"{name} is {shown(value)}, and nothing says why"
    if name in _APPROVALS and plain in ("false", "no"):
        return f"{name} is {shown(value)}, and nothing says why"
    if name in _DECISIONS and (set(plain.split()) & _BAD_WORDS or any(phrase in plain for phrase in _BAD_PHRASES)):
        return f"{name} is {shown(value)}, and nothing says why"
    if name in _SEVERITIES and depth <= 2 and plain not in _NOTHING:
        try:
            grade = stated_severity(value)
        except ValueError:
            return None
        return f"{name} is {shown(value)}, and nothing says why" if grade is not Severity.LOW else None
    return None


def _counted(words: set[str], findings: Sequence[ClaimedFinding]) -> int:
    grades = [grade for word in words if (grade := _GRADES.get(word)) is not None]
    if not grades:
        return len(findings)
    return sum(finding.severity.at_least(max(grades, key=lambda each: each.priority)) for finding in findings)


def _is_poor(value: Any) -> bool:
    if isinstance(value, str):
        grade = value.strip().upper()
        if grade[:1] in ("D", "E", "F") and len(grade) <= 2:
            return True
        number, _, scale = value.partition("/")
        try:
            share = float(number) / float(scale) if scale else _share(float(number.strip("% ")))
        except (ValueError, ZeroDivisionError):
            return False
        return share < _POOR_SCORE
    return isinstance(value, int | float) and _share(value) < _POOR_SCORE


def _share(value: float) -> float:
    """A score as a share of the best, on the smallest scale that it fits: 0 to 1, 10 or 100."""
    return value if value <= 1 else value / 10 if value <= 10 else value / 100


def _is_good(state: str, *, is_clean: bool) -> bool:
    words = [word.strip(".,!") for word in state.lower().replace("_", " ").replace("-", " ").split()]
    if is_clean:
        return all(word in _GOOD_WORDS for word in words)
    return not (_UNFINISHED | {"error", "errored", "crashed", "aborted", "pending", "running"}) & set(words)


def _is_on(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in _NOTHING
    return bool(value)


def _is_off(value: Any) -> bool:
    return value is False or (isinstance(value, str) and value.strip().lower() in ("false", "no"))


def _says_nothing(text: str) -> bool:
    plain = text.strip(" .!*_`").lower()
    return plain in _NOTHING or plain.startswith(("none", "no ", "n/a", "nothing"))
