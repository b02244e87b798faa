"""One item of a review as a claimed finding, whichever of the known spellings its fields have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from codeloupe.engine.parse.fields import Fields, plain_name, share
from codeloupe.engine.parse.flaws import flaw_of, other_values
from codeloupe.engine.parse.patterns import late
from codeloupe.engine.parse.places import place_of
from codeloupe.engine.parse.reasons import TRUNCATED_JSON, invalid_json, missing_field, shown
from codeloupe.engine.parse.stated_severity import stated_severity
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity

MAX_FINDINGS = 1000
MAX_SUMMARY_CHARACTERS = 10_000
_MAX_DROPPED = 100
_MAX_TITLE_CHARACTERS = 300
_LONG_TITLE_CHARACTERS = 120
_MAX_BODY_CHARACTERS = 20_000
_MAX_NAME_CHARACTERS = 200

_SEVERITY_NAMES = ("severity", "priority", "level")
_TITLE_NAMES = ("title", "headline")
_WORDS_NAMES = ("message", "description", "issue", "problem", "summary", "comment", "body", "details", "explanation")
_DEFECT_NAMES = ("issue", "problem", "bug", "defect", "vulnerability", "finding", "error")
_BODY_NAMES = ("body", "message", "description", "details", "explanation", "comment")
_SUGGESTION_NAMES = ("suggestion", "suggested_fix", "fix", "recommendation", "suggested_code")
_REPLACEMENT_NAMES = ("replacement", "replacement_code", "new_code")
_PRIORITY_IN_TITLE = late(r"\s*\[(P[0-3])\]")
_SEVERITY_IN_TITLE = late(r"(?i)\s*(?:\[(P[0-3])\]|[*_\[(]{0,3}(critical|blocker|P0|P1)(?:[*_\])]{1,3}:?|:)\s)")


class UnreadableItem(ValueError):
    """An item is no finding; the message is a named reason."""


def finding_of(item: Any) -> ClaimedFinding:
    """The finding that an item claims. Raises UnreadableItem."""
    if not isinstance(item, Mapping):
        raise UnreadableItem(missing_field("title"))
    # What is missing beside whole values takes nothing from them; `findings_of` tells of it.
    fields = Fields({name: value for name, value in item.items() if not flaw_of(value)})
    title, body = title_and_body(fields)
    place = place_of(fields)
    return ClaimedFinding(
        severity=_severity(item, title),
        title=title,
        body=body,
        file=place.file,
        line_start=place.line_start,
        line_end=place.line_end,
        category=fields.text("category", most=_MAX_NAME_CHARACTERS).strip(),
        evidence=place.quote,
        suggestion=fields.text(*_SUGGESTION_NAMES, most=_MAX_BODY_CHARACTERS) or None,
        replacement=fields.text(*_REPLACEMENT_NAMES, most=_MAX_BODY_CHARACTERS + 1) or None,
        confidence=share(fields.get("confidence", "confidence_score")),
        reviewer=fields.text("reviewer", most=_MAX_NAME_CHARACTERS).strip() or None,
        rule=fields.text("rule", "rule_id", most=_MAX_NAME_CHARACTERS).strip() or None,
    )


def looks_like_item(value: Any) -> bool:
    """Whether an object that stands alone claims a finding: it has words and a severity."""
    if not isinstance(value, Mapping):
        return False
    fields = Fields(value)
    words = fields.text(*_TITLE_NAMES, *_WORDS_NAMES, most=_MAX_NAME_CHARACTERS)
    # A line of a log has a level too, so that word alone says nothing here.
    return bool(words) and (fields.has_any(("severity", "priority")) or bool(_PRIORITY_IN_TITLE.match(words)))


def looks_like_unrated_item(value: Any) -> bool:
    """Whether an object claims a finding and lacks only its severity: it names a defect and a place."""
    if not isinstance(value, Mapping):
        return False
    fields = Fields(value)
    place = place_of(fields)
    named = fields.text(*_TITLE_NAMES, *_DEFECT_NAMES, most=_MAX_NAME_CHARACTERS)
    words = named or fields.text(*_WORDS_NAMES, most=_MAX_NAME_CHARACTERS)
    return bool(named and (place.file or place.line_start)) or bool(words and place.line_start)


def title_and_body(fields: Fields) -> tuple[str, str]:
    """A title and the rest. Without a title, the first line of the words is one, or their first sentence if it is long.

    Raises UnreadableItem when there are no words at all.
    """
    stated = fields.text(*_TITLE_NAMES, *_WORDS_NAMES, most=_MAX_BODY_CHARACTERS).strip()
    if not stated:
        raise UnreadableItem(missing_field("title"))
    title = shortened_title(stated)
    texts = (fields.text(name, most=_MAX_BODY_CHARACTERS).strip() for name in _BODY_NAMES)
    parts = dict.fromkeys([stated, *filter(None, texts)])
    parts.pop(title, None)
    return title, "\n\n".join(parts)[:_MAX_BODY_CHARACTERS]


def shortened_title(words: str) -> str:
    """The first line, or its first sentence where it is long."""
    title = words.split("\n", 1)[0].strip()
    if len(title) > _LONG_TITLE_CHARACTERS and (end := title.find(". ", 0, _MAX_TITLE_CHARACTERS)) > 0:
        title = title[: end + 1]
    return title if len(title) <= _MAX_TITLE_CHARACTERS else f"{title[:_MAX_TITLE_CHARACTERS].rstrip()} …"


def _severity(item: Mapping[str, Any], title: str) -> Severity:
    """The gravest severity that an item states: two that differ leave no lower one certain."""
    stated = [
        value
        for name, value in (*item.items(), *other_values(item))
        if (plain_name(name) in _SEVERITY_NAMES or plain_name(name).endswith("_severity"))
        and value not in (None, "")
        and not flaw_of(value)
    ]
    in_title = _SEVERITY_IN_TITLE.match(title)
    if not stated and not (in_title and in_title[1]):
        name = "priority" if Fields(item).has_any(("file_path", "line_start", "code_location")) else "severity"
        raise UnreadableItem(missing_field(name))
    known = []
    for value in [*stated, *([in_title[1] or in_title[2]] if in_title else ())]:
        try:
            known.append(stated_severity(value))
        except ValueError:
            continue
    if not known:
        raise UnreadableItem(f"invalid severity: {shown(stated[0])}")
    return min(known, key=lambda each: each.priority)


def findings_of(
    items: Iterable[Any], read: Callable[[Any], ClaimedFinding] = finding_of
) -> tuple[list[ClaimedFinding], list[str]]:
    """The findings among some items, and what could not be read of them or of others. Both are capped, and say so."""
    found: list[ClaimedFinding] = []
    reasons: list[str] = []
    unread = untold = 0
    for number, item in enumerate(items, start=1):
        if len(found) >= MAX_FINDINGS:
            unread += 1
            continue
        reason = ""
        try:
            found.append(read(item))
        except UnreadableItem as error:
            reason = str(error)
        if reason := invalid_json(flaw) if (flaw := _flaw_in(item)) else reason:
            if len(reasons) < _MAX_DROPPED:
                reasons.append(f"{reason} (finding {number:,})")
            else:
                untold += 1
    if untold:
        reasons.append(f"{untold:,} more findings that could not be read")
    if unread:
        reasons.append(too_many(unread))
    return found, reasons


def _flaw_in(item: Any) -> str:
    """What is wrong with an item or one of its values, or nothing."""
    values = item.values() if isinstance(item, Mapping) else ()
    return next((flaw for value in (item, *values) if (flaw := flaw_of(value))), "")


def answer_of(found: Sequence[ClaimedFinding], reasons: Sequence[str], *, is_cut: bool) -> ReviewAnswer | None:
    """The answer in a text that has no brackets, or None when there is nothing in it."""
    if not found and not reasons and not is_cut:
        return None
    problem = TRUNCATED_JSON if is_cut else None if found else first_reason(reasons)
    return ReviewAnswer(findings=tuple(found), dropped=tuple(reasons), problem=problem)


def first_reason(reasons: Sequence[str]) -> str | None:
    """The reason of the first item that could not be read, without its number."""
    return (reasons[0].rpartition(" (finding ")[0] or reasons[0]) if reasons else None


def too_many(unread: int) -> str:
    """That there were more findings than are taken."""
    return f"{unread:,} more findings than the {MAX_FINDINGS:,} that are read"
