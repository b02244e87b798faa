"""Wrong values, told with the place where each stands, what was expected there and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from codeloupe.config.kinds import Mistake, Place, Wrong, in_words
from codeloupe.config.layers import Given, Layer
from codeloupe.config.nodes import Node, describe, part, plain
from codeloupe.config.problems import Problem, escape, path_in_words
from codeloupe.config.provenance import Origin, OriginKind
from codeloupe.config.schema import kind_of
from codeloupe.config.suggestions import closest
from codeloupe.config.values import default_text


def value_problems(layer: Layer) -> Iterator[Problem]:
    """Every wrong value of a source, and every wrong part of a value in a file."""
    for key, given in layer.values.items():
        try:
            kind_of(key).read(given.value)
        except Wrong as wrong:
            if given.node is None:
                yield _whole_problem(key, given, wrong.mistakes[0])
            else:
                yield from (_file_problem(key, given, given.node, mistake) for mistake in wrong.mistakes)


def _whole_problem(key: str, given: Given, mistake: Mistake) -> Problem:
    """What a variable or a flag gives is told as a whole, as it was typed."""
    what = f"expected {kind_of(key).expected}, found {given.shown}" if mistake.found else mistake.what
    value = _at(given.value, mistake.place)
    return Problem(escape(given.origin.where), what, _hint(key, value, mistake, given.origin))


def _at(value: object, place: Place) -> object:
    match value, place:
        case (list() | tuple(), (int() as position, *_)):
            return value[position]
        case _:
            return value


def _file_problem(key: str, given: Given, node: Node, mistake: Mistake) -> Problem:
    blamed, line = part(node, mistake.place)
    if not mistake.place:
        line = given.origin.line or line
    what = f"{mistake.what}, found {describe(blamed)}" if mistake.found else mistake.what
    value = mistake.place[-1] if not mistake.found and mistake.place else plain(blamed)
    hint = _hint(key, value, mistake, given.origin)
    return Problem(f"{escape(given.origin.where)}:{line}", f"{path_in_words(key, mistake.place)}: {what}", hint, line)


def _hint(key: str, value: object, mistake: Mistake, origin: Origin) -> str:
    meant = closest(value, mistake.choices) if isinstance(value, str) else None
    if meant:
        return f"did you mean `{meant}`?"
    if mistake.wants_text and isinstance(value, bool | int | float):
        return "put it in quotes"
    match origin.kind:
        case OriginKind.ENVIRONMENT | OriginKind.FLAG if kind_of(key).from_text is None:
            return "set it in a configuration file"
        case OriginKind.ENVIRONMENT:
            return f"change or unset {origin.where}"
        case OriginKind.FLAG:
            return f"change or leave out {origin.where}"
        case _ if not mistake.place and mistake.found:
            return f"the default is {default_text(key)}"
        case _ if mistake.choices and not mistake.found:
            return f"the keys are {in_words(mistake.choices)}"
        case _:
            return "`codeloupe config schema` describes every key"
