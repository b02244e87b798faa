"""The named reasons why an answer, or an item of it, could not be read."""

from __future__ import annotations

from typing import Any

EMPTY_OUTPUT = "empty output"
NO_JSON = "invalid json: no JSON found"
TRUNCATED_JSON = "invalid json: truncated"
ONLY_REASONING = "invalid json: nothing but reasoning"
_FAILED_RUN = "the run failed"
_UNLISTED = "not every finding is listed"
_MAX_QUOTED_CHARACTERS = 100


def missing_field(name: str) -> str:
    """A field that must be there is not."""
    return f"missing field: {name}"


def invalid_verdict(stated: Any) -> str:
    """A verdict that is none of the known ones."""
    return f"invalid verdict: {shown(stated)}"


def invalid_json(flaw: str) -> str:
    """What stands for JSON cannot be read, or not wholly."""
    return f"invalid json: {flaw}"


def failed_run(told: Any) -> str:
    """What answered says itself that it failed."""
    return f"{_FAILED_RUN}: {shown(told)}"


def unlisted(told: str) -> str:
    """An answer tells, beside its list, of defects that are not in it."""
    return f"{_UNLISTED}: {told}"


def doubtful(told: str) -> str:
    """An answer lists nothing, and something beside its list may tell of a defect: it is asked what it meant."""
    return f"it lists no finding, and yet: {told}"


def claims_defects(problem: str | None) -> bool:
    """Whether a problem is that defects are claimed and not told."""
    return bool(problem) and str(problem).startswith(_UNLISTED)


def is_lasting(problem: str) -> bool:
    """Whether an answer with this problem is not whole, even where findings could be read beside it."""
    return problem == TRUNCATED_JSON or problem.startswith((_FAILED_RUN, _UNLISTED))


def shown(value: Any) -> str:
    """A value as it is named in a reason: short, on one line, and words of JSON as JSON has them."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple | dict):
        return "a list" if isinstance(value, list | tuple) else "an object"
    if isinstance(value, int) and abs(value) > 10**18:
        return "a large number"
    text = " ".join(str(value)[: 2 * _MAX_QUOTED_CHARACTERS].split())
    return text if len(text) <= _MAX_QUOTED_CHARACTERS else f"{text[:_MAX_QUOTED_CHARACTERS]} ..."
