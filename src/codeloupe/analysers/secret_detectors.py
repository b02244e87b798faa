"""Searches lines of text for secrets, with the detectors of detect-secrets and a few patterns of our own.

Only the detectors' patterns are used, never their own way of running them: that can verify a secret over the network.
What looks like a secret and cannot be one is left out: placeholders, references and ordinary names. The words and the
names of the detectors are in `secrets.toml`.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from codeloupe.system.regex import regex
from codeloupe.system.token_forms import bits_per_character, find_aws_secrets, find_tokens

SECRETS_TABLE = tomllib.loads(Path(__file__).with_name("secrets.toml").read_text(encoding="utf-8"))
_WORDS = {name: frozenset(text.split()) for name, text in SECRETS_TABLE["words"].items()}
_KINDS: dict[str, list[str]] = SECRETS_TABLE["kinds"]
_PATTERNS = {name: regex(text, re.VERBOSE) for name, text in SECRETS_TABLE["patterns"].items()}
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz" * 2, "zyxwvutsrqponmlkjihgfedcba", "qwertyuiopasdfghjklzxcvbnm")
_WORD = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _is_marked_placeholder(value: str) -> bool:
    """Whether the value says of itself that it is none: `…EXAMPLE`, `xxxx`, an alphabet, one character repeated."""
    lowered = value.lower()
    return (
        len(value) < 4
        or len(set(lowered)) <= 2
        or any(lowered in row for row in _ALPHABETS)
        or any(part in lowered for part in ("change me", *_WORDS["placeholder_part"]))
    )


def is_placeholder(value: str) -> bool:
    """Whether the value is for a reader to fill in, or is a plain word for a secret."""
    if _is_marked_placeholder(value):
        return True
    if any(map(str.isdigit, value)):
        return False
    words = {word.lower() for word in _WORD.findall(value)}
    if any(len(word) < 3 and word not in _WORDS["placeholder"] for word in words):
        return False  # capitals strewn over the text: a generator made it, and the words in it are chance
    return not words.isdisjoint(_WORDS["placeholder"]) and not (len(words) == 1 and words <= _WORDS["default_password"])


def is_reference(value: str) -> bool:
    """Whether the value names where a secret comes from: a variable, a call, a template, a file, a sentence."""
    return _PATTERNS["reference"].fullmatch(value) is not None


def speaks_about_secrets(name: str) -> bool:
    """Whether a variable of that name holds something about a secret, such as its file or its length."""
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _WORDS["about_a_secret"]


def looks_random(value: str) -> bool:
    """Whether the value is more like the output of a generator than like a word that somebody chose."""
    return (
        len(value) >= 12
        and not any(map(str.isspace, value))
        and any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and bits_per_character(value) >= 3.1
    )


def mask_secrets(text: str, values: Iterable[str]) -> str:
    """The text without these values: at most four characters of one stay, and never more than a quarter of it."""
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, value[: min(4, len(value) // 4)] + "********")
    return text


# The time on a processor that one line may take.
LINE_SECONDS = 1.0
Lines = Sequence[tuple[int, str]]
PRIVATE_KEY = "Private Key"
KEYWORD = "Secret Keyword"
BASIC_AUTH = "Basic Auth Credentials"
ENTROPY = "High Entropy String"
WEB_TOKEN = "JSON Web Token"  # noqa: S105 - a name, not a token

_KEY_MATERIAL = regex(r"[A-Za-z0-9+/=]{32,}")
_KEY_BODY = regex(r"[A-Za-z0-9+/=]{8,}")
_TOKEN_TAIL = regex(r"[\w+/=.-]*")
_IDENTIFIER = regex(r"\w+")
_TRAILING_COMMENT = regex(r"\s+(?:#|//).*", re.DOTALL)
_UUID = regex(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# What every token, key header and address with a password has; four lines of code in five do not.
_LONG_RUN = regex(r"[\w+/=-]{16}|://|PRIVATE KEY")
# What every keyword of the detector has.
_KEYWORD_PARTS = ("key", "pass", "pwd", "secret", "contrase")
_QUALIFIED_NAME = regex(r"::\w*$")
_EXAMPLE_HOST = regex(r"@(?:[\w-]+\.)*(?:example|invalid|test)\b")
_BARE_VALUE = regex(r"[:=][ \t]*([A-Za-z0-9+/=_-]{20,})[ \t\r]*$")


class Detectors(NamedTuple):
    """The patterns by kind, and the parts of detect-secrets that are more than a pattern."""

    patterns: tuple[tuple[str, re.Pattern[str]], ...]
    is_web_token: Any
    keywords: Any
    entropy: tuple[tuple[Any, int], ...]


_loading = threading.Lock()


@cache
def load_detectors() -> Detectors:
    """Load the detectors, without the HTTP library that they would verify a secret with, which is slow to load.

    Raises ImportError when detect-secrets is missing, and AttributeError when it lacks a part that is named here.
    """
    names = SECRETS_TABLE["detectors"]
    ours = {"requests", "detect_secrets"} if {"requests", "detect_secrets"}.isdisjoint(sys.modules) else set()
    try:
        if ours:
            stand_in = ModuleType("requests")
            stand_in.Response = object  # type: ignore[attr-defined]  # some detectors name it in an annotation
            sys.modules["requests"] = stand_in
        modules = (*names, "high_entropy_strings", "keyword")
        plugins = {name: import_module(f"detect_secrets.plugins.{name}") for name in modules}
    finally:  # nobody else is to meet the stand-in, nor what was loaded with it
        for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
            del sys.modules[name]
    detectors = {module: getattr(plugins[module], name) for module, name in names.items()}
    patterns = [(kind, re.compile(pattern)) for kind, pattern in SECRETS_TABLE["own_patterns"].items()]
    patterns += [(detector.secret_type, pattern) for detector in detectors.values() for pattern in detector.denylist]
    entropy: Any = plugins["high_entropy_strings"]
    return Detectors(
        patterns=tuple(patterns),
        is_web_token=detectors["jwt"].is_formally_valid,
        keywords=plugins["keyword"],
        # Each with the shortest text that counts.
        entropy=((entropy.Base64HighEntropyString(limit=4.0), 20), (entropy.HexHighEntropyString(limit=3.0), 32)),
    )


class Hit(NamedTuple):
    """A line that holds secrets, the values; with an empty `kind` it belongs to the finding of another line."""

    file: str
    line: int
    kind: str
    values: tuple[str, ...]


# A secret in a text: what kind, its value (of a private key, what follows its header), and where it begins.
_Candidate = tuple[str, str, int]


class _TooSlow(Exception):
    """A line took longer than its share."""


def search(files: Mapping[str, Lines], is_over: Callable[[], bool]) -> tuple[list[Hit], dict[str, str]]:
    """What is found in files until the time is over, and why some could not be searched. Raises as the loading does."""
    with _loading:
        detectors = load_detectors()
    hits: list[Hit] = []
    failed: dict[str, str] = {}
    for file, lines in files.items():
        for index, (number, text) in enumerate(lines):
            if is_over():
                failed[file] = "the time ran out before all its added lines were searched for secrets"
                break
            try:
                secrets = _find_secrets(detectors, file, text)
            except _TooSlow:
                failed[file] = f"line {number} took too long to search for secrets"
                continue
            for kind, value, _ in secrets:
                if kind == PRIVATE_KEY:
                    hits.extend(_private_key(file, lines[index : index + 120], value))
                else:
                    hits.append(Hit(file, number, kind, (value,)))
    return hits, failed


def _private_key(file: str, lines: Lines, header: str) -> Iterator[Hit]:
    """A header counts only with key material after it; text that merely mentions the header is no key."""
    number = lines[0][0]
    following = [text for offset, (line, text) in enumerate(lines) if offset and line == number + offset]
    is_key = not following or any(_KEY_MATERIAL.search(text) for text in (header, *following[:6]))
    if not is_key or not header.startswith(("-----", ":")):
        return
    yield Hit(file, number, PRIVATE_KEY, tuple(_KEY_BODY.findall(header)))
    for offset, text in enumerate(following, start=1):
        if "-----END" in text:
            break
        yield Hit(file, number + offset, "", tuple(_KEY_BODY.findall(text)))


def _find_secrets(detectors: Detectors, file: str, text: str) -> list[_Candidate]:
    """The secrets in one line of a file, none overlapping another; a specific kind wins over a general one."""
    secrets: list[_Candidate] = []
    for kind, value, start in _candidates(detectors, file, text):
        end = start + max(1, len(value))
        if all(end <= begin or start >= begin + max(1, len(known)) for _, known, begin in secrets):
            secrets.append((kind, value, start))
            if len(secrets) == 20:
                break
    return secrets


def _candidates(detectors: Detectors, file: str, text: str) -> Iterator[_Candidate]:
    # Some patterns are quadratic, those for keywords in the length of a run of word characters: in a part of this size
    # each takes a fraction of a second, whatever is in it. A busy machine makes no line slow: it is processor time.
    end = time.thread_time() + LINE_SECONDS

    def in_parts(size: int, overlap: int, search: Callable[[str], Iterator[_Candidate]]) -> Iterator[_Candidate]:
        for start in (0, *range(size - overlap, len(text) - overlap, size - overlap)):
            if start and time.thread_time() > end:
                raise _TooSlow
            for kind, value, begin in search(text[start : start + size]):
                yield kind, value, start + begin

    may_hold_token = _LONG_RUN.search(text) is not None
    if may_hold_token:
        yield from in_parts(4000, 1000, lambda part: _tokens(detectors, part))
    lowered = text.lower()
    if any(word in lowered for word in _KEYWORD_PARTS):
        yield from in_parts(1000, 200, lambda part: _by_keyword(detectors.keywords, file, part))
    if may_hold_token and _PATTERNS["credential"].search(text):
        yield from in_parts(4000, 1000, lambda part: _by_entropy(detectors, file, part))
    # The last resort: only the form of the value shows what it is.
    for start, end in find_aws_secrets(text) if may_hold_token else ():
        if not _is_marked_placeholder(text[start:end]):
            yield "AWS Secret Key", text[start:end], start


def _tokens(detectors: Detectors, text: str) -> Iterator[_Candidate]:
    for start, end, form in find_tokens(text):
        value = _whole(text, start, end)
        if form.name != WEB_TOKEN and _can_be_token(form.name, value):
            yield form.name, value, start
    for kind, pattern in detectors.patterns:
        for match in pattern.finditer(text):
            if kind == PRIVATE_KEY:
                yield kind, text[match.end() :], match.start()
            elif kind != WEB_TOKEN or detectors.is_web_token(match[0]):
                yield from _token(kind, match)


def _whole(text: str, start: int, end: int) -> str:
    """A token that is longer than its pattern is taken whole."""
    tail = _TOKEN_TAIL.match(text, end)
    return text[start : tail.end() if tail else end]


def _token(kind: str, match: re.Match[str]) -> Iterator[_Candidate]:
    """The secret of a match, if it is one."""
    text = match.string
    start, end = match.span()
    if match.re.groups and kind not in _KINDS["whole_match"]:
        spans = (match.span(group) for group in range(1, match.re.groups + 1))
        start, end = max(spans, key=lambda span: span[1] - span[0])
    elif start and text[start - 1].isalnum():
        return
    if kind in _KINDS["exact_length"] and text[end : end + 1].isalnum():
        return
    value = _whole(text, start, end)
    is_example = kind == BASIC_AUTH and (is_placeholder(value) or is_reference(value) or _EXAMPLE_HOST.match(text, end))
    if (kind == BASIC_AUTH and not is_example) or (kind != BASIC_AUTH and _can_be_token(kind, value)):
        yield kind, value, start


def _can_be_token(kind: str, value: str) -> bool:
    if _is_marked_placeholder(value) or bits_per_character(value) < 2.5:
        return False
    return kind not in _KINDS["needs_digit"] or any(map(str.isdigit, value))


def _by_keyword(keywords: Any, file: str, text: str) -> Iterator[_Candidate]:
    kind_of_file = keywords.determine_file_type(file)
    if _PATTERNS["settings_file"].fullmatch(file):
        table = keywords.CONFIG_DENYLIST_REGEX_TO_GROUP
    else:
        table = keywords.REGEX_BY_FILETYPE.get(kind_of_file, keywords.QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP)
    for pattern, group in table.items():
        for match in pattern.finditer(text):
            start = match.start(group)
            if kind_of_file is keywords.FileType.GO and text[start - 1] not in "\"'`":
                continue  # in Go a bare word is a variable
            if _QUALIFIED_NAME.search(text, 0, match.start()):
                continue  # `Service::Secret` is the name of a type
            value = _TRAILING_COMMENT.sub("", match[group]).strip(" \t\r;,")
            names = _IDENTIFIER.findall(match[0])
            name = names[-1] if start - match.start() <= 1 else names[0]
            if not (is_placeholder(value) or is_reference(value) or speaks_about_secrets(name)):
                yield KEYWORD, value, start


def _by_entropy(detectors: Detectors, file: str, text: str) -> Iterator[_Candidate]:
    """Random strings, but only after a name that says credential: elsewhere they are hashes, names and test data."""
    for plugin, shortest in detectors.entropy:
        spans = [match.span(2) for match in plugin.regex.finditer(text)]
        if _PATTERNS["settings_file"].fullmatch(file) or file.endswith((".yaml", ".yml")):
            spans.extend(match.span(1) for match in _BARE_VALUE.finditer(text))
        for start, end in spans:
            value, before = text[start:end], text[max(0, start - 60) : start]
            if end - start >= shortest and plugin.calculate_shannon_entropy(value) > plugin.entropy_limit:
                names = _IDENTIFIER.findall(before)
                is_named = _PATTERNS["credential"].search(before) and not _PATTERNS["digest"].search(before)
                if is_named and not (names and speaks_about_secrets(names[-1])) and _is_mixed(value):
                    yield ENTROPY, value, start


def _is_mixed(value: str) -> bool:
    """Letters and digits in turn, as a generator makes them; no path, no identifier, no placeholder."""
    return (
        any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and value.count("/") + value.count("-") + value.count("_") <= len(value) // 8
        and _UUID.fullmatch(value) is None
        and not _is_marked_placeholder(value)
    )
