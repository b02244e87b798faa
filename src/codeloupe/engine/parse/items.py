"""One item of a review as a claimed finding, whichever of the known spellings its fields have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from codeloupe.engine.parse.sentences import NAMES, WORDING, WORDS, folded
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity
from codeloupe.system.json_text import flaw_of, other_values
from codeloupe.system.regex import regex

EMPTY_OUTPUT = "empty output"
NO_JSON = "invalid json: no JSON found"
TRUNCATED_JSON = "invalid json: truncated"
ONLY_REASONING = "invalid json: nothing but reasoning"
# An answer with a problem that begins so is not whole, even where findings could be read beside it.
FAILED_RUN = "the run failed: "
UNLISTED = "not every finding is listed: "
# It is asked what it meant.
DOUBTFUL = "it lists no finding, and yet: "

MAX_FINDINGS = 1000
MAX_NAME_CHARACTERS = 200
MAX_PATH_CHARACTERS = 4096
MAX_TEXT_CHARACTERS = 10_000
_MAX_BODY_CHARACTERS = 20_000

_PRIORITY_IN_TITLE = regex(r"\s*\[(P[0-3])\]")
_SEVERITY_IN_TITLE = regex(r"(?i)\s*(?:\[(P[0-3])\]|[*_\[(]{0,3}(critical|blocker|P0|P1)(?:[*_\])]{1,3}:?|:)\s)")
_WORD_START = regex(r"(?<=[a-z0-9])(?=[A-Z])")
_SHARE = regex(r"\s*(\d{1,3}(?:\.\d{1,20})?|\.\d{1,20})\s*(%?)\s*")
_LINES = regex(
    r"\s*(?:[Ll]ines?\s{0,3})?[Ll]?(\d{1,9})(?::\d{1,9})?(?:\s{0,3}(?:-|–|to|\.\.|,)\s{0,3}[Ll]?(\d{1,9}))?\s*"
)
_PATH_AND_LINE = regex(
    r"\s*+`?((?:[A-Za-z]:)?[^\s:`]{1,1024}):L?(\d{1,9})(?:[-–]L?(\d{1,9})|:\d{1,9})?`?(?:\s*+(?:[-–—:|]\s++|\Z)|(?=\s))"
)
# Letters of other scripts that look like those of ours.
_LOOK_ALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0455\u0458"
    "\u0501\u04bb\u04cf\u03bd\u03bf\u03b9\u03b1\u03b5\u03c1\u03ba",
    "aeopcxyisjdhlvoiaepk",
)
_SEVERITY_WORD = regex(r"[^\W\d_]+[0-9]?|[0-9]+")
_SEVERITIES = {word: Severity.parse(name) for name, text in WORDING["severities"].items() for word in text.split()}
_SEVERITY_PHRASES = {"must fix": Severity.CRITICAL, "should fix": Severity.MEDIUM, "nice to have": Severity.LOW}


def too_many(unread: int) -> str:
    """The reason why so many findings were not read."""
    return f"{unread:,} more findings than the {MAX_FINDINGS:,} that are read"


def shown(value: Any) -> str:
    """A value as it is named in a reason: short, on one line, and words of JSON as JSON has them."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple | dict):
        return "a list" if isinstance(value, list | tuple) else "an object"
    if isinstance(value, int) and abs(value) > 10**18:
        return "a large number"
    text = " ".join(str(value)[:200].split())
    return text if len(text) <= 100 else f"{text[:100]} ..."


class Fields:
    """An object by names in one spelling: `filePath`, `File-Path` and `file path` are `file_path`."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members: dict[str, Any] = {}
        for name, value in members.items():
            self._members.setdefault(plain_name(name), value)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def get(self, *names: str) -> Any:
        """The first value under these names that is not null, or None."""
        return next((value for name in names if (value := self._members.get(name)) is not None), None)

    def has_any(self, names: Iterable[str]) -> bool:
        """Whether one of these names is there, with whatever value."""
        return any(name in self._members for name in names)

    def text(self, *names: str, most: int = MAX_NAME_CHARACTERS) -> str:
        """The first text under these names that is not blank, cut at `most` characters; nothing if there is none."""
        values = (self._members.get(name) for name in names)
        return next((value[:most] for value in values if isinstance(value, str) and value.strip()), "")


@lru_cache(maxsize=1024)
def _plain_name(name: str) -> str:
    if not name.isascii():
        name = folded(name).translate(_LOOK_ALIKES)
    return _WORD_START.sub("_", name.strip()).replace("-", "_").replace(" ", "_").lower()


def plain_name(name: object) -> str:
    """A name in the one spelling."""
    return _plain_name(name[:64]) if isinstance(name, str) else ""


def share(value: object) -> float | None:
    """A confidence between 0 and 1. What is above 1 is taken for percent; what is no such number is None."""
    is_percent = False
    if isinstance(value, str):
        match = _SHARE.fullmatch(value[:64])
        value, is_percent = (float(match[1]), bool(match[2])) if match else (None, False)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None
    return value / 100 if is_percent or value > 1 else float(value)


class ClaimedPlace(NamedTuple):
    """A place as it was stated, and the quote that goes with it."""

    file: str | None = None
    line_start: int | None = None
    line_end: int | None = None
    evidence: str = ""


def place_of(fields: Fields) -> ClaimedPlace:
    """The place that an item names, in fields or in a text such as `file.py:12 - x = 1`."""
    located = (fields.get(name) for name in (*NAMES["location"], "evidence"))
    sources = [fields, *(Fields(part) for part in located if isinstance(part, Mapping))][:2]
    written = written_place(fields.text(*NAMES["location"], most=MAX_TEXT_CHARACTERS))
    paths = (source.text(*NAMES["file"], most=MAX_PATH_CHARACTERS + 1).strip() for source in sources)
    file = next((path for path in paths if 0 < len(path) <= MAX_PATH_CHARACTERS), None) or written.file
    if file is not None and (joined := _PATH_AND_LINE.fullmatch(file)):
        written, file = _place_in(joined, ""), joined[1]
    start, end = next((lines for source in sources if (lines := _lines(source))[0]), written[1:3])
    quote = next((quote for source in sources if (quote := _quote(source))), "")
    quoted = written_place(quote)
    one, other = f"/{file or quoted.file}", f"/{quoted.file}"
    if quoted.file is not None and (one.endswith(other) or other.endswith(one)):
        start, end = (start, end) if start else quoted[1:3]
        return ClaimedPlace(file or quoted.file, start, end, quoted.evidence)
    return ClaimedPlace(file, start, end, quote)


def _quote(fields: Fields) -> str:
    rows = fields.get(*NAMES["quote"])
    is_list = isinstance(rows, list) and all(isinstance(row, str) for row in rows)
    listed = "\n".join(rows)[:MAX_TEXT_CHARACTERS] if is_list else ""
    return fields.text(*NAMES["quote"], most=MAX_TEXT_CHARACTERS) or listed


def _lines(fields: Fields) -> tuple[int | None, int | None]:
    start, end = span(fields.get(*NAMES["start"]))
    last, _ = span(fields.get("line_end", "end_line", "end"))
    return _in_order(start, last or end) if start else (last, None)


def _in_order(start: int | None, end: int | None) -> tuple[int | None, int | None]:
    return start, end if start and end and end >= start else None


def span(value: Any) -> tuple[int | None, int | None]:
    """The first and the last line in 12, "12", "L12-L15", [12, 15] or {"start": 12, "end": 15}; None for unknown."""
    if isinstance(value, Mapping):
        fields = Fields(value)
        return _line(fields.get("start", "start_line", "line")), _line(fields.get("end", "end_line"))
    if isinstance(value, list):
        return (_line(value[0]), _line(value[-1]) if len(value) > 1 else None) if value else (None, None)
    if isinstance(value, str) and (match := _LINES.fullmatch(value[:100])):
        return _line(match[1]), _line(match[2])
    return _line(value), None


def _line(value: Any) -> int | None:
    is_digits = isinstance(value, str) and value.strip().isdecimal() and len(value) < 10
    if is_digits or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value < 10**9 else None


def written_place(text: str) -> ClaimedPlace:
    """The place that a text begins with, and what follows as its quote; without a file, where none is named."""
    text = text[:MAX_TEXT_CHARACTERS]
    match = _PATH_AND_LINE.match(text)
    return _place_in(match, text[match.end() :]) if match else ClaimedPlace()


def _place_in(match: re.Match[str], rest: str) -> ClaimedPlace:
    quote = rest.strip()
    if quote in "-–—:|":
        quote = ""
    if len(quote) > 1 and quote[0] == quote[-1] == "`" and quote.count("`") == 2:
        quote = quote[1:-1]
    return ClaimedPlace(match[1], *_in_order(_line(match[2]), _line(match[3])), quote)


def known_severity(value: Any) -> Severity | None:
    """The severity that a value states for certain, or None.

    Beside the accepted names: their other names ("blocker", "nit"), several together ("P1 - high"), and decoration
    ("**HIGH**"). Of two neighbours ("medium to high") the more severe counts. One strange word ("not critical"), and a
    list to choose from ("high|low"), makes all of it unknown.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    with suppress(ValueError):
        return Severity.parse(value)
    if not isinstance(value, str) or len(value) > 60:
        return None
    stated = [word for word in _SEVERITY_WORD.findall(value.lower()) if word not in WORDS["fillers"]]
    if (phrase := _SEVERITY_PHRASES.get(" ".join(stated))) is not None:
        return phrase
    with suppress(ValueError):
        steps = [(_SEVERITIES[word] if word in _SEVERITIES else Severity.parse(word)).priority for word in stated]
        if steps and not all(map(str.isdigit, stated)) and "|" not in value and max(steps) - min(steps) <= 1:
            return Severity(min(steps))
    return None


class UnreadableItem(ValueError):
    """An item is no finding; the message is a named reason."""


def finding_of(item: Any) -> ClaimedFinding:
    """The finding that an item claims. Raises UnreadableItem."""
    if not isinstance(item, Mapping):
        raise UnreadableItem("missing field: title")
    # What is missing beside whole values takes nothing from them; `answer_of` tells of it.
    fields = Fields({name: value for name, value in item.items() if not flaw_of(value)})
    title, body = title_and_body(fields)
    return ClaimedFinding(
        **place_of(fields)._asdict(),
        severity=_severity(item, title),
        title=title,
        body=body,
        category=fields.text("category").strip(),
        suggestion=fields.text(*NAMES["suggestion"], most=_MAX_BODY_CHARACTERS) or None,
        replacement=fields.text(*NAMES["replacement"], most=_MAX_BODY_CHARACTERS + 1) or None,
        confidence=share(fields.get("confidence", "confidence_score")),
        reviewer=fields.text("reviewer").strip() or None,
        rule=fields.text("rule", "rule_id").strip() or None,
    )


def looks_like_item(value: Any) -> bool:
    """Whether an object by itself claims a finding: it has words and a severity."""
    if not isinstance(value, Mapping):
        return False
    fields = Fields(value)
    said = fields.text(*NAMES["title"], *NAMES["words"])
    # A line of a log has a level too, so that word alone says nothing here.
    return bool(said) and (fields.has_any(("severity", "priority")) or bool(_PRIORITY_IN_TITLE.match(said)))


def looks_like_unrated_item(value: Any) -> bool:
    """Whether an object claims a finding and lacks only its severity: it names a defect and a place."""
    if not isinstance(value, Mapping):
        return False
    fields = Fields(value)
    place = place_of(fields)
    names = (*NAMES["title"], *NAMES["defect"])
    is_named = fields.text(*names) and (place.file or place.line_start)
    return bool(is_named or (place.line_start and fields.text(*names, *NAMES["words"])))


def title_and_body(fields: Fields) -> tuple[str, str]:
    """A title, or else the first line or sentence of the words, and the rest. Raises UnreadableItem without any."""
    stated = fields.text(*NAMES["title"], *NAMES["words"], most=_MAX_BODY_CHARACTERS).strip()
    if not stated:
        raise UnreadableItem("missing field: title")
    title = stated.split("\n", 1)[0].strip()
    if len(title) > 120 and (end := title.find(". ", 0, 300)) > 0:
        title = title[: end + 1]
    if len(title) > 300:
        title = f"{title[:300].rstrip()} …"
    texts = (fields.text(name, most=_MAX_BODY_CHARACTERS).strip() for name in NAMES["body"])
    parts = dict.fromkeys([stated, *filter(None, texts)])
    parts.pop(title, None)
    return title, "\n\n".join(parts)[:_MAX_BODY_CHARACTERS]


def _severity(item: Mapping[str, Any], title: str) -> Severity:
    """The highest severity that an item states: two that differ leave no lower one certain."""
    stated = [
        value
        for name, value in (*item.items(), *other_values(item))
        if (plain_name(name) in NAMES["severity"] or plain_name(name).endswith("_severity"))
        and value not in (None, "")
        and not flaw_of(value)
    ]
    in_title = _SEVERITY_IN_TITLE.match(title)
    if not stated and not (in_title and in_title[1]):
        has_form = Fields(item).has_any(("file_path", "line_start", "code_location"))
        raise UnreadableItem(f"missing field: {'priority' if has_form else 'severity'}")
    also = [in_title[1] or in_title[2]] if in_title else []
    # A mistyped key after it leaves the rest of a broken object in the text: `high", "confiden'e": 0.8`.
    run_on = [value.partition('"')[0] for value in stated if isinstance(value, str) and '"' in value]
    known = [severity for value in (*stated, *run_on, *also) if (severity := known_severity(value)) is not None]
    if not known:
        raise UnreadableItem(f"invalid severity: {shown(stated[0])}")
    return min(known, key=lambda each: each.priority)


def answer_of(
    items: Iterable[Any], *, problem: str | None = None, read: Callable[[Any], ClaimedFinding] = finding_of
) -> ReviewAnswer:
    """The findings among some items, and why others could not be read; without any finding that is the problem."""
    found: list[ClaimedFinding] = []
    reasons: list[tuple[int, str]] = []
    unread = 0
    for number, item in enumerate(items, start=1):
        if len(found) >= MAX_FINDINGS:
            unread += 1
            continue
        flaw = flaw_of(item, *(item.values() if isinstance(item, Mapping) else ()))
        reason = f"invalid json: {flaw}" if flaw else ""
        try:
            found.append(read(item))
        except UnreadableItem as error:
            reason = reason or str(error)
        if reason:
            reasons.append((number, reason))
    dropped = [f"{reason} (finding {number:,})" for number, reason in reasons[:100]]
    if len(reasons) > 100:
        dropped.append(f"{len(reasons) - 100:,} more findings that could not be read")
    if unread:
        dropped.append(too_many(unread))
    problem = problem or (reasons[0][1] if reasons and not found else None)
    return ReviewAnswer(findings=tuple(found), dropped=tuple(dropped), problem=problem)
