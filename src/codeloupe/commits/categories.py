"""The category of a commit, by rules that are data: first by its message, then by its files, then by words anywhere.

`categories.toml` has the rules, their order and their meaning. Only the beginning of a message is read, in linear time.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice

from codeloupe.config.schema import Settings
from codeloupe.model.change import Commit, Expert
from codeloupe.model.sweep import CommitCategory
from codeloupe.planning.experts import experts_of
from codeloupe.planning.globs import Globs
from codeloupe.system.regex import regex

_WORD = regex(r"\.?\w[\w'’.+-]*")
_VERSION = r"(?:v\d{1,8}|v?\d{1,8}(?:\.\d{1,8}){1,3}[\w.+-]{0,30})"
# Up to four words, but not past a preposition: "fix the test of the parser" is about a test, "fix a crash in a test" is
# not.
_GAP = r"(?:(?!(?:in|of|for|from|to|on|with|when|if|by|at|after|and)\s)\S+\s){0,4}"
# `fix: …`, `fix(scope)!: …`, `fix : …` as in French, and a wide colon as in Chinese.
_TYPE = regex(r"(?P<type>[^\s:\uff1a()\[\]]{1,60})\s?(?:\([^()]{0,100}\))?!?\s?[:\uff1a]")
# A colon without a space after it belongs to a name: `std::move`.
_PART = rf"{_TYPE.pattern}(?=\s)"
_TAG = regex(r"\[\s?(?P<type>[^\[\]]{1,60})\s?\]")
_NOT_SHOWN = regex(r"\x1b\[[0-9;]{0,20}m|[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufe0f\ufeff]")
_MOST_SUBJECT_CHARACTERS = 500
_MOST_BODY_CHARACTERS = 4_000
_MOST_WORDS = 400
_MOST_PREFIXES = 10


@cache
def tables() -> Mapping[str, Mapping[str, list[str]]]:
    """Return the rules by kind and category, and the experts of each category."""
    return tomllib.loads(files("codeloupe.commits").joinpath("categories.toml").read_text(encoding="utf-8"))


@cache
def _phrases(name: str) -> list[tuple[CommitCategory, re.Pattern[str]]]:
    """Return the pattern of each category's phrases, for a text of `_words_of`. The first match wins."""
    patterns: list[tuple[CommitCategory, re.Pattern[str]]] = []
    for category, phrases in tables()[name].items():
        any_phrase = "|".join(map(_phrase_pattern, phrases))
        patterns.append((CommitCategory(category), re.compile(rf"(?<!\S)(?:{any_phrase})")))
    return patterns


def _phrase_pattern(phrase: str) -> str:
    return "".join(map(_word_pattern, phrase.lower().split()))


def _word_pattern(word: str) -> str:
    if word == "...":
        return _GAP
    if word == "<version>":
        return rf"{_VERSION}\s"
    pattern = re.escape(word).replace(r"\*", r"\S*")
    return rf"{pattern}\s"


def _at_beginning(name: str, words: str) -> CommitCategory | None:
    """Return the category with a phrase at the beginning of the words."""
    for category, phrases in _phrases(name):
        if phrases.match(words):
            return category
    return None


def _anywhere(name: str, words: str) -> CommitCategory | None:
    """Return the category with a phrase anywhere in the words."""
    for category, phrases in _phrases(name):
        if phrases.search(words):
            return category
    return None


def categorise(commit: Commit) -> CommitCategory:
    """Return the category of a commit; OTHER if no rule applies."""
    named, rest = _beginning(_plain(commit.subject[:_MOST_SUBJECT_CHARACTERS]))
    if named is not None:
        return named
    words = _words_of(rest)
    return (
        _at_beginning("opening", words)
        or _by_files(commit.files)
        or _at_beginning("verbs", words)
        or _anywhere("anywhere", words)
        or _anywhere("anywhere", _words_of(_plain(commit.body[:_MOST_BODY_CHARACTERS])))
        or CommitCategory.OTHER
    )


def _by_files(paths: Sequence[str]) -> CommitCategory | None:
    """Return the category whose patterns match all files of a commit."""
    if not paths:
        return None
    for name, patterns in tables()["files"].items():
        wanted = Globs(tuple(patterns), ())
        if not any(map(wanted.unwanted, paths)):
            return CommitCategory(name)
    return None


def _plain(text: str) -> str:
    """Return a text without invisible characters; controls become spaces."""
    return _NOT_SHOWN.sub(lambda match: " " if match[0] < " " else "", text).strip()


def _words_of(text: str) -> str:
    """Return the first words of a text in lower case, without the marks around them, each with a space after it."""
    words: list[str] = []
    for match in islice(_WORD.finditer(text), _MOST_WORDS):
        word = match[0].rstrip(".'’+-").lower()
        if word:
            words.append(f"{word} ")
    return "".join(words).replace("’", "'")


def _beginning(subject: str) -> tuple[CommitCategory | None, str]:
    """Return the category that the beginning of a subject names, if any, and the rest without prefixes."""
    by_emoji: CommitCategory | None = None
    for _ in range(_MOST_PREFIXES):
        if by_emoji is None:
            by_emoji, subject = _without_emoji(subject)
        named = _by_type(subject)
        if named is not None:
            return named, subject
        rest = _without_prefix(subject)
        if not rest:
            break
        subject = rest
    return by_emoji, subject


def _without_emoji(subject: str) -> tuple[CommitCategory | None, str]:
    """Return the category of the emoji at the beginning, if any, and the rest."""
    for name, signs in tables()["emoji"].items():
        for sign in signs:
            if subject.startswith(sign):
                return CommitCategory(name), subject.removeprefix(sign).lstrip()
    return None, subject


def _by_type(subject: str) -> CommitCategory | None:
    """Return the category of a conventional type or tag at the beginning: `fix: …` or `[fix] …`."""
    found = _TYPE.match(subject) or _TAG.match(subject)
    if found is None:
        return None
    word = "_".join(found["type"].lower().split())
    # `docs/api: …` begins with its type.
    first = re.split("[/,]", word)[0]
    return _at_beginning("types", f"{word} ") or _at_beginning("types", f"{first} ")


def _without_prefix(subject: str) -> str:
    """Return a subject without a ticket or the name of a part at its beginning; empty if there is no such prefix."""
    for pattern in (*tables()["skipped"]["prefixes"], _PART):
        prefix = re.match(pattern, subject, re.IGNORECASE)
        if prefix is not None:
            rest = subject[prefix.end() :].lstrip()
            if rest:
                return rest
    return ""


def commit_experts(settings: Settings) -> Mapping[CommitCategory, tuple[Expert, ...]]:
    """Return the experts for each category, from the settings or else the usual ones. Raise ConfigError."""
    usual = tables()["experts"]
    experts: dict[CommitCategory, tuple[Expert, ...]] = {}
    for category in CommitCategory:
        names = list(settings.commit_experts.get(category.value, usual[category.value]))
        # An author decides on the category: an untrusted commit that is called documentation may be anything.
        if settings.untrusted and "general" not in names:
            names.append("general")
        experts[category] = experts_of(settings, tuple(dict.fromkeys(names)))
    return experts
