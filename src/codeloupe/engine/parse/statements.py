"""What is around an answer (`walk`), findings under names of a model's own (`Beside`), and what speaks against a list.

Models say in a flag, a count, a verdict or a sentence what they did not list: that the answer is not whole, or that the
list is not all. An answer without findings is clean only where all that it holds is known to be harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from codeloupe.engine.parse.items import (
    DOUBTFUL,
    FAILED_RUN,
    SEVERITY_NAMES,
    UNLISTED,
    Fields,
    looks_like_item,
    looks_like_unrated_item,
    plain_name,
    shown,
    written_place,
)
from codeloupe.engine.parse.sentences import is_alarming, is_doubtful, is_reassuring, is_unfinished
from codeloupe.model.finding import ClaimedFinding, Severity
from codeloupe.system.json_text import FlawedObject, flaw_of, other_values, words
from codeloupe.system.regex import regex


def _set(text: str) -> frozenset[str]:
    return frozenset(words(text))


# A text in an envelope, in a text in an envelope, is as deep as programs go.
MAX_NESTED_TEXTS = 3
_TEXT_NAMES = words("result response output text content answer message arguments")
# What was said to a model is not what it says.
_OTHERS = ("user", "system", "tool", "developer")
# A message of a run has none of these; what has one is a finding or an answer of its own.
_CLAIMS = {"findings", "issues", "finding", "issue", "severity"}
LIST_NAMES = ("findings", "issues", "aggregated_findings")
_MAX_DEPTH = 6
_MAX_VALUES = 5_000
_GRADES = {
    **dict.fromkeys(words("critical blocker blockers blocking fatal p0 severe"), Severity.CRITICAL),
    **dict.fromkeys(words("high major serious error errors p1 vulnerability vulnerabilities security"), Severity.HIGH),
    **dict.fromkeys(words("medium moderate warning warnings p2"), Severity.MEDIUM),
    **dict.fromkeys(words("low minor p3 nit nits nitpicks info"), Severity.LOW),
}
_NAMED_DEFECTS = _set(
    "finding findings issue issues problem problems bug bugs defect defects vulnerability vulnerabilities flaw flaws "
    "blocker blockers blocking"
)
_DEFECTS = _NAMED_DEFECTS | _set(
    "violation violations concern concerns failure failures risk risks alert alerts error errors warning warnings "
    "critical high major severe serious fatal medium moderate low minor p0 p1 p2 p3 mistakes regressions security fix"
)
# What is under such a name was there before, is gone, or was never claimed.
_NEGATION = _set("not no non without")
_ASIDE = _NEGATION | _set(
    "resolved fixed previous earlier prior dismissed suppressed hidden ignored false excluded duplicate duplicates "
    "max maximum limit min minimum threshold fail"
)
_BENIGN = _set(
    "file files change changes changed reviewed checked walkthrough overview module modules hunk hunks diff test tests "
    "strengths praise positives good steps plan context sources references scope tool usage policy coverage reviewer "
    "metadata meta suggestions recommendations notes"
)
# Under these an answer tells what went wrong with the review itself.
_ERRORS = words("error errors error_message exception failure failure_reason fatal_error refusal abort_reason")
_NOTHING = frozenset({"", "none", "null", "false", "no", "n/a", "na", "nil", "0", "[]", "-"})
_UNFINISHED = _set(
    "truncated incomplete partial unfinished cut cutoff interrupted continued continue more_results has_more more "
    "timed_out timeout aborted cancelled canceled degraded is_truncated is_incomplete is_partial was_truncated cut_off "
    "to_be_continued needs_continuation"
)
_FINISHED = _set("complete completed finished done is_complete success successful succeeded ok valid readable is_valid")
# Words in names: on, they speak for a change without findings; and those whose value says nothing of that.
_FOR = _set(
    "approved approve approves pass passes passed passing lgtm clean safe secure mergeable merge acceptable correct "
    "ready reviewed read checked analyzed analysed coverage complete completed finished done success ok valid readable"
)
_NEUTRAL = _BENIGN | _set(
    "line lines id index version cost seconds ms duration time tokens model language type reason confidence session "
    "tools name path summary effort agent agents date commit branch title"
)
_UNREAD = _set("skipped unreviewed unread unreadable omitted inaccessible remaining pending questions")
_STATES = ("status", "state", "review_status", "run_status", "outcome", "result_status")
_GOOD_WORDS = _set(
    "ok okay success successful succeeded complete completed done finished pass passed passing clean reviewed approved "
    "accept accepted approve good fine ready merged green valid no issues found none nothing problems findings lgtm "
    "review analysis is all checks the with and to merge low minimal minor correct safe yes"
)
_BAD_STATES = _UNFINISHED | _set("error errored crashed aborted pending running")
_STOPS = ("stop_reason", "finish_reason", "stopreason", "finishreason", "termination_reason")
_GOOD_STOPS = _NOTHING | _set(
    "end_turn end stop stop_sequence stopped completed complete done success tool_use tool_calls eos finish normal"
)
_SCORES = _set("score rating grade quality")
_FLAGS = {"true": True, "yes": True, "false": False, "no": False}
_LEADING_NUMBER = regex(r"\s*(\d{1,6})\b(?!\s*[/.%:-])")


def walk(value: Any, understood: Callable[[Any], bool]) -> str:
    """Show the values inside one, from the outside in, until one is understood; why some were left out, if so."""
    left: list[tuple[Any, int]] = [(value, 0)]
    for _ in range(10_000):
        if not left:
            return ""
        part, depth = left.pop()
        if not understood(part) and depth < 8:
            left.extend((inner, depth + 1) for inner in reversed(_parts(part)))
    return "more than 10,000 values in one" if left else ""


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, list):
        return [item for item in final_results(value) if isinstance(item, Mapping | list)]
    if not isinstance(value, Mapping):
        return ()
    fields = Fields(value)
    if fields.get("role") in _OTHERS or fields.get("type") in _OTHERS:
        return ()
    if (structured := fields.get("structured_output")) is not None:
        return [structured]
    texts = [text for name in _TEXT_NAMES if isinstance(text := fields.get(name), str)]
    return [*texts, *(item for item in value.values() if isinstance(item, Mapping | list))]


def final_results(items: Sequence[Any]) -> Sequence[Any]:
    """Of the messages of a run only the result, where there is one: what was said before it is not the answer."""
    messages = [item for item in items if isinstance(item, Mapping)]
    results = [item for item in messages if item.get("type") == "result"]
    # All messages of a run have a type; what has none may be another answer.
    if not results or not all("type" in item for item in messages):
        return items
    if any(item["type"] != "result" and _CLAIMS & set(item) for item in messages):
        return items
    return results[-1:] if {"result", "structured_output", "is_error"} & set(results[-1]) else items


def failure_in(value: Any) -> str | None:
    """The problem that an envelope tells of, which is that of a failed run, or None."""
    if not isinstance(value, Mapping):
        return None
    subtype = value.get("subtype")
    if value.get("type") == "turn.failed":
        error = value.get("error")
        said = error.get("message") if isinstance(error, Mapping) else error
    elif value.get("is_error") is True:
        said = value.get("result") or value.get("errors") or subtype
    elif value.get("type") == "result" and isinstance(subtype, str) and subtype.startswith("error"):
        said = subtype
    else:
        return None
    return FAILED_RUN + shown(said[0] if isinstance(said, list) and said else said)


def _words_of(name: str) -> set[str]:
    return set(plain_name(name).split("_"))


def _grades_in(named: set[str]) -> list[Severity]:
    return sorted((_GRADES[word] for word in named if word in _GRADES), key=lambda each: each.priority)


class _Under(Struct, frozen=True):
    """What the names above a value say of it: the severity and file of a finding, and whether it is one."""

    severity: Severity | None = None
    file: str | None = None
    is_defect: bool = False
    is_benign: bool = False
    name: str = ""

    def below(self, name: str) -> _Under:
        """What is said of the value under this name."""
        named = _words_of(name)
        grades = _grades_in(named) if len(named) <= 4 else []
        head, _, suffix = name.rpartition(".")
        is_path = bool(head) and len(name) < 1_000 and " " not in name and suffix[:1].isalnum()
        return _Under(
            severity=grades[0] if grades else self.severity,
            file=name if is_path else self.file,
            is_defect=self.is_defect or bool(named & _DEFECTS),
            is_benign=(self.is_benign or bool(named & _BENIGN)) and not named & _DEFECTS,
            name=plain_name(name) if named & (_DEFECTS | _ASIDE) else self.name,
        )

    def completed(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """An item with the severity and the file of the names above it, where it states none of its own."""
        fields, whole = Fields(item), dict(item)
        if self.severity is not None and not fields.has_any(SEVERITY_NAMES):
            whole["severity"] = self.severity.label
        if self.file and not fields.has_any(("file", "file_path", "path", "filename", "location", "code_location")):
            whole["file"] = self.file
        return FlawedObject(whole, flaw, other_values(item)) if (flaw := flaw_of(item)) else whole


class Beside:
    """What is beside the findings of an answer: `items` to read as findings, and `strange` that cannot be read."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.strange = ""
        self._left = _MAX_VALUES

    def look(self, value: Any, *, under: str) -> None:
        """Take in what a member of an answer holds."""
        if plain_name(under) not in (*_ERRORS, "parse_errors", "parse_error"):
            self._look(value, _Under().below(under), 0)

    def _look(self, value: Any, under: _Under, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            self.strange = self.strange or "more values than are read"
            return
        item = under.completed(value) if isinstance(value, Mapping) else None
        if isinstance(value, str) and depth and under.is_defect and not says_nothing(value):
            # A text in a list of defects is one.
            places = (written_place(word.strip("()[],;`'\"")) for word in value.split()[:200])
            found = next((place for place in places if place.file and place.line_start), None)
            place = {"file": found.file, "line": found.line_start} if found else {}
            item = under.completed({"title": value, **place, **({"file": under.file} if under.file else {})})
        elif isinstance(value, list):
            for part in value:
                self._look(part, under, depth + 1)
        elif isinstance(value, Mapping) and not looks_like_item(item):
            item = value if looks_like_unrated_item(value) and not under.is_benign else None
            for name, part in value.items() if item is None else ():
                if isinstance(part, list | Mapping):
                    self._look(part, under.below(name), depth + 1)
        if item is not None and _ASIDE & set(under.name.split("_")):
            self.strange = self.strange or f"findings under {shown(under.name)}"
        elif item is not None:
            self.items.append(item)


def names_defects(name: str) -> bool:
    """Whether a name is one for defects or for a severity."""
    return plain_name(name) not in _ERRORS and bool(_words_of(name) & _DEFECTS)


def says_nothing(text: str) -> bool:
    """Whether a text in the place of a defect says that there is none."""
    plain = text.strip(" .!*_`").lower()
    return plain in _NOTHING or plain.startswith(("none", "no ", "n/a", "nothing"))


def sign_of_failure(members: Mapping[str, Any], *, is_clean: bool) -> str | None:
    """What an object says of itself that makes it no whole answer, or None; of a clean one every state must be good."""
    fields = Fields(members)
    if fields.get("complete") is False:
        return f"{FAILED_RUN}it is not complete"
    for name, value in members.items():
        plain = plain_name(name)
        is_off = value is False or (isinstance(value, str) and value.strip().lower() in ("false", "no"))
        if (plain in _UNFINISHED and _is_on(value)) or (plain in _FINISHED and is_off):
            return FAILED_RUN + shown(f"it says {plain}: {shown(value)}")
        if plain in _STOPS and isinstance(value, str) and plain_name(value) not in _GOOD_STOPS:
            return FAILED_RUN + shown(f"it stopped: {shown(value)}")
        if plain in _STATES and isinstance(value, str):
            stated = {word.strip(".,!") for word in _spaced(value).split()}
            if stated - _GOOD_WORDS if is_clean else stated & _BAD_STATES:
                return FAILED_RUN + shown(f"its {plain} is {shown(value)}")
    said = next((said for name in _ERRORS if _is_on(said := fields.get(name))), None)
    return None if said is None else FAILED_RUN + shown(said[0] if isinstance(said, list) else said)


def sign_around(part: Any) -> str:
    """What an envelope says that makes the answer in it no whole one, or nothing; messages have states too."""
    if not isinstance(part, Mapping):
        return ""
    endings = ("stop_reason", "finish_reason", "truncated", "incomplete", "is_truncated")
    is_message = "type" in Fields(part)
    said = {name: value for name, value in part.items() if not is_message or plain_name(name) in endings}
    return sign_of_failure(said, is_clean=False) or ""


def objection(members: Mapping[str, Any], findings: Sequence[ClaimedFinding]) -> str | None:
    """What speaks against an answer with no more than these findings, as a reason, or None.

    Beside an empty list, every value has to be known as one that a clean answer may have.
    """
    plain = list(plain_values(members))
    is_clean, is_serious = not findings, any(found.severity.at_least(Severity.HIGH) for found in findings)
    doubts = [f"{name} is {shown(value)}" for name, value in plain if is_clean and _is_odd(name, value)]
    for name, part in members.items() if is_clean else ():
        is_nested = isinstance(part, list) and any(isinstance(item, Mapping | list) and item for item in part)
        if is_nested and not _words_of(name) & _NEUTRAL and plain_name(name) not in LIST_NAMES:
            doubts.append(f"what is under {shown(name)} cannot be read")
    for name, value in plain:
        named, number = _words_of(name), None if isinstance(value, bool) else _number(value)
        least = (_grades_in(named) or [Severity.LOW])[-1]
        known = sum(finding.severity.at_least(least) for finding in findings)
        is_count = bool(named & _DEFECTS) or plain_name(name) in ("count", "total", "number", "num")
        if is_count and number is not None and number > known and not named & (_ASIDE | _NEUTRAL | _SCORES):
            return f"{UNLISTED}{plain_name(name)} is {shown(value)}, and {known} are listed"
        is_text = isinstance(value, str) and not is_serious
        if is_text and (is_alarming(value) or is_unfinished(value)):
            return UNLISTED + shown(value)
        is_flag = is_clean and _state(named, value) is not None and _is_odd(name, value)
        if is_flag and named & (_FOR | _DEFECTS | _SCORES):
            return f"{UNLISTED}{plain_name(name)} is {shown(value)}, and nothing says why"
    # The status of a review-gate, and what its reviewers say, is read by those who know it.
    return DOUBTFUL + doubts[0] if doubts and "consensus_verdict" not in Fields(members) else None


def _is_odd(name: str, value: Any) -> bool:
    """Whether a value beside an empty list is none that a clean answer would have."""
    named = _words_of(name)
    is_on, is_defect = _state(named, value), bool(named & (_DEFECTS | _UNREAD)) and not named & (_ASIDE | _SCORES)
    if is_on is None and isinstance(value, str):
        stated = {word.strip(".,!:;*`") for word in _spaced(value).split()}
        if not stated - _GOOD_WORDS or (is_defect and (says_nothing(value) or is_reassuring(value))):
            return is_doubtful(value)
        is_word = len(stated) == 1 and not named & (_NEUTRAL | _FOR)
        return is_defect or is_word or bool(named & _NEGATION and named & _FOR) or is_doubtful(value)
    is_neutral = named & _NEUTRAL and not named & (_FOR | _DEFECTS | _UNREAD) and not isinstance(value, bool)
    if is_on is None or named & (_ASIDE - _NEGATION) or is_neutral:
        return False
    is_on = is_on is not bool(named & _NEGATION)
    return not is_on if named & (_FOR | _SCORES) else is_on


def _state(named: set[str], value: Any) -> bool | None:
    """Whether a value is on: a flag, a number above nothing, a score that is not poor; None for other words."""
    number = _number(value)
    if isinstance(value, bool) or number is None:
        return _FLAGS.get(str(value)[:6].strip().lower())
    if not named & _SCORES:
        return number > 0
    # On the smallest scale that it fits: 1, 10 or 100.
    is_high = number >= (0.5 if number <= 1 else 5 if number <= 10 else 50)
    return is_high is not bool(named & {"risk", "severity", "danger", "vulnerability", "threat"})


def _number(value: Any) -> float | None:
    leading = _LEADING_NUMBER.match(value) if isinstance(value, str) else None
    return int(leading[1]) if leading else value if isinstance(value, int | float) else None


def plain_values(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every plain value in an object that is not in one of its findings, with its name."""
    if isinstance(value, Mapping):
        if depth and (looks_like_item(value) or depth > _MAX_DEPTH):
            return
        for key, part in value.items():
            if depth or plain_name(key) not in LIST_NAMES:
                yield from plain_values(part, key, depth + 1)
    elif isinstance(value, list):
        for part in value[:_MAX_VALUES] if depth <= _MAX_DEPTH else ():
            yield from plain_values(part, name, depth + 1)
    else:
        yield name, value


def _spaced(text: str) -> str:
    return " ".join(text.lower().replace("_", " ").replace("-", " ").split())


def _is_on(value: Any) -> bool:
    return value.strip().lower() not in _NOTHING if isinstance(value, str) else bool(value)
