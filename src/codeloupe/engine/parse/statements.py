"""What is around an answer, findings under names of a model's own, and what speaks against a list.

Models say in a flag, a count, a verdict or a sentence what they did not list: that the answer is not whole, or that the
list is not all. An answer without findings is clean only where nothing in it speaks against that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from codeloupe.engine.parse import items, sentences
from codeloupe.engine.parse.items import DOUBTFUL, FAILED_RUN, UNLISTED, Fields, known_severity, plain_name, shown
from codeloupe.engine.parse.sentences import NAMES, NOTHING, WORDING, WORDS
from codeloupe.model.finding import ClaimedFinding, Severity
from codeloupe.system.json_text import FlawedObject, flaw_of, other_values
from codeloupe.system.regex import regex

# A text in an envelope, in a text in an envelope, is as deep as programs go.
MAX_NESTED_TEXTS = 3
LIST_NAMES = ("findings", "issues", "aggregated_findings")
# What was said to a model is not what it says.
_OTHERS = ("user", "system", "tool", "developer")
# A message of a run has none of these; what has one is a finding or an answer of its own.
_CLAIMS = {"findings", "issues", "finding", "issue", "severity"}
_MAX_DEPTH = 6
_MAX_VALUES = 5_000
_GRADES = {word: Severity.parse(name) for name, text in WORDING["grades"].items() for word in text.split()}
_BAD_PHRASES = regex(
    "request changes|changes requested|needs work|do not merge|not approve|not safe|not merge|high risk|high severity"
)
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
    texts = [text for name in NAMES["text"] if isinstance(text := fields.get(name), str)]
    return [*texts, *(item for item in value.values() if isinstance(item, Mapping | list))]


def final_results(values: Sequence[Any]) -> Sequence[Any]:
    """Of the messages of a run only the result, where there is one: what was said before it is not the answer."""
    messages = [item for item in values if isinstance(item, Mapping)]
    results = [item for item in messages if item.get("type") == "result"]
    # All messages of a run have a type; what has none may be another answer.
    if not results or not all("type" in item for item in messages):
        return values
    if any(item["type"] != "result" and _CLAIMS & set(item) for item in messages):
        return values
    return results[-1:] if {"result", "structured_output", "is_error"} & set(results[-1]) else values


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


def items_beside(members: Iterable[tuple[str, Any]]) -> tuple[list[Any], str]:
    """What is to be read as findings in some members of an answer, and what of them cannot be read, as a reason."""
    found: list[Any] = []
    strange = ""
    not_said = (*NAMES["error"], "parse_errors", "parse_error")
    named = [(name, value) for name, value in members if plain_name(name) not in not_said]
    left: list[tuple[Any, tuple[str, ...]]] = [(value, (str(name),)) for name, value in reversed(named)]
    for _ in range(_MAX_VALUES):
        if not left:
            break
        value, above = left.pop()
        words = [_words_of(name) for name in reversed(above)]
        item = _completed(value, above) if isinstance(value, Mapping) else None
        parts: list[tuple[Any, tuple[str, ...]]] = []
        if isinstance(value, str) and len(above) > 1 and any(each & WORDS["defects"] for each in words):
            item = None if says_nothing(value) else _completed(_defect_in(value, _file_in(above)), above)
        elif isinstance(value, list):
            parts = [(part, (*above, "")) for part in value]
        elif isinstance(value, Mapping) and not items.looks_like_item(item):
            kind = next((each for each in words if each & (WORDS["defects"] | WORDS["benign"])), WORDS["defects"])
            item = value if items.looks_like_unrated_item(value) and kind & WORDS["defects"] else None
            members = value.items() if item is None else ()
            parts = [(part, (*above, str(name))) for name, part in members if isinstance(part, list | Mapping)]
        if len(above) > _MAX_DEPTH and parts:
            strange = strange or "more values than are read"
        else:
            left += reversed(parts)
        name = next((name for name in reversed(above) if _words_of(name) & (WORDS["defects"] | WORDS["aside"])), "")
        if item is not None and _words_of(name) & WORDS["aside"]:
            strange = strange or f"findings under {shown(plain_name(name))}"
        elif item is not None:
            found.append(item)
    return found, strange or ("more values than are read" if left else "")


def _defect_in(text: str, file: str | None) -> dict[str, Any]:
    """The defect that a text in a list of them is."""
    places = (items.written_place(word.strip("()[],;`'\"")) for word in text.split()[:200])
    place = next((place for place in places if place.file and place.line_start), items.ClaimedPlace())
    return {"title": text, "file": file or place.file, "line": place.line_start}


def _file_in(names: Sequence[str]) -> str | None:
    """The last of some names that is the path of a file."""
    paths = (name for name in reversed(names) if len(name) < 1_000 and " " not in name)
    return next((path for path in paths if path.rpartition(".")[0] and path.rpartition(".")[2][:1].isalnum()), None)


def _completed(item: Mapping[str, Any], above: Sequence[str]) -> Mapping[str, Any]:
    """An item with the severity and the file that the names above it state, where it states none of its own."""
    fields, whole = Fields(item), dict(item)
    grades = (_grades_in(words) for name in reversed(above) if len(words := _words_of(name)) <= 4)
    if (grade := next(filter(None, grades), None)) and not fields.has_any(NAMES["severity"]):
        whole["severity"] = grade[0].label
    file = _file_in(above)
    if file and not fields.has_any(("file", "file_path", "path", "filename", "location", "code_location")):
        whole["file"] = file
    return FlawedObject(whole, flaw, other_values(item)) if (flaw := flaw_of(item)) else whole


def names_defects(name: str) -> bool:
    """Whether a name is one for defects or for a severity."""
    return plain_name(name) not in NAMES["error"] and bool(_words_of(name) & WORDS["defects"])


def says_nothing(text: str) -> bool:
    """Whether a text in the place of a defect says that there is none."""
    plain = text.strip(" .!*_`").lower()
    return plain in NOTHING or plain.startswith(("none", "no ", "n/a", "nothing"))


def sign_of_failure(members: Mapping[str, Any], *, is_clean: bool) -> str | None:
    """What an object says of itself that makes it no whole answer, or None; of a clean one every state must be good."""
    fields = Fields(members)
    if fields.get("complete") is False:
        return f"{FAILED_RUN}it is not complete"
    for name, value in members.items():
        plain = plain_name(name)
        is_off = value is False or (isinstance(value, str) and value.strip().lower() in ("false", "no"))
        if (plain in WORDS["unfinished"] and _is_on(value)) or (plain in WORDS["finished"] and is_off):
            return FAILED_RUN + shown(f"it says {plain}: {shown(value)}")
        if plain in WORDS["stops"] and isinstance(value, str) and plain_name(value) not in WORDS["good_stops"] | {""}:
            return FAILED_RUN + shown(f"it stopped: {shown(value)}")
        if plain in WORDS["states"] and isinstance(value, str):
            stated = {word.strip(".,!") for word in _spaced(value).split()}
            if stated - WORDS["good"] if is_clean else stated & WORDS["bad_states"]:
                return FAILED_RUN + shown(f"its {plain} is {shown(value)}")
    said = next((said for name in NAMES["error"] if _is_on(said := fields.get(name))), None)
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
    alarming = next((text for text in texts if sentences.is_alarming(text) or sentences.is_unfinished(text)), None)
    return None if alarming is None else UNLISTED + shown(alarming)


def doubt_in(members: Mapping[str, Any]) -> str | None:
    """What may tell of a defect beside an empty list, as a reason, or None."""
    for name, part in members.items():
        named = _words_of(name)
        if (named & WORDS["unread"] or (named & WORDS["negation"] and named & WORDS["reading"])) and _is_on(part):
            return f"{DOUBTFUL}there is something under {shown(name)}"
        nested = isinstance(part, list) and any(isinstance(item, Mapping | list) and item for item in part)
        if nested and not named & WORDS["benign"] and plain_name(name) not in LIST_NAMES:
            return f"{DOUBTFUL}what is under {shown(name)} cannot be read"
    for name, text, _ in plain_values(members):
        if not isinstance(text, str):
            continue
        named = _words_of(name)
        # Under a name for defects, more than a single word may be one, unless it denies that.
        is_named = named & WORDS["defects"] and not named & (WORDS["aside"] | WORDS["scores"])
        may_be_one = is_named and len(text.split()) > 1
        is_well = may_be_one and (
            says_nothing(text) or sentences.is_reassuring(text) or known_severity(text) is not None
        )
        if (may_be_one and not is_well) or sentences.is_doubtful(text):
            return DOUBTFUL + shown(text)
    return None


def plain_values(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any, int]]:
    """Every plain value in an object that is not in one of its findings, with its name."""
    if isinstance(value, Mapping):
        if depth and (items.looks_like_item(value) or depth > _MAX_DEPTH):
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
    if named & WORDS["scores"]:
        poor = not findings and _is_poor(value, is_danger=bool(named & WORDS["dangers"]))
        return f"{name} is {shown(value)} without findings" if poor else None
    number = None
    if named & WORDS["defects"] or name in ("count", "total", "number", "num"):
        leading = _LEADING_NUMBER.match(value) if isinstance(value, str) else None
        number = int(leading[1]) if leading else value if isinstance(value, int | float) else None
    if number is not None and not named & (WORDS["aside"] | WORDS["no_count"]):
        least = (_grades_in(named) or [Severity.LOW])[-1]
        known = sum(finding.severity.at_least(least) for finding in findings)
        return f"{name} is {shown(value)}, and {known} are listed" if number > known else None
    if number == 0 or (value == 0 and named & WORDS["reading"]):
        return f"{name} is {shown(value)}" if named & WORDS["reading"] and not findings else None
    if isinstance(value, str) and len(value) <= 60 and not findings and _is_bad_word(named, value, depth):
        return f"{name} is {shown(value)}, and nothing says why"
    return None


def _as_flag(value: Any, named: set[str]) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (plain := value.strip().lower()) in ("true", "yes", "false", "no"):
        return plain in ("true", "yes")
    is_flag = value in (0, 1) and named <= WORDS["for"] | {"is", "can"}
    return bool(value) if is_flag else None


def _speaks_against(named: set[str], *, is_on: bool) -> bool:
    if named & WORDS["negation"]:
        named, is_on = named - WORDS["negation"], not is_on
    if named & WORDS["aside"]:
        return False
    if named & WORDS["against"] or (named & WORDS["wants"] and named & WORDS["wanted"]):
        return is_on
    return bool(named & WORDS["for"]) and not is_on


def _is_bad_word(named: set[str], value: str, depth: int) -> bool:
    plain = _spaced(value)
    stated = {word.strip(".,!:;*`") for word in plain.split()}
    is_bad = _BAD_PHRASES.search(plain) or (stated & WORDS["bad"] and not stated & WORDS["negation"])
    if named & WORDS["decisions"] and is_bad:
        return True
    is_graded = named & {"severity", "risk", "priority"} and depth <= 2 and plain not in NOTHING
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
    return value.strip().lower() not in NOTHING if isinstance(value, str) else bool(value)
