"""The mistakes of one pipeline's file, collected with their lines and told together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from codeloupe.config.kinds import Mistake, Place, in_words
from codeloupe.config.yaml import (
    MOST_LISTED,
    ListNode,
    MapNode,
    Node,
    Problem,
    ScalarNode,
    closest,
    config_error,
    describe,
    escape,
    part,
    path_in_words,
    plain,
    plain_or_quoted,
    quote,
)
from codeloupe.errors import ConfigError

_HINT = "correct each line; `codeloupe pipeline schema` describes every key, `codeloupe pipeline validate` checks"
# What other programs, or other places of ours, call some of the keys.
_SYNONYMS = {
    "budget": "max_budget_usd",
    "budget_usd": "budget",
    "depends_on": "needs",
    "max_budget_usd": "budget",
    "prompt": "step",
    "timeout_seconds": "timeout",
}
_SCHEMA_HINT = "`codeloupe pipeline schema` describes every key"

Hint = Callable[[], str]


class _Complaint(Struct, frozen=True):
    """A mistake whose hint is not worked out yet: to guess what was meant takes time, and only some are shown."""

    line: int
    what: str
    hint: Hint


class Complaints:
    """What is wrong with a file, by places in its tree."""

    def __init__(self, name: str, root: MapNode) -> None:
        self._name = name
        self._root = root
        self._stage_names = _names_of_stages(plain(root))
        self._complaints: list[_Complaint] = []

    def add(self, place: Place, what: str, hint: str | Hint) -> None:
        """Complain about what stands at a place, or about its absence there."""
        _, line = part(self._root, place)
        told = f"{subject}: {what}" if (subject := self._in_words(place)) else what
        self._complaints.append(_Complaint(line, told, _said(hint) if isinstance(hint, str) else hint))

    def add_mistake(self, mistake: Mistake) -> None:
        """Complain about a value that is not of its kind."""
        blamed, _ = part(self._root, mistake.place)
        what = f"{mistake.what}, found {describe(blamed)}" if mistake.found else mistake.what
        self.add(mistake.place, what, lambda: _hint(mistake, blamed))

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Complain about what was found elsewhere, with its line."""
        for problem in problems:
            self._complaints.append(_Complaint(problem.line, problem.what, _said(problem.hint)))

    def add_odd_numbers(self) -> None:
        """Complain about numbers that mean something else than they seem to."""
        for node in _numbers_with_colons(self._root):
            what = f"{quote(node.text)} is read as the number {node.value:,}"
            self._complaints.append(_Complaint(node.line, what, _said("write a duration as 1h30m, a text in quotes")))

    def error(self) -> ConfigError | None:
        """One error for all of it, in the order of the file; None when there is nothing."""
        # An alias leads to the same place twice.
        distinct = {(each.line, each.what): each for each in self._complaints}
        ranked = sorted(distinct.values(), key=lambda each: each.line)
        hints = [each.hint() for each in ranked[:MOST_LISTED]]
        if len(ranked) > 1:
            # The one hint for all says the same once.
            hints = ["" if hint == _SCHEMA_HINT else hint for hint in hints]
        hints += [""] * (len(ranked) - len(hints))
        problems = [
            Problem(f"{escape(self._name)}:{each.line}", each.what, hint, each.line)
            for each, hint in zip(ranked, hints, strict=True)
        ]
        return config_error(problems, subject="the pipeline", hint=_HINT) if problems else None

    def _in_words(self, place: Place) -> str:
        match place:
            case ():
                return ""
            case ("stages", int(position), *rest):
                name = self._stage_names.get(position)
                stage = f"stage {plain_or_quoted(name)}" if name else f"stage {position + 1}"
                return f"{stage}: {path_in_words(plain_or_quoted(str(rest[0])), rest[1:])}" if rest else stage
            case _:
                return path_in_words(plain_or_quoted(str(place[0])), place[1:])


def _numbers_with_colons(node: Node) -> Iterator[ScalarNode]:
    """Numbers such as 1:30, which YAML reads in base 60 and people as a time, each in a way of their own."""
    match node:
        case ScalarNode():
            if ":" in node.text and isinstance(node.value, int | float) and not isinstance(node.value, bool):
                yield node
        case ListNode():
            for item in node.items:
                yield from _numbers_with_colons(item)
        case MapNode():
            for _, value in node.entries:
                yield from _numbers_with_colons(value)


def _names_of_stages(document: object) -> dict[int, str]:
    stages = document.get("stages") if isinstance(document, Mapping) else None
    named = enumerate(stages) if isinstance(stages, list) else ()
    return {
        position: stage["name"]
        for position, stage in named
        if isinstance(stage, Mapping) and isinstance(stage.get("name"), str)
    }


def _hint(mistake: Mistake, blamed: Node) -> str:
    # What is wrong is either the value or, for an unknown key, the key itself.
    value = plain(blamed) if mistake.found or not mistake.place else mistake.place[-1]
    if hint := did_you_mean(value, mistake.choices):
        return hint
    if mistake.wants_text and isinstance(value, bool | int | float):
        return "put it in quotes"
    if mistake.choices and not mistake.found:
        return f"the keys are {in_words(mistake.choices)}"
    return _SCHEMA_HINT


def nearest(word: str, known: Iterable[str], *, otherwise: str) -> Hint:
    """The hint for an unknown word, worked out when it is asked for."""
    return lambda: did_you_mean(word, known) or otherwise


def _said(hint: str) -> Hint:
    return lambda: hint


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A hint that names the known word which was probably meant; empty when none is near."""
    if not isinstance(word, str):
        return ""
    words = tuple(known)
    meant = synonym if (synonym := _SYNONYMS.get(word)) in words else closest(word, words)
    return f"did you mean `{meant}`?" if meant else ""
