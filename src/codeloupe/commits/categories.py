"""What kind of work a commit is, by rules that are data: its message first, then its files, then words anywhere.

The rules are in `categories.toml`, with their order and their meaning. Everything here is linear in the message, of
which only the beginning is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
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
# Up to four words. What follows those named here is something else: "fix the test of the parser" is about a test,
# "fix a crash in a test" is not.
_GAP = r"(?:(?!(?:in|of|for|from|to|on|with|when|if|by|at|after|and)\s)\S+\s){0,4}"
# `fix: …`, `fix(scope)!: …`, `fix : …` as in French, and a wide colon as in Chinese.
_TYPE = regex(r"(?P<type>[^\s:\uff1a()\[\]]{1,60})\s?(?:\([^()]{0,100}\))?!?\s?[:\uff1a]")
# Without a space after it a colon belongs to a name: `std::move`.
_PART = rf"{_TYPE.pattern}(?=\s)"
_TAG = regex(r"\[\s?(?P<type>[^\[\]]{1,60})\s?\]")
_NOT_SHOWN = regex(r"\x1b\[[0-9;]{0,20}m|[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufe0f\ufeff]")


@cache
def tables() -> Mapping[str, Mapping[str, list[str]]]:
    """The rules, by their kind and by category, and the experts of each."""
    return tomllib.loads(files("codeloupe.commits").joinpath("categories.toml").read_text(encoding="utf-8"))


@cache
def _phrases(name: str) -> list[tuple[CommitCategory, re.Pattern[str]]]:
    """For each category what matches its phrases in a text of `_words_of`. The category that comes first wins."""

    def word(text: str) -> str:
        if text == "...":
            return _GAP
        return (_VERSION if text == "<version>" else re.escape(text).replace(r"\*", r"\S*")) + r"\s"

    def compiled(phrases: Iterable[str]) -> re.Pattern[str]:
        any_of = "|".join("".join(map(word, phrase.lower().split())) for phrase in phrases)
        return re.compile(rf"(?<!\S)(?:{any_of})")

    return [(CommitCategory(category), compiled(phrases)) for category, phrases in tables()[name].items()]


def _first(name: str, words: str, *, anywhere: bool = False) -> CommitCategory | None:
    """The category of which a phrase begins the words, or is anywhere in them."""
    found = (category for category, phrases in _phrases(name) if (phrases.search if anywhere else phrases.match)(words))
    return next(found, None)


def categorise(commit: Commit) -> CommitCategory:
    """The category of a commit; OTHER when nothing tells."""
    named, rest = _beginning(_plain(commit.subject[:500]))
    words = _words_of(rest)
    globs = ((name, Globs(tuple(patterns), ())) for name, patterns in tables()["files"].items() if commit.files)
    by_files = (CommitCategory(name) for name, wanted in globs if not any(map(wanted.unwanted, commit.files)))
    return (
        named
        or _first("opening", words)
        or next(by_files, None)
        or _first("verbs", words)
        or _first("anywhere", words, anywhere=True)
        or _first("anywhere", _words_of(_plain(commit.body[:4_000])), anywhere=True)
        or CommitCategory.OTHER
    )


def _plain(text: str) -> str:
    """Without what nobody sees; controls become spaces."""
    return _NOT_SHOWN.sub(lambda match: " " if match[0] < " " else "", text).strip()


def _words_of(text: str) -> str:
    """The first words of a text in lower case, without the marks around them, each with a space after it."""
    found = (match[0].rstrip(".'’+-").lower() for match in islice(_WORD.finditer(text), 400))
    return "".join(f"{word} " for word in found if word).replace("’", "'")


def _beginning(subject: str) -> tuple[CommitCategory | None, str]:
    """The category that the beginning of a subject names, if any, and what is left when prefixes are taken off."""
    by_emoji: CommitCategory | None = None
    for _ in range(10):
        emoji = ((name, sign) for name, signs in tables()["emoji"].items() for sign in signs if by_emoji is None)
        for name, sign in emoji:
            if subject.startswith(sign):
                by_emoji, subject = CommitCategory(name), subject[len(sign) :].lstrip()
                break
        if found := _TYPE.match(subject) or _TAG.match(subject):
            word = "_".join(found["type"].lower().split())
            # `docs/api: …` begins with its type.
            named = _first("types", f"{word} ") or _first("types", f"{re.split('[/,]', word)[0]} ")
            if named is not None:
                return named, subject
        # What says nothing of the kind of work: a ticket, or the name of a part and a colon.
        prefixes = (re.match(text, subject, re.IGNORECASE) for text in (*tables()["skipped"]["prefixes"], _PART))
        rests = (subject[prefix.end() :].lstrip() for prefix in prefixes if prefix)
        if not (rest := next(filter(None, rests), "")):
            break
        subject = rest
    return by_emoji, subject


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
