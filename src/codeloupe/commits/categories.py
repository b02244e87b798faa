"""What kind of work a commit is, by rules that are data: its message first, then its files, then words anywhere.

The rules stand in `categories.toml`, with their order and their meaning. Everything here is linear in the message, of
which only the beginning is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

from msgspec import Struct

from codeloupe.commits.phrases import Phrases, words_of
from codeloupe.engine.globs import Globs
from codeloupe.model.change import Commit
from codeloupe.model.sweep import CommitCategory

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
