"""What an answer states of itself beside its list of findings: that it is not whole, or that the list is not all.

Models say in a flag, a count, a verdict or a sentence what they did not list. An answer without findings is clean only
where nothing in it speaks against that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codeloupe.engine.parse.alarm import is_alarming, is_doubtful, is_reassuring, is_unfinished
from codeloupe.engine.parse.beside import (
    ASIDE,
    BENIGN,
    DEFECTS,
    ERRORS,
    GRADES,
    LIST_NAMES,
    MAX_DEPTH,
    MAX_VALUES,
    NOTHING,
    says_nothing,
    words_of,
)
from codeloupe.engine.parse.fields import Fields, plain_name
from codeloupe.engine.parse.finding_item import looks_like_item
from codeloupe.engine.parse.patterns import late
from codeloupe.engine.parse.reasons import doubtful, failed_run, shown, unlisted
from codeloupe.engine.parse.stated_severity import stated_severity
from codeloupe.model.finding import ClaimedFinding, Severity

_MAX_WORD_CHARACTERS = 60
_UNFINISHED = words_of(
    "truncated incomplete partial unfinished cut cutoff interrupted continued continue more_results has_more more "
    "timed_out timeout aborted cancelled canceled degraded is_truncated is_incomplete is_partial was_truncated cut_off "
    "to_be_continued needs_continuation"
)
_FINISHED = words_of(
    "complete completed finished done is_complete success successful succeeded ok valid readable is_valid"
)
# Words of flags: what speaks for the change when it is on, and what speaks against it.
_FOR = words_of(
    "approved approve approves pass passes passed passing lgtm clean safe secure mergeable merge acceptable correct "
    "ready reviewed"
)
_AGAINST = words_of(
    "issue issues finding findings problem problems bug bugs defect defects vulnerability vulnerabilities vulnerable "
    "flaw flaws blocker blockers blocked block blocking rejected reject failed failing unsafe insecure broken risky"
)
_WANTS = words_of("needs needed requires required requested request must")
_WANTED = words_of("changes change work fix fixes attention context more human information input")
_NEGATION = words_of("not no non without")
_UNREAD = words_of("skipped unreviewed unread unreadable omitted inaccessible remaining pending questions")
_READING = words_of("reviewed read checked analyzed analysed coverage")
_STATES = ("status", "state", "review_status", "run_status", "outcome", "result_status")
_GOOD_WORDS = words_of(
    "ok okay success successful succeeded complete completed done finished pass passed passing clean reviewed approved "
    "accept accepted approve good fine ready merged green valid no issues found none nothing problems findings lgtm "
    "review analysis is all checks the with and to merge"
)
_STOPS = ("stop_reason", "finish_reason", "stopreason", "finishreason", "termination_reason")
_GOOD_STOPS = words_of(
    "end_turn end stop stop_sequence stopped completed complete done success tool_use tool_calls eos finish normal"
)
_DECISIONS = words_of(
    "decision recommendation conclusion assessment approval overall result action verdict outcome gate judgement "
    "judgment opinion status state"
)
_BAD_WORDS = words_of(
    "fail fails failed failing failure reject rejected block blocked blocking unsafe vulnerable broken deny denied "
    "incorrect no-go closed critical severe nack insecure"
)
_BAD_PHRASES = (
    *("request changes", "changes requested", "needs work", "do not merge", "not approve", "not safe", "not merge"),
    *("high risk", "high severity"),
)
_SEVERITIES = words_of("severity risk priority")
_SCORES = words_of("score rating grade quality")
_DANGERS = words_of("risk severity danger vulnerability threat")
_TOTALS = ("count", "total", "number", "num")
_NO_COUNT = words_of("line lines file files id index version cost seconds ms tokens")
_LEADING_NUMBER = late(r"\s*(\d{1,6})\b(?!\s*[/.%:-])")
_POOR_SCORE = 0.5
# What says in a message of a run how the answer ended.
_ENDINGS = ("stop_reason", "finish_reason", "truncated", "incomplete", "is_truncated")


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
        if plain in _STOPS and isinstance(value, str) and plain_name(value) not in _GOOD_STOPS | NOTHING:
            return failed_run(f"it stopped: {shown(value)}")
        if plain in _STATES and isinstance(value, str) and not _is_good(value, is_clean=is_clean):
            return failed_run(f"its {plain} is {shown(value)}")
    for name in ERRORS:
        if _is_on(told := fields.get(name)):
            return failed_run(told[0] if isinstance(told, list) else told)
    return None


def sign_around(part: Any) -> str:
    """What an envelope tells that makes the answer in it no whole one, or nothing; messages have states too."""
    if not isinstance(part, Mapping):
        return ""
    fields = Fields(part)
    told = {name: value for name, value in part.items() if "type" not in fields or plain_name(name) in _ENDINGS}
    return sign_of_failure(told, is_clean=False) or ""


def contradiction(members: Mapping[str, Any], findings: Sequence[ClaimedFinding]) -> str | None:
    """What an answer says beside its findings that they do not tell, as a reason, or None."""
    told = objection_in(members, findings)
    return told if told or findings else _doubt(members)


def objection_in(members: Mapping[str, Any], findings: Sequence[ClaimedFinding] = ()) -> str | None:
    """What certainly speaks against an answer with no more than these findings, as a reason, or None."""
    plain = list(_members(members))
    told = (_objection(plain_name(name), value, findings, depth) for name, value, depth in plain)
    if reason := next(filter(None, told), None):
        return unlisted(reason)
    if any(finding.severity.at_least(Severity.HIGH) for finding in findings):
        return None
    texts = (text for _, text, _ in plain if isinstance(text, str))
    alarming = next((text for text in texts if is_alarming(text) or is_unfinished(text)), None)
    return None if alarming is None else unlisted(shown(alarming))


def _doubt(members: Mapping[str, Any]) -> str | None:
    """What may tell of a defect beside an empty list, as a reason, or None."""
    for name, part in members.items():
        words = set(plain_name(name).split("_"))
        unread = words & _UNREAD or (words & _NEGATION and words & _READING)
        if unread and _is_on(part):
            return doubtful(f"there is something under {shown(name)}")
        nested = isinstance(part, list) and any(isinstance(item, Mapping | list) and item for item in part)
        if nested and not words & BENIGN and plain_name(name) not in LIST_NAMES:
            return doubtful(f"what is under {shown(name)} cannot be read")
    for name, text, _ in _members(members):
        if not isinstance(text, str):
            continue
        if is_doubtful(text) or (_names_defect(name) and _may_be_one(text)):
            return doubtful(shown(text))
    return None


def _names_defect(name: str) -> bool:
    words = set(plain_name(name).split("_"))
    return bool(words & DEFECTS) and not words & (ASIDE | _SCORES)


def _may_be_one(text: str) -> bool:
    """Whether a text under a name for defects may be one: not a single word, and nothing that denies it."""
    return len(text.split()) > 1 and not says_nothing(text) and not is_reassuring(text) and not _is_grade(text)


def _is_grade(text: str) -> bool:
    try:
        stated_severity(text)
    except ValueError:
        return False
    return True


def _members(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any, int]]:
    """Every plain value in an object that is not in one of its findings, with its name."""
    if isinstance(value, Mapping):
        if depth and (looks_like_item(value) or depth > MAX_DEPTH):
            return
        for key, part in value.items():
            if not depth and plain_name(key) in LIST_NAMES:
                continue
            yield from _members(part, key, depth + 1)
    elif isinstance(value, list):
        for part in value[:MAX_VALUES] if depth <= MAX_DEPTH else ():
            yield from _members(part, name, depth + 1)
    else:
        yield name, value, depth


def _objection(name: str, value: Any, findings: Sequence[ClaimedFinding], depth: int) -> str | None:
    words = set(name.split("_"))
    if (flag := _as_flag(value, words)) is not None:
        objects = not findings and _speaks_against(words, is_on=flag)
        return f"{name} is {shown(value)}, and nothing says why" if objects else None
    if words & _SCORES:
        poor = not findings and _is_poor(value, is_danger=bool(words & _DANGERS))
        return f"{name} is {shown(value)} without findings" if poor else None
    number = _as_number(value) if words & DEFECTS or name in _TOTALS else None
    if number is not None and not words & (ASIDE | _NO_COUNT):
        known = _counted(words, findings)
        return f"{name} is {shown(value)}, and {known} are listed" if number > known else None
    if number == 0 or (value == 0 and words & _READING):
        return f"{name} is {shown(value)}" if words & _READING and not findings else None
    if isinstance(value, str) and len(value) <= _MAX_WORD_CHARACTERS and not findings:
        return _objection_in_word(name, words, value, depth)
    return None


def _as_flag(value: Any, words: set[str]) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (plain := value.strip().lower()) in ("true", "yes", "false", "no"):
        return plain in ("true", "yes")
    return bool(value) if value in (0, 1) and not isinstance(value, str) and words <= _FOR | {"is", "can"} else None


def _speaks_against(words: set[str], *, is_on: bool) -> bool:
    if words & _NEGATION:
        words, is_on = words - _NEGATION, not is_on
    if words & ASIDE:
        return False
    if words & _AGAINST or (words & _WANTS and words & _WANTED):
        return is_on
    return bool(words & _FOR) and not is_on


def _as_number(value: Any) -> float | None:
    if isinstance(value, str) and (match := _LEADING_NUMBER.match(value)):
        return int(match[1])
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _objection_in_word(name: str, words: set[str], value: str, depth: int) -> str | None:
    plain = " ".join(value.lower().replace("_", " ").replace("-", " ").split())
    stated = {word.strip(".,!:;*`") for word in plain.split()}
    is_bad = any(phrase in plain for phrase in _BAD_PHRASES) or (stated & _BAD_WORDS and not stated & _NEGATION)
    if words & _DECISIONS and is_bad:
        return f"{name} is {shown(value)}, and nothing says why"
    if words & _SEVERITIES and depth <= 2 and plain not in NOTHING:
        try:
            grade = stated_severity(value)
        except ValueError:
            return None
        return f"{name} is {shown(value)}, and nothing says why" if grade is not Severity.LOW else None
    return None


def _counted(words: set[str], findings: Sequence[ClaimedFinding]) -> int:
    grades = [grade for word in words if (grade := GRADES.get(word)) is not None]
    if not grades:
        return len(findings)
    return sum(finding.severity.at_least(max(grades, key=lambda each: each.priority)) for finding in findings)


def _is_poor(value: Any, *, is_danger: bool) -> bool:
    """Whether a score is one of a change that nobody would merge."""
    if isinstance(value, str):
        grade = value.strip().upper()
        if grade[:1] in ("D", "E", "F") and len(grade) <= 2:
            return True
        number, _, scale = value.partition("/")
        try:
            share = float(number) / float(scale) if scale else _share(float(number.strip("% ")))
        except (ValueError, ZeroDivisionError):
            return False
    elif isinstance(value, int | float):
        share = _share(value)
    else:
        return False
    return share > _POOR_SCORE if is_danger else share < _POOR_SCORE


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
        return value.strip().lower() not in NOTHING
    return bool(value)


def _is_off(value: Any) -> bool:
    return value is False or (isinstance(value, str) and value.strip().lower() in ("false", "no"))
