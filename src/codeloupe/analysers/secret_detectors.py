"""Search lines of text for secrets: by the published forms of tokens, by names, by addresses and by randomness.

Of detect-secrets, only the patterns are used, never its own way to run them: that can verify a secret over the network.
The names of the detectors are in `secrets.toml`.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from codeloupe.analysers.secret_values import (
    PATTERNS,
    SECRETS_TABLE,
    can_be_token,
    is_marked_placeholder,
    is_mixed,
    is_placeholder,
    is_reference,
    speaks_about_secrets,
)
from codeloupe.system.redaction import find_aws_secrets, find_tokens
from codeloupe.system.regex import regex

# The time on a processor that one line may take.
LINE_SECONDS = 1.0
PRIVATE_KEY = "Private Key"
KEYWORD = "Secret Keyword"
BASIC_AUTH = "Basic Auth Credentials"
ENTROPY = "High Entropy String"
WEB_TOKEN = "JSON Web Token"  # noqa: S105 - a name, not a token
# The numbers and texts of lines.
Lines = Sequence[tuple[int, str]]

_MOST_SECRETS_OF_LINE = 20
_MOST_LINES_OF_KEY = 120
# The lines after the header of a key among which its material begins.
_LINES_TO_MATERIAL = 6
_KEY_MATERIAL = regex(r"[A-Za-z0-9+/=]{32,}")
_KEY_BODY = regex(r"[A-Za-z0-9+/=]{8,}")
_TOKEN_TAIL = regex(r"[\w+/=.-]*")
_IDENTIFIER = regex(r"\w+")
_TRAILING_COMMENT = regex(r"\s+(?:#|//).*", re.DOTALL)
# Every token, key header and address with a password has one of these; four lines of code in five have none.
_LONG_RUN = regex(r"[\w+/=-]{16}|://|PRIVATE KEY")
# Every keyword of the detector has one of these.
_KEYWORD_PARTS = ("key", "pass", "pwd", "secret", "contrase")
_QUALIFIED_NAME = regex(r"::\w*$")
_BARE_VALUE = regex(r"[:=][ \t]*([A-Za-z0-9+/=_-]{20,})[ \t\r]*$")
# A password in an address, with or without a user name before it. RFC 3986 also allows brackets and quotes in it, but
# in code these end the text that contains the address.
_ADDRESS = regex(r"://(?P<user>[^:/?#\[\]@'\"()\s]*):(?P<password>[^/?#\[\]@'\"()\s]+)@")
# This machine, and the names that RFC 6761 reserves for tests and documentation.
_NOT_A_REAL_HOST = regex(
    r"(?:(?:[\w-]{1,63}\.){0,9}(?:localhost|invalid|test|example(?:\.(?:com|net|org))?)|127(?:\.[0-9]{1,3}){3}|0\.0\.0\.0)"
    r"(?![\w.-])|\[::1\]",
    re.IGNORECASE,
)


class Detectors(NamedTuple):
    """The patterns by kind, and the parts of detect-secrets that are more than a pattern."""

    patterns: tuple[tuple[str, re.Pattern[str]], ...]
    is_web_token: Any
    keywords: Any
    entropy: tuple[tuple[Any, int], ...]


_loading = threading.Lock()


@cache
def load_detectors() -> Detectors:
    """Load the detectors, without the HTTP library with which they would verify a secret, because it is slow to load.

    Raises ImportError if detect-secrets is missing, and AttributeError if it lacks a part that is named here.
    """
    names = SECRETS_TABLE["detectors"]
    plugins = _load_plugins((*names, "high_entropy_strings", "keyword"))
    patterns = [(kind, re.compile(pattern)) for kind, pattern in SECRETS_TABLE["own_patterns"].items()]
    for module, name in names.items():
        detector = getattr(plugins[module], name)
        patterns += [(detector.secret_type, pattern) for pattern in detector.denylist]
    entropy: Any = plugins["high_entropy_strings"]
    return Detectors(
        patterns=tuple(patterns),
        is_web_token=getattr(plugins["jwt"], names["jwt"]).is_formally_valid,
        keywords=plugins["keyword"],
        # Each with the shortest text that counts.
        entropy=((entropy.Base64HighEntropyString(limit=4.0), 20), (entropy.HexHighEntropyString(limit=3.0), 32)),
    )


def _load_plugins(names: Sequence[str]) -> dict[str, ModuleType]:
    """Import modules of detect-secrets; unless the program uses it or `requests`, neither stays among the modules."""
    ours = {"requests", "detect_secrets"}
    if not ours.isdisjoint(sys.modules):
        ours = set()
    try:
        if ours:
            stand_in = ModuleType("requests")
            stand_in.Response = object  # type: ignore[attr-defined]  # some detectors name it in an annotation
            sys.modules["requests"] = stand_in
        return {name: import_module(f"detect_secrets.plugins.{name}") for name in names}
    finally:
        # No other code must find the stand-in, or a module that was loaded with it.
        for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
            del sys.modules[name]


class Hit(NamedTuple):
    """A line with secrets, and their values; with an empty `kind` it belongs to the finding of another line."""

    file: str
    line: int
    kind: str
    values: tuple[str, ...]


class _Candidate(NamedTuple):
    """A possible secret in a text: its kind, value and position. The value of a key is what follows its header."""

    kind: str
    value: str
    start: int

    @property
    def end(self) -> int:
        return self.start + max(1, len(self.value))


class _TooSlow(Exception):
    """A line took longer than its share."""


def search(files: Mapping[str, Lines], is_over: Callable[[], bool]) -> tuple[list[Hit], dict[str, str]]:
    """Search files until the time is over. Return the hits, and why some files could not be searched.

    Raises as `load_detectors` does.
    """
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
            for secret in secrets:
                if secret.kind == PRIVATE_KEY:
                    hits.extend(_private_key(file, lines[index : index + _MOST_LINES_OF_KEY], secret.value))
                else:
                    hits.append(Hit(file, number, secret.kind, (secret.value,)))
    return hits, failed


def _private_key(file: str, lines: Lines, header: str) -> Iterator[Hit]:
    """Yield the lines of a key. A header counts only with key material after it; a text may just mention a header."""
    number = lines[0][0]
    following = [text for offset, (line, text) in enumerate(lines) if offset and line == number + offset]
    first_lines = (header, *following[:_LINES_TO_MATERIAL])
    is_key = not following or any(_KEY_MATERIAL.search(text) for text in first_lines)
    if not is_key or not header.startswith(("-----", ":")):
        return
    yield Hit(file, number, PRIVATE_KEY, tuple(_KEY_BODY.findall(header)))
    for offset, text in enumerate(following, start=1):
        if "-----END" in text:
            break
        yield Hit(file, number + offset, "", tuple(_KEY_BODY.findall(text)))


def _find_secrets(detectors: Detectors, file: str, text: str) -> list[_Candidate]:
    """Return the secrets in one line of a file. If two overlap, the first one counts, which is the more specific."""
    secrets: list[_Candidate] = []
    for candidate in _candidates(detectors, file, text):
        is_apart = all(candidate.end <= known.start or candidate.start >= known.end for known in secrets)
        if is_apart:
            secrets.append(candidate)
        if len(secrets) == _MOST_SECRETS_OF_LINE:
            break
    return secrets


def _candidates(detectors: Detectors, file: str, text: str) -> Iterator[_Candidate]:
    """Yield the possible secrets of a line, the specific kinds first. Raises _TooSlow.

    Some patterns are quadratic, those for keywords in the length of a run of word characters. In a part of this size
    each takes a fraction of a second, whatever is in it. The limit is processor time, so that no line is slow just
    because the machine is busy.
    """
    end = time.thread_time() + LINE_SECONDS

    def in_parts(size: int, overlap: int, search: Callable[[str], Iterator[_Candidate]]) -> Iterator[_Candidate]:
        for start in (0, *range(size - overlap, len(text) - overlap, size - overlap)):
            if start and time.thread_time() > end:
                raise _TooSlow
            for found in search(text[start : start + size]):
                yield found._replace(start=start + found.start)

    may_have_token = _LONG_RUN.search(text) is not None
    if may_have_token:
        yield from in_parts(4000, 1000, lambda part: _tokens(detectors, part))
        yield from in_parts(4000, 1000, _passwords_in_addresses)
    lowered = text.lower()
    if any(word in lowered for word in _KEYWORD_PARTS):
        yield from in_parts(1000, 200, lambda part: _by_keyword(detectors.keywords, file, part))
    if may_have_token and PATTERNS["credential"].search(text):
        yield from in_parts(4000, 1000, lambda part: _by_entropy(detectors, file, part))
    if may_have_token:
        yield from _aws_secrets(text)


def _aws_secrets(text: str) -> Iterator[_Candidate]:
    """Yield values that only their form shows to be secrets."""
    for start, end in find_aws_secrets(text):
        if not is_marked_placeholder(text[start:end]):
            yield _Candidate("AWS Secret Key", text[start:end], start)


def _tokens(detectors: Detectors, text: str) -> Iterator[_Candidate]:
    """Yield tokens by their published forms and by the patterns of detectors."""
    for start, end, form in find_tokens(text):
        value = _whole(text, start, end)
        if form.name != WEB_TOKEN and can_be_token(value):
            yield _Candidate(form.name, value, start)
    for kind, pattern in detectors.patterns:
        for match in pattern.finditer(text):
            if kind == PRIVATE_KEY:
                yield _Candidate(kind, text[match.end() :], match.start())
            elif kind != WEB_TOKEN or detectors.is_web_token(match[0]):
                yield from _token(kind, match)


def _whole(text: str, start: int, end: int) -> str:
    """Return a token with the characters after it that continue it."""
    tail = _TOKEN_TAIL.match(text, end)
    return text[start : end if tail is None else tail.end()]


def _token(kind: str, match: re.Match[str]) -> Iterator[_Candidate]:
    """Yield the secret of a match, its longest group or the whole match, if it can be a token."""
    text = match.string
    spans = [match.span(group) for group in range(1, match.re.groups + 1)] or [match.span()]
    start, end = max(spans, key=lambda span: span[1] - span[0])
    if not match.re.groups and start and text[start - 1].isalnum():
        return
    value = _whole(text, start, end)
    if can_be_token(value):
        yield _Candidate(kind, value, start)


def _passwords_in_addresses(text: str) -> Iterator[_Candidate]:
    """Yield the password of each address, with or without a user name.

    A password for this machine or for a reserved name is not a secret, nor is one that repeats the user name.
    """
    for match in _ADDRESS.finditer(text):
        password = match["password"]
        if _NOT_A_REAL_HOST.match(text, match.end()) or password == match["user"]:
            continue
        if not is_placeholder(password) and not is_reference(password):
            yield _Candidate(BASIC_AUTH, password, match.start("password"))


def _by_keyword(keywords: Any, file: str, text: str) -> Iterator[_Candidate]:
    """Yield values that are assigned to a name of a secret."""
    kind_of_file = keywords.determine_file_type(file)
    if PATTERNS["settings_file"].fullmatch(file):
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
                yield _Candidate(KEYWORD, value, start)


def _by_entropy(detectors: Detectors, file: str, text: str) -> Iterator[_Candidate]:
    """Yield random strings after a name of a credential; elsewhere they are hashes, names and test data."""
    needs_no_quotes = PATTERNS["settings_file"].fullmatch(file) or file.endswith((".yaml", ".yml"))
    for plugin, shortest in detectors.entropy:
        spans = [match.span(2) for match in plugin.regex.finditer(text)]
        if needs_no_quotes:
            spans += [match.span(1) for match in _BARE_VALUE.finditer(text)]
        for start, end in spans:
            value = text[start:end]
            is_random = len(value) >= shortest and plugin.calculate_shannon_entropy(value) > plugin.entropy_limit
            if is_random and is_mixed(value) and _is_named_credential(text[max(0, start - 60) : start]):
                yield _Candidate(ENTROPY, value, start)


def _is_named_credential(before: str) -> bool:
    """Return whether the text before a value names a credential, and neither a digest nor something about a secret."""
    if not PATTERNS["credential"].search(before) or PATTERNS["digest"].search(before):
        return False
    names = _IDENTIFIER.findall(before)
    return not names or not speaks_about_secrets(names[-1])
