"""Judge values: a secret, a placeholder for one, or a reference to one. The words are in `secrets.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from codeloupe.system.redaction import bits_per_character, is_words
from codeloupe.system.regex import regex

SECRETS_TABLE = tomllib.loads(Path(__file__).with_name("secrets.toml").read_text(encoding="utf-8"))
PATTERNS = {name: regex(text, re.VERBOSE) for name, text in SECRETS_TABLE["patterns"].items()}
_WORDS = {name: frozenset(text.split()) for name, text in SECRETS_TABLE["words"].items()}
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz" * 2, "zyxwvutsrqponmlkjihgfedcba", "qwertyuiopasdfghjklzxcvbnm")
_WORD = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_UUID = regex(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def is_marked_placeholder(value: str) -> bool:
    """Return whether the value shows that it is made up: `…EXAMPLE`, `xxxx`, an alphabet, one character repeated."""
    lowered = value.lower()
    if len(value) < 4 or len(set(lowered)) <= 2:
        return True
    if any(lowered in alphabet for alphabet in _ALPHABETS):
        return True
    return "change me" in lowered or any(part in lowered for part in _WORDS["placeholder_part"])


def is_placeholder(value: str) -> bool:
    """Return whether a reader is to replace the value, or the value is a plain word for a secret."""
    if is_marked_placeholder(value):
        return True
    if any(map(str.isdigit, value)):
        return False
    words = {word.lower() for word in _WORD.findall(value)}
    known = words & _WORDS["placeholder"]
    if any(len(word) < 3 for word in words - known):
        # Capitals all over the text: a generator made it, and the words in it are chance.
        return False
    is_default_password = len(words) == 1 and words <= _WORDS["default_password"]
    return bool(known) and not is_default_password


def is_reference(value: str) -> bool:
    """Return whether the value names the origin of a secret: a variable, a call, a template, a file, a sentence."""
    return PATTERNS["reference"].fullmatch(value) is not None


def speaks_about_secrets(name: str) -> bool:
    """Return whether a variable of that name has something about a secret, such as its file or its length."""
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _WORDS["about_a_secret"]


def can_be_token(value: str) -> bool:
    """Return whether a generator can have made the value."""
    return not is_marked_placeholder(value) and not is_words(value) and bits_per_character(value) >= 2.5


def looks_random(value: str) -> bool:
    """Return whether the value is more like the output of a generator than like a word that a person chose."""
    if len(value) < 12 or any(map(str.isspace, value)):
        return False
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return has_both and bits_per_character(value) >= 3.1


def is_mixed(value: str) -> bool:
    """Return whether letters and digits alternate as a generator makes them: no path, identifier or placeholder."""
    separators = value.count("/") + value.count("-") + value.count("_")
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    if not has_both or separators > len(value) // 8:
        return False
    return _UUID.fullmatch(value) is None and not is_marked_placeholder(value)


def mask_secrets(text: str, values: Iterable[str]) -> str:
    """Return the text without these values: at most four characters of one stay, and never more than a quarter."""
    for value in sorted(filter(None, values), key=len, reverse=True):
        shown = value[: min(4, len(value) // 4)]
        text = text.replace(value, f"{shown}********")
    return text
