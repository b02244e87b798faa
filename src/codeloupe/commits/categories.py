"""What kind of work a commit is, by rules that are data: its message first, then its files, then words anywhere.

The rules are in `categories.toml`, with their order and their meaning. Everything here is linear in the message, of
which only the beginning is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

from msgspec import Struct

from codeloupe.engine.globs import Globs
from codeloupe.model.change import Commit
from codeloupe.model.sweep import CommitCategory

_LONGEST_SUBJECT = 500
_LONGEST_BODY = 4_000
_MOST_PREFIXES = 10
_MOST_WORDS = 400
_GAP = "..."
_GAP_WORDS = 4
# What follows them is something else: "fix the test of the parser" is about a test, "fix a crash in a test" is not.
_ENDS_GAP = frozenset(("in", "of", "for", "from", "to", "on", "with", "when", "if", "by", "at", "after", "and"))
_WORD = re.compile(r"\.?\w[\w'’.+-]*")
_VERSION = re.compile(r"v\d{1,8}|v?\d{1,8}(?:\.\d{1,8}){1,3}[\w.+-]{0,30}", re.IGNORECASE)
# `fix: …`, `fix(scope)!: …`, `fix : …` as in French, and a wide colon as in Chinese.
_TYPE = re.compile(r"(?P<type>[^\s:\uff1a()\[\]]{1,60})\s?(?:\([^()]{0,100}\))?!?\s?[:\uff1a]")
_TAG = re.compile(r"\[\s?(?P<type>[^\[\]]{1,60})\s?\]")
_NOT_SHOWN = re.compile(
    r"\x1b\[[0-9;]{0,20}m|[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufe0f\ufeff]"
)


class Phrases:
    """Phrases of whole words, by category. Where several fit, the category that was named first wins."""

    def __init__(self, phrases: Mapping[CommitCategory, Iterable[str]]) -> None:
        self._categories = tuple(phrases)
        # By the first word, so that a text costs one look for each of its words, and not one for each phrase.
        self._by_first: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
        self._loose: list[tuple[int, tuple[str, ...]]] = []
        for rank, texts in enumerate(phrases.values()):
            for words in (tuple(text.lower().split()) for text in texts):
                is_loose = "*" in words[0] or words[0].startswith("<")
                (self._loose if is_loose else self._by_first.setdefault(words[0], [])).append((rank, words))

    def at_start(self, text: Sequence[str]) -> CommitCategory | None:
        """The category whose phrase begins the text, or None."""
        return self._best(text, range(min(1, len(text))))

    def within(self, text: Sequence[str]) -> CommitCategory | None:
        """The category whose phrase is anywhere in the text, or None."""
        return self._best(text, range(len(text)))

    def _best(self, text: Sequence[str], positions: Iterable[int]) -> CommitCategory | None:
        fitting = (
            rank
            for position in positions
            for rank, words in (*self._by_first.get(text[position], ()), *self._loose)
            if _fits(words, text, position)
        )
        rank = min(fitting, default=None)
        return None if rank is None else self._categories[rank]


def _words_of(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, without the marks around them; of a long text the first few hundred."""
    found = (
        match[0].rstrip(".'’+-").lower() for match, _ in zip(_WORD.finditer(text), range(_MOST_WORDS), strict=False)
    )
    return tuple(word.replace("’", "'") for word in found if word)


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

    def phrases(name: str) -> Phrases:
        return Phrases({CommitCategory(category): words for category, words in tables[name].items()})

    return Rules(
        skipped=tuple(re.compile(prefix, re.IGNORECASE) for prefix in tables["skipped"]["prefixes"]),
        types=phrases("types"),
        emoji={sign: CommitCategory(name) for name, signs in tables["emoji"].items() for sign in signs},
        opening=phrases("opening"),
        files=tuple((CommitCategory(name), Globs(tuple(globs), ())) for name, globs in tables["files"].items()),
        verbs=phrases("verbs"),
        anywhere=phrases("anywhere"),
    )


def categorise(commit: Commit) -> CommitCategory:
    """The category of a commit; OTHER when nothing tells."""
    rules = built_in_rules()
    named, rest = _beginning(_plain(commit.subject[:_LONGEST_SUBJECT]), rules)
    words = _words_of(rest)
    by_files = (
        category
        for category, globs in rules.files
        if commit.files and all(globs.unwanted(path) is None for path in commit.files)
    )
    return (
        named
        or rules.opening.at_start(words)
        or next(by_files, None)
        or rules.verbs.at_start(words)
        or rules.anywhere.within(words)
        or rules.anywhere.within(_words_of(_plain(commit.body[:_LONGEST_BODY])))
        or CommitCategory.OTHER
    )


def _plain(text: str) -> str:
    """Without what nobody sees; controls become spaces."""
    return _NOT_SHOWN.sub(lambda match: " " if match[0] < " " else "", text).strip()


def _beginning(subject: str, rules: Rules) -> tuple[CommitCategory | None, str]:
    """The category that the beginning of a subject names, if any, and what is left when prefixes are taken off."""
    by_emoji: CommitCategory | None = None
    for _ in range(_MOST_PREFIXES):
        sign = next((sign for sign in rules.emoji if subject.startswith(sign)), "") if by_emoji is None else ""
        if sign:
            by_emoji, subject = rules.emoji[sign], subject[len(sign) :].lstrip()
        if found := _TYPE.match(subject) or _TAG.match(subject):
            word = found["type"].strip().lower()
            # `docs/api: …` begins with its type.
            named = rules.types.at_start((word,)) or rules.types.at_start((re.split("[/,]", word)[0],))
            if named is not None:
                return named, subject
        rests = (subject[prefix.end() :].lstrip() for prefix in _prefixes(subject, rules))
        if not (rest := next(filter(None, rests), "")):
            break
        subject = rest
    return by_emoji, subject


def _prefixes(subject: str, rules: Rules) -> Iterator[re.Match[str]]:
    """What says nothing of the kind of work: a ticket, or the name of a part and a colon."""
    for prefix in rules.skipped:
        if (found := prefix.match(subject)) is not None:
            yield found
    part = _TYPE.match(subject)
    # Without a space behind it a colon belongs to a name: `std::move`.
    if part is not None and subject[part.end() : part.end() + 1].isspace():
        yield part
