"""Findings that stand beside the list of an answer, under names of the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from codeloupe.engine.parse.fields import Fields, plain_name
from codeloupe.engine.parse.finding_item import looks_like_item, looks_like_unrated_item
from codeloupe.engine.parse.flaws import FlawedObject, flaw_of, other_values
from codeloupe.engine.parse.places import written_place
from codeloupe.engine.parse.reasons import shown
from codeloupe.model.finding import Severity


def words_of(text: str) -> frozenset[str]:
    """The words of a text, to look some up in."""
    return frozenset(text.split())


LIST_NAMES = ("findings", "issues", "aggregated_findings")
MAX_DEPTH = 6
MAX_VALUES = 5_000
DEFECTS = words_of(
    "finding findings issue issues problem problems bug bugs defect defects vulnerability vulnerabilities flaw flaws "
    "blocker blockers blocking violation violations concern concerns failure failures risk risks alert alerts "
    "error errors warning warnings critical high major severe serious fatal medium moderate low minor "
    "p0 p1 p2 p3 mistakes regressions security fix"
)
GRADES = {
    **dict.fromkeys(("critical", "blocker", "blockers", "blocking", "fatal", "p0", "severe"), Severity.CRITICAL),
    **dict.fromkeys(("high", "major", "serious", "error", "errors", "p1", "vulnerability"), Severity.HIGH),
    **dict.fromkeys(("vulnerabilities", "security"), Severity.HIGH),
    **dict.fromkeys(("medium", "moderate", "warning", "warnings", "p2"), Severity.MEDIUM),
    **dict.fromkeys(("low", "minor", "p3", "nit", "nits", "nitpicks", "info"), Severity.LOW),
}
# What is under such a name was there before, is gone, or was never claimed.
ASIDE = words_of(
    "resolved fixed previous earlier prior dismissed suppressed hidden ignored false excluded duplicate duplicates "
    "not no non without max maximum limit min minimum threshold fail"
)
BENIGN = words_of(
    "file files change changes changed reviewed checked walkthrough overview module modules hunk hunks diff test tests "
    "strengths praise positives good steps plan context sources references scope tool usage policy coverage reviewer "
    "metadata meta suggestions recommendations notes"
)
# Under these an answer tells what went wrong with the review itself.
ERRORS = (
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
NOTHING = frozenset({"", "none", "null", "false", "no", "n/a", "na", "nil", "0", "[]", "-"})


class _Under(Struct, frozen=True):
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
        self._left = MAX_VALUES

    def look(self, value: Any, *, under: str) -> None:
        """Take in what a member of an answer holds."""
        if plain_name(under) not in (*ERRORS, "parse_errors", "parse_error"):
            self._look(value, _named(under, _Under()), 0)

    def _look(self, value: Any, under: _Under, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
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
        elif under.is_defect and not says_nothing(item):
            self._take({"title": item, **_place_in(item)} | _defaults(under), under)

    def _take(self, item: Any, under: _Under) -> None:
        if under.name and ASIDE & set(under.name.split("_")):
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
    return plain not in ERRORS and bool(set(plain.split("_")) & DEFECTS)


def _named(name: str, above: _Under) -> _Under:
    plain = plain_name(name)
    words = set(plain.split("_"))
    grades = [grade for word in words if (grade := GRADES.get(word)) is not None]
    grade = min(grades, key=lambda each: each.priority) if grades and len(words) <= 4 else above.severity
    file = name if _is_path(name) else above.file
    return _Under(
        severity=grade,
        file=file,
        is_defect=above.is_defect or bool(words & DEFECTS),
        is_benign=(above.is_benign or bool(words & BENIGN)) and not words & DEFECTS,
        name=plain if words & (DEFECTS | ASIDE) else above.name,
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


def says_nothing(text: str) -> bool:
    """Whether a text in the place of a defect says that there is none."""
    plain = text.strip(" .!*_`").lower()
    return plain in NOTHING or plain.startswith(("none", "no ", "n/a", "nothing"))
