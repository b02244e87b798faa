"""What to look for, in words for a model: one expert with all that it knows, or several in short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from codeloupe.engine.prompt_text import one_line
from codeloupe.model.expert import Expert

# A joined checklist is paid for in each call, so that its experts share this room; alone an expert says everything.
_JOINED_CHARACTERS = 1_000
_JOINED_CHARACTERS_IN_BRIEF = 640
_FOCUS_SHARE = 0.75
_SEPARATOR = "; "


def checklist(experts: Sequence[Expert], *, in_brief: bool = False) -> str:
    """The checklist of one expert whole; of several a line each, with the first of their points that fit.

    What an expert is sceptical of, and its own guide to severity, it says only alone. `in_brief` makes
    the lines shorter.
    """
    if not experts:
        return "- correctness: anything that goes wrong when the code runs"
    if len(experts) == 1:
        return "\n".join(_whole(experts[0]))
    if in_brief:
        experts = [replace(expert, focus=tuple(_parts(expert.focus))) for expert in experts]
    room = (_JOINED_CHARACTERS_IN_BRIEF if in_brief else _JOINED_CHARACTERS) // len(experts)
    return "\n".join(f"- {_plain(expert.name)}: {_in_short(expert, room)}" for expert in experts)


def _whole(expert: Expert) -> Iterator[str]:
    yield f"- {_plain(expert.name)}: {_plain(expert.description)}"
    for title, points in (
        ("Look for", expert.focus),
        ("Be sceptical of", expert.sceptical_of),
        ("Leave out here", expert.do_not_flag),
        ("Severity here", [f"{label} = {words}" for label, words in expert.severity_guide.items()]),
    ):
        if points:
            yield f"{title}: {_joined(points)}"


def _in_short(expert: Expert, room: int) -> str:
    points = list(expert.focus or (expert.description,))
    looked_for = _joined([points[0], *_fitting(points[1:], room * _FOCUS_SHARE - len(points[0]))])
    left_out = _joined(_fitting(expert.do_not_flag, room - len(looked_for)))
    return f"{looked_for} (not: {left_out})" if left_out else looked_for


def _fitting(points: Sequence[str], room: float) -> Iterator[str]:
    """The first points that together need no more than the room."""
    for point in points:
        room -= len(_plain(point)) + len(_SEPARATOR)
        if room < 0:
            break
        yield point


def _parts(points: Sequence[str]) -> Iterator[str]:
    for point in points:
        yield from point.split(_SEPARATOR)


def _joined(points: Iterable[str]) -> str:
    return _SEPARATOR.join(_plain(point).rstrip(".;") for point in points)


def _plain(text: str) -> str:
    """One line, since a checklist is a list of lines."""
    return one_line(" ".join(text.split()))
