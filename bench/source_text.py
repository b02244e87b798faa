"""Source code as people write it, made up: names, branches, comments and messages that do not repeat. Deterministic."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from bench.languages import Language


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_NOUNS = _listed(
    "account address amount archive balance batch booking branch bucket buffer campaign carrier channel column comment"
    " connection contract coupon currency customer deadline delivery device discount document draft entry event export"
    " folder gateway header holiday index inventory invoice item journal key label lease ledger limit locale lookup"
    " manifest margin message metric notice order owner packet parcel payment period policy price profile queue quota"
    " rate reading receipt record refund region release report reservation retry route schedule segment sensor session"
    " shipment snapshot stock storage summary supplier target tenant ticket total transfer voucher warehouse window"
)
_VERBS = _listed(
    "add allocate apply archive assign build cancel charge check close collect compare confirm convert count create"
    " decode deliver describe dispatch encode estimate expire export fetch filter find format group handle import"
    " insert join load lock mark measure merge move normalise notify open parse pick plan post prepare process publish"
    " read rebuild reconcile record refresh release remove rename render replace reserve resolve restore round save"
    " schedule send settle sort split start store submit summarise sync transform update validate verify withdraw write"
)
_QUALITIES = _listed(
    "active available current default due empty expected expired external final first foreign gross initial internal"
    " invalid last late latest local maximum minimum missing net next old open original overdue partial pending"
    " previous public raw recent remaining remote shared stale total unknown unpaid valid visible"
)
_LINKS = ("before", "after", "unless", "because", "while", "once", "whenever", "since", "although", "until")
_KINDS = ("", "Store", "Error", "Service", "Client", "Policy", "Reader")
_NUMBERS = (0, 1, 2, 3, 5, 8, 10, 12, 30, 60, 100, 250, 404, 500, 1000, 3600, 8080)
_BODY = "$body"


@dataclass(slots=True)
class Function:
    """One function: what opens it, its statements, each of some lines, and what closes it."""

    head: list[str]
    statements: list[list[str]]
    tail: list[str]

    def lines(self) -> list[str]:
        """The function, without the empty lines around it."""
        return [*self.head, *(line for statement in self.statements for line in statement), *self.tail]


class Words:
    """Draws names, numbers and phrases, the same for the same seed."""

    def __init__(self, seed: int, language: Language) -> None:
        self.chance = random.Random(seed)
        self.language = language
        self._scope: list[str] = []

    def name(self, *first: str) -> str:
        """A name in the manner of the language: some words, perhaps a quality, and a noun."""
        quality = [self.chance.choice(_QUALITIES)] if self.chance.random() < 0.4 else []
        words = [*first, *quality, self.chance.choice(_NOUNS)]
        if not self.language.is_camel_case:
            return "_".join(words)
        return words[0] + "".join(word.capitalize() for word in words[1:])

    def phrase(self) -> str:
        """Some words for people."""
        pick = self.chance.choice
        said = f"{pick(_VERBS)} the {pick(_QUALITIES)} {pick(_NOUNS)}"
        return said if pick((True, False)) else f"{said} {pick(_LINKS)} the {pick(_NOUNS)} is {pick(_QUALITIES)}"

    def enter_function(self, arguments: int) -> list[str]:
        """The names of a new function's arguments; its other names come to them."""
        self._scope = list(dict.fromkeys(self.name() for _ in range(arguments)))
        return list(self._scope)

    def fill(self, template: str, **more: str) -> str:
        """A template with its places filled."""
        pick = self.chance.choice
        values = {place: self._known() for place in "vwx"}
        values |= {place: self.name(pick(_VERBS)) for place in "fg"}
        values |= {place: str(pick(_NUMBERS)) for place in "nm"}
        values |= {"T": pick(_NOUNS).capitalize() + pick(_KINDS), "s": self.phrase()}
        return Template(template).safe_substitute(values, **more)

    def _known(self) -> str:
        """A name that the function has, or now and then a new one."""
        if not self._scope or self.chance.random() < 0.25:
            self._scope.append(self.name())
        return self.chance.choice(self._scope)


def make_function(words: Words) -> Function:
    """One function of some three to a dozen statements."""
    language, chance = words.language, words.chance
    names = words.enter_function(chance.randrange(1, 4))
    kinds = language.arguments
    arguments = ", ".join(kinds[(len(name) + at) % len(kinds)].format(name) for at, name in enumerate(names))
    head = words.fill(chance.choice(language.functions), args=arguments)
    count = min(chance.randrange(2, 9), chance.randrange(2, 16))
    statements = [make_statement(words) for _ in range(count)]
    last = _indented(words.fill(chance.choice(language.returns)), language, language.depth)
    # What opens a function may bring its own indentation: a method, or words below the name.
    return Function(_reindented(head, language), [*statements, last], [language.end] if language.end else [])


def make_statement(words: Words) -> list[str]:
    """One statement, with what is nested in it, and now and then a comment above it."""
    language = words.language
    lines = _indented(words.fill(words.chance.choice(language.statements)), language, language.depth)
    simple = [one for one in language.statements if "\n" not in one and _BODY not in one]
    for place, line in reversed(list(enumerate(lines))):
        if line.endswith(_BODY):
            depth = language.depth + 1
            body = [words.fill(words.chance.choice(simple)) for _ in range(words.chance.randrange(1, 4))]
            lines[place : place + 1] = [line.removesuffix(_BODY), *_indented("\n".join(body), language, depth)]
    if words.chance.random() < 0.12:
        comment = f"{language.comment} {words.phrase().capitalize()}."
        lines = [*_indented(comment, language, language.depth), *lines]
    return lines


def _indented(text: str, language: Language, depth: int) -> list[str]:
    return [language.indent * depth + line for line in _reindented(text, language)]


def _reindented(text: str, language: Language) -> list[str]:
    """The lines with the language's own indentation in place of two spaces a step."""
    lines = text.split("\n")
    steps = [(len(line) - len(line.lstrip(" "))) // 2 for line in lines]
    return [language.indent * step + line.lstrip(" ") for step, line in zip(steps, lines, strict=True)]


def file_text(language: Language, functions: Sequence[Function]) -> str:
    """A whole file."""
    between = "\n\n\n" if not language.is_camel_case and not language.end else "\n\n"
    parts = [language.open, *("\n".join(function.lines()) for function in functions)]
    return between.join(parts) + (f"\n{language.close}" if language.close else "") + "\n"
