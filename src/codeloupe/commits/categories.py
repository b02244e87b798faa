"""Phrases of whole words, searched in a text that is cut into words. Linear, whatever the text."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from msgspec import Struct

from codeloupe.engine.globs import Globs
from codeloupe.model.commit import Commit
from codeloupe.model.sweep import CommitCategory

_WORD = re.compile(r"\.?\w[\w'’.+-]*")
_VERSION = re.compile(r"v\d{1,8}|v?\d{1,8}(?:\.\d{1,8}){1,3}[\w.+-]{0,30}", re.IGNORECASE)
_GAP = "..."
_GAP_WORDS = 4
# What follows them is something else: "fix the test of the parser" is about a test, "fix a crash in a test" is not.
_ENDS_GAP = frozenset(("in", "of", "for", "from", "to", "on", "with", "when", "if", "by", "at", "after", "and"))
_MOST_WORDS = 400


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, without the marks around them; of a long text the first few hundred."""
    found = (
        match[0].rstrip(".'’+-").lower() for match, _ in zip(_WORD.finditer(text), range(_MOST_WORDS), strict=False)
    )
    return tuple(word.replace("’", "'") for word in found if word)


class _Phrase(NamedTuple):
    """One phrase of a category. `rank` is the category's place: the smaller one wins."""

    rank: int
    words: tuple[str, ...]

    def fits(self, text: Sequence[str], position: int) -> bool:
        """Whether it stands in the text from there on."""
        return _fits(self.words, text, position)


class Phrases:
    """Phrases of several categories. Where those of more than one fit, the category that was named first wins."""

    def __init__(self, phrases: Mapping[CommitCategory, Iterable[str]]) -> None:
        self._categories = tuple(phrases)
        listed = [
            _Phrase(rank, tuple(phrase.lower().split()))
            for rank, words in enumerate(phrases.values())
            for phrase in words
        ]
        # By the first word, so that a text costs one look for each of its words, and not one for each phrase.
        self._by_first: dict[str, list[_Phrase]] = {}
        self._loose: list[_Phrase] = []
        for phrase in listed:
            if _is_loose(phrase.words[0]):
                self._loose.append(phrase)
            else:
                self._by_first.setdefault(phrase.words[0], []).append(phrase)

    def at_start(self, text: Sequence[str]) -> CommitCategory | None:
        """The category whose phrase begins the text, or None."""
        return self._best(text, range(min(1, len(text))))

    def within(self, text: Sequence[str]) -> CommitCategory | None:
        """The category whose phrase stands anywhere in the text, or None."""
        return self._best(text, range(len(text)))

    def _best(self, text: Sequence[str], positions: Iterable[int]) -> CommitCategory | None:
        fitting = (
            phrase.rank
            for position in positions
            for phrase in (*self._by_first.get(text[position], ()), *self._loose)
            if phrase.fits(text, position)
        )
        rank = min(fitting, default=None)
        return None if rank is None else self._categories[rank]


def _is_loose(word: str) -> bool:
    return "*" in word or word.startswith("<")


def _fits(phrase: Sequence[str], text: Sequence[str], position: int) -> bool:
    for number, word in enumerate(phrase):
        if word == _GAP:
            rest = phrase[number + 1 :]
            return any(_fits(rest, text, place) for place in _ends_of_gap(text, position))
        if position >= len(text) or not _is(word, text[position]):
            return False
        position += 1
    return True


def _ends_of_gap(text: Sequence[str], position: int) -> Iterator[int]:
    """Where a gap that begins there may end."""
    for place in range(position, position + _GAP_WORDS + 1):
        yield place
        if place >= len(text) or text[place] in _ENDS_GAP:
            return


def _is(word: str, given: str) -> bool:
    if word == "<version>":
        return _VERSION.fullmatch(given) is not None
    match word.startswith("*"), word.endswith("*"):
        case True, True:
            return word[1:-1] in given
        case True, False:
            return given.endswith(word[1:])
        case False, True:
            return given.startswith(word[:-1])
        case _:
            return given == word


_LONGEST_SUBJECT = 500
_LONGEST_BODY = 4_000
_MOST_PREFIXES = 10
# `fix: …`, `fix(scope)!: …`, `fix : …` as in French, and a wide colon as in Chinese.
_TYPE = re.compile(r"(?P<type>[^\s:\uff1a()\[\]]{1,60})\s?(?:\([^()]{0,100}\))?!?\s?[:\uff1a]")
_TAG = re.compile(r"\[\s?(?P<type>[^\[\]]{1,60})\s?\]")
_NOT_SHOWN = re.compile(
    r"\x1b\[[0-9;]{0,20}m|[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufe0f\ufeff]"
)


class Rules(Struct, frozen=True):
    """The rules of `categories.toml`, ready to be asked."""

    skipped: tuple[re.Pattern[str], ...]
    types: Phrases
    emoji: Mapping[str, CommitCategory]
    opening: Phrases
    files: tuple[tuple[CommitCategory, Globs], ...]
    verbs: Phrases
    anywhere: Phrases


@cache
def built_in_rules() -> Rules:
    """The rules that come with the program."""
    text = files("codeloupe.commits").joinpath("categories.toml").read_text(encoding="utf-8")
    tables: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(text)
    return Rules(
        skipped=tuple(re.compile(prefix, re.IGNORECASE) for prefix in tables["skipped"]["prefixes"]),
        types=_phrases(tables["types"]),
        emoji={sign: CommitCategory(name) for name, signs in tables["emoji"].items() for sign in signs},
        opening=_phrases(tables["opening"]),
        files=tuple((CommitCategory(name), Globs(tuple(globs), ())) for name, globs in tables["files"].items()),
        verbs=_phrases(tables["verbs"]),
        anywhere=_phrases(tables["anywhere"]),
    )


def _phrases(table: Mapping[str, list[str]]) -> Phrases:
    return Phrases({CommitCategory(name): words for name, words in table.items()})


def categorise(commit: Commit, rules: Rules | None = None) -> CommitCategory:
    """The category of a commit; OTHER when nothing tells."""
    known = rules or built_in_rules()
    start = _Start(_plain(commit.subject[:_LONGEST_SUBJECT]), known)
    words = words_of(start.rest)
    return (
        start.category
        or known.opening.at_start(words)
        or _by_files(commit.files, known)
        or known.verbs.at_start(words)
        or known.anywhere.within(words)
        or known.anywhere.within(words_of(_plain(commit.body[:_LONGEST_BODY])))
        or CommitCategory.OTHER
    )


def _plain(text: str) -> str:
    """Without what nobody sees; controls become spaces."""
    return _NOT_SHOWN.sub(lambda match: " " if match[0] < " " else "", text).strip()


class _Start:
    """The beginning of a subject: the category that it names, if any, and what is left when prefixes are taken off."""

    def __init__(self, subject: str, rules: Rules) -> None:
        self._rules = rules
        self.rest = subject
        self.category: CommitCategory | None = None
        by_emoji: CommitCategory | None = None
        for _ in range(_MOST_PREFIXES):
            by_emoji = by_emoji or self._take_emoji()
            self.category = self._type()
            if self.category is not None or not self._skip():
                break
        self.category = self.category or by_emoji

    def _take_emoji(self) -> CommitCategory | None:
        for sign, category in self._rules.emoji.items():
            if self.rest.startswith(sign):
                self.rest = self.rest[len(sign) :].lstrip()
                return category
        return None

    def _type(self) -> CommitCategory | None:
        found = _TYPE.match(self.rest) or _TAG.match(self.rest)
        if found is None:
            return None
        word = found["type"].strip().lower()
        # `docs/api: …` begins with its type.
        return self._rules.types.at_start((word,)) or self._rules.types.at_start((re.split("[/,]", word)[0],))

    def _skip(self) -> bool:
        """Take off a prefix that says nothing of the kind of work: a ticket, or the name of a part and a colon."""
        for found in self._prefixes():
            left = self.rest[found.end() :].lstrip()
            if left:
                self.rest = left
                return True
        return False

    def _prefixes(self) -> Iterator[re.Match[str]]:
        for prefix in self._rules.skipped:
            if (found := prefix.match(self.rest)) is not None:
                yield found
        part = _TYPE.match(self.rest)
        # Without a space behind it a colon belongs to a name: `std::move`.
        if part is not None and self.rest[part.end() : part.end() + 1].isspace():
            yield part


def _by_files(paths: Sequence[str], rules: Rules) -> CommitCategory | None:
    if not paths:
        return None
    return next((category for category, globs in rules.files if _all_match(paths, globs)), None)


def _all_match(paths: Iterable[str], globs: Globs) -> bool:
    return all(globs.unwanted(path) is None for path in paths)
