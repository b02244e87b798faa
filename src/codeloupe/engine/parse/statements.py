"""What is around an answer (`walk`), findings under names of a model's own (`Beside`), and what speaks against a list.

Models say in a flag, a count, a verdict or a sentence what they did not list: that the answer is not whole, or that the
list is not all. An answer without findings is clean only where nothing in it speaks against that.
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
    known_severity,
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
# Words of flags: what speaks for the change when it is on, and what speaks against it.
_FOR = _set(
    "approved approve approves pass passes passed passing lgtm clean safe secure mergeable merge acceptable correct "
    "ready reviewed"
)
_AGAINST = _NAMED_DEFECTS | _set("vulnerable blocked block rejected reject failed failing unsafe insecure broken risky")
_WANTS = _set("needs needed requires required requested request must")
_WANTED = _set("changes change work fix fixes attention context more human information input")
_UNREAD = _set("skipped unreviewed unread unreadable omitted inaccessible remaining pending questions")
_READING = _set("reviewed read checked analyzed analysed coverage")
_STATES = ("status", "state", "review_status", "run_status", "outcome", "result_status")
_GOOD_WORDS = _set(
    "ok okay success successful succeeded complete completed done finished pass passed passing clean reviewed approved "
    "accept accepted approve good fine ready merged green valid no issues found none nothing problems findings lgtm "
    "review analysis is all checks the with and to merge"
)
_BAD_STATES = _UNFINISHED | _set("error errored crashed aborted pending running")
_STOPS = ("stop_reason", "finish_reason", "stopreason", "finishreason", "termination_reason")
_GOOD_STOPS = _NOTHING | _set(
    "end_turn end stop stop_sequence stopped completed complete done success tool_use tool_calls eos finish normal"
)
_DECISIONS = _set(
    "decision recommendation conclusion assessment approval overall result action verdict outcome gate judgement "
    "judgment opinion status state"
)
_BAD_WORDS = _set(
    "fail fails failed failing failure reject rejected block blocked blocking unsafe vulnerable broken deny denied "
    "incorrect no-go closed critical severe nack insecure"
)
_BAD_PHRASES = regex(
    "request changes|changes requested|needs work|do not merge|not approve|not safe|not merge|high risk|high severity"
)
_SCORES = _set("score rating grade quality")
_DANGERS = _set("risk severity danger vulnerability threat")
_NO_COUNT = _set("line lines file files id index version cost seconds ms tokens")
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


def contradiction(members: Mapping[str, Any], findings: Sequence[ClaimedFinding] = ()) -> str | None:
    """What certainly speaks against an answer with no more than these findings, as a reason, or None."""
    plain = list(plain_values(members))
    for name, value, depth in plain:
        if reason := _objection(plain_name(name), value, findings, depth):
            return UNLISTED + reason
    if any(finding.severity.at_least(Severity.HIGH) for finding in findings):
        return None
    texts = (text for _, text, _ in plain if isinstance(text, str))
    alarming = next((text for text in texts if is_alarming(text) or is_unfinished(text)), None)
    return None if alarming is None else UNLISTED + shown(alarming)


def doubt_in(members: Mapping[str, Any]) -> str | None:
    """What may tell of a defect beside an empty list, as a reason, or None."""
    for name, part in members.items():
        named = _words_of(name)
        if (named & _UNREAD or (named & _NEGATION and named & _READING)) and _is_on(part):
            return f"{DOUBTFUL}there is something under {shown(name)}"
        nested = isinstance(part, list) and any(isinstance(item, Mapping | list) and item for item in part)
        if nested and not named & _BENIGN and plain_name(name) not in LIST_NAMES:
            return f"{DOUBTFUL}what is under {shown(name)} cannot be read"
    for name, text, _ in plain_values(members):
        if not isinstance(text, str):
            continue
        named = _words_of(name)
        # Under a name for defects, more than a single word may be one, unless it denies that.
        may_be_one = bool(named & _DEFECTS) and not named & (_ASIDE | _SCORES) and len(text.split()) > 1
        is_well = may_be_one and (says_nothing(text) or is_reassuring(text) or known_severity(text) is not None)
        if (may_be_one and not is_well) or is_doubtful(text):
            return DOUBTFUL + shown(text)
    return None


def plain_values(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any, int]]:
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
        yield name, value, depth


def _objection(name: str, value: Any, findings: Sequence[ClaimedFinding], depth: int) -> str | None:
    named = set(name.split("_"))
    if (flag := _as_flag(value, named)) is not None:
        objects = not findings and _speaks_against(named, is_on=flag)
        return f"{name} is {shown(value)}, and nothing says why" if objects else None
    if named & _SCORES:
        poor = not findings and _is_poor(value, is_danger=bool(named & _DANGERS))
        return f"{name} is {shown(value)} without findings" if poor else None
    number = None
    if named & _DEFECTS or name in ("count", "total", "number", "num"):
        leading = _LEADING_NUMBER.match(value) if isinstance(value, str) else None
        number = int(leading[1]) if leading else value if isinstance(value, int | float) else None
    if number is not None and not named & (_ASIDE | _NO_COUNT):
        least = (_grades_in(named) or [Severity.LOW])[-1]
        known = sum(finding.severity.at_least(least) for finding in findings)
        return f"{name} is {shown(value)}, and {known} are listed" if number > known else None
    if number == 0 or (value == 0 and named & _READING):
        return f"{name} is {shown(value)}" if named & _READING and not findings else None
    if isinstance(value, str) and len(value) <= 60 and not findings and _is_bad_word(named, value, depth):
        return f"{name} is {shown(value)}, and nothing says why"
    return None


def _as_flag(value: Any, named: set[str]) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (plain := value.strip().lower()) in ("true", "yes", "false", "no"):
        return plain in ("true", "yes")
    return bool(value) if value in (0, 1) and not isinstance(value, str) and named <= _FOR | {"is", "can"} else None


def _speaks_against(named: set[str], *, is_on: bool) -> bool:
    if named & _NEGATION:
        named, is_on = named - _NEGATION, not is_on
    if named & _ASIDE:
        return False
    if named & _AGAINST or (named & _WANTS and named & _WANTED):
        return is_on
    return bool(named & _FOR) and not is_on


def _is_bad_word(named: set[str], value: str, depth: int) -> bool:
    plain = _spaced(value)
    stated = {word.strip(".,!:;*`") for word in plain.split()}
    is_bad = _BAD_PHRASES.search(plain) or (stated & _BAD_WORDS and not stated & _NEGATION)
    if named & _DECISIONS and is_bad:
        return True
    is_graded = named & {"severity", "risk", "priority"} and depth <= 2 and plain not in _NOTHING
    return bool(is_graded) and known_severity(value) not in (None, Severity.LOW)


def _is_poor(value: Any, *, is_danger: bool) -> bool:
    """Whether a score, on the smallest scale it fits (1, 10 or 100), is one of a change that nobody would merge."""
    text = str(value).strip().upper()
    if text[:1] in ("D", "E", "F") and len(text) <= 2:
        return True
    number, _, scale = text.strip("% ").partition("/")
    try:
        score = float(number) / float(scale or 1)
    except (ValueError, ZeroDivisionError):
        return False
    share = score if scale or score <= 1 else score / 10 if score <= 10 else score / 100
    return share > 0.5 if is_danger else share < 0.5


def _spaced(text: str) -> str:
    return " ".join(text.lower().replace("_", " ").replace("-", " ").split())


def _is_on(value: Any) -> bool:
    return value.strip().lower() not in _NOTHING if isinstance(value, str) else bool(value)
