"""How bad a finding is, in the words that models and their teachers have for it."""

from __future__ import annotations

from typing import Any

from codeloupe.engine.parse.patterns import late
from codeloupe.model.finding import Severity

_LONGEST_WORDS = 60
_WORD = late(r"[^\W\d_]+[0-9]?|[0-9]+")
_OTHER_NAMES = {
    **dict.fromkeys(("blocker", "blocking", "fatal", "crit"), Severity.CRITICAL),
    **dict.fromkeys(("major", "severe", "err"), Severity.HIGH),
    **dict.fromkeys(("moderate", "med", "warn"), Severity.MEDIUM),
    **dict.fromkeys(
        ("minor", "trivial", "nit", "nitpick", "note", "hint", "informational", "information"), Severity.LOW
    ),
}
_PHRASES = {"must fix": Severity.CRITICAL, "should fix": Severity.MEDIUM, "nice to have": Severity.LOW}
# They say what the other words are about.
_FILLERS = frozenset({"to", "severity", "priority", "level", "risk", "impact", "issue", "bug"})


def stated_severity(value: Any) -> Severity:
    """The severity that a value states. Raises ValueError when it states none for certain.

    Beside the accepted names: their other names ("blocker", "nit"), several together ("P1 - high"), and decoration
    ("**HIGH**"). Of two neighbours ("medium to high") the graver counts. One strange word ("not critical"), and a list
    to choose from ("high|low"), makes all of it unknown.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return Severity.parse(value)
    except ValueError:
        if not isinstance(value, str) or len(value) > _LONGEST_WORDS:
            raise
    words = [word for word in _WORD.findall(value.lower()) if word not in _FILLERS]
    if (phrase := _PHRASES.get(" ".join(words))) is not None:
        return phrase
    steps = [_named(word).priority for word in words]
    if not steps or all(word.isdigit() for word in words) or "|" in value or max(steps) - min(steps) > 1:
        raise ValueError(f"not a severity: {value!r}")
    return Severity(min(steps))


def _named(word: str) -> Severity:
    other = _OTHER_NAMES.get(word)
    return Severity.parse(word) if other is None else other
