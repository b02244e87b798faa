"""Searches one line of text for secrets, with the detectors of detect-secrets and a few patterns of our own.

Only the detectors' patterns are used, never their own way of running them: that can verify a secret over the network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from msgspec import Struct

from codeloupe.analysers.secret_values import (
    is_marked_placeholder,
    is_placeholder,
    is_reference,
    speaks_about_secrets,
)
from codeloupe.system.token_forms import bits_per_character, find_aws_secrets, find_tokens

PRIVATE_KEY = "Private Key"
KEYWORD = "Secret Keyword"
BASIC_AUTH = "Basic Auth Credentials"
ENTROPY = "High Entropy String"
AWS_SECRET = "AWS Secret Key"  # noqa: S105 - a name, not a key
WEB_TOKEN = "JSON Web Token"  # noqa: S105 - a name, not a token

_MAX_HITS_A_LINE = 20
_WINDOW_CHARACTERS = 4000
_WINDOW_OVERLAP = 1000
# The keyword patterns are quadratic in the length of a run of word characters.
_KEYWORD_WINDOW_CHARACTERS = 1000
_KEYWORD_WINDOW_OVERLAP = 200
_NAME_CHARACTERS = 60
_SHORTEST_BASE64 = 20
_SHORTEST_HEXADECIMAL = 32
_FEWEST_BITS_OF_TOKEN = 2.5

# Module and class of each detector that is used. Not used: public IP addresses, which are no secrets.
_DETECTORS = {
    "artifactory": "ArtifactoryDetector",
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "basic_auth": "BasicAuthDetector",
    "cloudant": "CloudantDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "ibm_cloud_iam": "IbmCloudIamDetector",
    "ibm_cos_hmac": "IbmCosHmacDetector",
    "jwt": "JwtTokenDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "openai": "OpenAIDetector",
    "private_key": "PrivateKeyDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "softlayer": "SoftlayerDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
# What is known by the words around it; the forms of vendors' tokens are in `token_forms`.
_OWN_PATTERNS = {
    "Azure Shared Access Key": r"SharedAccessKey=([A-Za-z0-9+/=]{43,})",
    "Bearer Token": r"[Bb]earer +([A-Za-z0-9._~+/=-]{20,})",
    PRIVATE_KEY: r"BEGIN ENCRYPTED PRIVATE KEY|PuTTY-User-Key-File-[23]",
}
# Their patterns have groups that hold only a prefix, so the secret is the whole match.
_WHOLE_MATCH = frozenset({"GitHub Token", "GitLab Token"})
# Of a fixed length: within a longer run of letters and digits they are chance.
_EXACT_LENGTH = frozenset({"AWS Access Key", "Twilio API Key", "Telegram Bot Token", "Mailchimp Access Key"})
_NEEDS_DIGIT = frozenset(
    {
        "Artifactory Credentials",
        "Bearer Token",
        "IBM Cloud IAM Key",
        "Mailchimp Access Key",
        "SoftLayer Credentials",
        "Twilio API Key",
    }
)

_TOKEN_TAIL = re.compile(r"[\w+/=.-]*")
_IDENTIFIER = re.compile(r"\w+")
_TRAILING_COMMENT = re.compile(r"\s+(?:#|//).*", re.DOTALL)
_CREDENTIAL_WORD = re.compile(
    r"secret|token|passw|credential|api[_-]?key|(?<![a-z])auth(?!ors?\b|or_)|bearer"
    r"|(?:private|signing|encryption|access|master)[_-]?key",
    re.IGNORECASE,
)
_DIGEST_WORD = re.compile(
    r"sha-?\d|md5|digest|hash|checksum|integrity|commit|revision|fingerprint|etag|public|uuid|thumbprint|\brev\b",
    re.IGNORECASE,
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SETTINGS_FILE = re.compile(
    r"(?:.*/)?(?:\.env[^/]*|[^/]*\.(?:env|envrc|sh|bash|zsh|tfvars|npmrc|pypirc)|\.?(?:npmrc|pypirc|netrc)|dockerfile[^/]*)",
    re.IGNORECASE,
)
# What every token, key header and address with a password has; four lines of code in five do not.
_LONG_RUN = re.compile(r"[\w+/=-]{16}|://|PRIVATE KEY")
# What every keyword of the detector has.
_KEYWORD_PARTS = ("key", "pass", "pwd", "secret", "contrase")
_QUALIFIED_NAME = re.compile(r"::\w*$")
_QUOTES = "\"'`"
_EXAMPLE_HOST = re.compile(r"@(?:[\w-]+\.)*(?:example|invalid|test)\b")
_BARE_VALUE = re.compile(r"[:=][ \t]*([A-Za-z0-9+/=_-]{20,})[ \t\r]*$")


class Hit(Struct, frozen=True):
    """A secret in a text: what kind, its value, and where it begins. Of a private key, what follows its header."""

    kind: str
    value: str
    start: int


class Detectors(Struct, frozen=True):
    """The patterns by kind, and the parts of detect-secrets that are more than a pattern."""

    patterns: tuple[tuple[str, re.Pattern[str]], ...]
    is_web_token: Any
    keywords: Any
    entropy: tuple[tuple[Any, int], ...]


def load_detectors() -> Detectors:
    """Load the detectors without the HTTP library that they would verify a secret with.

    It replaces `requests` for the whole process, so call it in a process of its own. Raises ImportError when
    detect-secrets is missing, and AttributeError when it lacks a part that is named here.
    """
    stand_in = ModuleType("requests")
    stand_in.Response = object  # type: ignore[attr-defined]  # some detectors name it in an annotation
    sys.modules["requests"] = stand_in
    patterns = [(kind, re.compile(pattern)) for kind, pattern in _OWN_PATTERNS.items()]
    for module, name in _DETECTORS.items():
        detector = getattr(_plugin(module), name)
        patterns.extend((detector.secret_type, pattern) for pattern in detector.denylist)
    entropy = _plugin("high_entropy_strings")
    return Detectors(
        patterns=tuple(patterns),
        is_web_token=_plugin("jwt").JwtTokenDetector.is_formally_valid,
        keywords=_plugin("keyword"),
        entropy=(
            (entropy.Base64HighEntropyString(limit=4.0), _SHORTEST_BASE64),
            (entropy.HexHighEntropyString(limit=3.0), _SHORTEST_HEXADECIMAL),
        ),
    )


def _plugin(name: str) -> Any:
    return import_module(f"detect_secrets.plugins.{name}")


def find_secrets(detectors: Detectors, file: str, text: str) -> list[Hit]:
    """The secrets in one line of a file, none overlapping another; a specific kind wins over a general one."""
    hits: list[Hit] = []
    taken: list[tuple[int, int]] = []
    for hit in _candidates(detectors, file, text):
        end = hit.start + max(1, len(hit.value))
        if all(end <= first or hit.start >= last for first, last in taken):
            taken.append((hit.start, end))
            hits.append(hit)
            if len(hits) == _MAX_HITS_A_LINE:
                break
    return hits


def _candidates(detectors: Detectors, file: str, text: str) -> Iterator[Hit]:
    may_hold_token = _LONG_RUN.search(text) is not None
    tokens = (_WINDOW_CHARACTERS, _WINDOW_OVERLAP)
    if may_hold_token:
        yield from _in_windows(text, *tokens, lambda window: _token_hits(detectors, window))
    lowered = text.lower()
    if any(word in lowered for word in _KEYWORD_PARTS):
        keywords = (_KEYWORD_WINDOW_CHARACTERS, _KEYWORD_WINDOW_OVERLAP)
        yield from _in_windows(text, *keywords, lambda window: _keyword_hits(detectors.keywords, file, window))
    if may_hold_token and _CREDENTIAL_WORD.search(text):
        yield from _in_windows(text, *tokens, lambda window: _entropy_hits(detectors, file, window))
    if may_hold_token:
        yield from _unnamed_hits(text)


def _in_windows(text: str, size: int, overlap: int, search: Callable[[str], Iterator[Hit]]) -> Iterator[Hit]:
    """What a search finds in parts of the text, each of which overlaps the next."""
    for start in (0, *range(size - overlap, len(text) - overlap, size - overlap)):
        for hit in search(text[start : start + size]):
            yield Hit(hit.kind, hit.value, start + hit.start)


def _unnamed_hits(text: str) -> Iterator[Hit]:
    """The last resort: nothing but the form of the value tells what it is."""
    for start, end in find_aws_secrets(text):
        if not is_marked_placeholder(text[start:end]):
            yield Hit(AWS_SECRET, text[start:end], start)


def _token_hits(detectors: Detectors, text: str) -> Iterator[Hit]:
    for start, end, form in find_tokens(text):
        tail = _TOKEN_TAIL.match(text, end)
        value = text[start : tail.end() if tail else end]
        if form.name != WEB_TOKEN and _can_be_token(form.name, value):
            yield Hit(form.name, value, start)
    for kind, pattern in detectors.patterns:
        for match in pattern.finditer(text):
            if kind == PRIVATE_KEY:
                yield Hit(kind, text[match.end() :], match.start())
            elif kind != WEB_TOKEN or detectors.is_web_token(match[0]):
                hit = _token(kind, match)
                if hit is not None:
                    yield hit


def _token(kind: str, match: re.Match[str]) -> Hit | None:
    """The secret of a match, or None when it is none. Tokens longer than their pattern are taken whole."""
    text = match.string
    start, end = match.span()
    if match.re.groups and kind not in _WHOLE_MATCH:
        start, end = max(
            (match.span(group) for group in range(1, match.re.groups + 1)), key=lambda span: span[1] - span[0]
        )
    elif start and text[start - 1].isalnum():
        return None
    if kind in _EXACT_LENGTH and text[end : end + 1].isalnum():
        return None
    tail = _TOKEN_TAIL.match(text, end)
    value = text[start : tail.end() if tail else end]
    if kind == BASIC_AUTH:
        fits = not (is_placeholder(value) or is_reference(value) or _EXAMPLE_HOST.match(text, end))
    else:
        fits = _can_be_token(kind, value)
    return Hit(kind, value, start) if fits else None


def _can_be_token(kind: str, value: str) -> bool:
    if is_marked_placeholder(value) or bits_per_character(value) < _FEWEST_BITS_OF_TOKEN:
        return False
    return kind not in _NEEDS_DIGIT or any(character.isdigit() for character in value)


def _keyword_hits(keywords: Any, file: str, text: str) -> Iterator[Hit]:
    kind_of_file = keywords.determine_file_type(file)
    if _SETTINGS_FILE.fullmatch(file):
        table = keywords.CONFIG_DENYLIST_REGEX_TO_GROUP
    else:
        table = keywords.REGEX_BY_FILETYPE.get(kind_of_file, keywords.QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP)
    for pattern, group in table.items():
        for match in pattern.finditer(text):
            start = match.start(group)
            if kind_of_file is keywords.FileType.GO and text[start - 1] not in _QUOTES:
                continue  # in Go a bare word is a variable
            if _QUALIFIED_NAME.search(text, 0, match.start()):
                continue  # `Service::Secret` is the name of a type
            value = _TRAILING_COMMENT.sub("", match[group]).strip(" \t\r;,")
            names = _IDENTIFIER.findall(match[0])
            name = names[-1] if start - match.start() <= 1 else names[0]
            if not (is_placeholder(value) or is_reference(value) or speaks_about_secrets(name)):
                yield Hit(KEYWORD, value, start)


def _entropy_hits(detectors: Detectors, file: str, text: str) -> Iterator[Hit]:
    """Random strings, but only behind a name that says credential: elsewhere they are hashes, names and test data."""
    for plugin, shortest in detectors.entropy:
        spans = [match.span(2) for match in plugin.regex.finditer(text)]
        if _SETTINGS_FILE.fullmatch(file) or file.endswith((".yaml", ".yml")):
            spans.extend(match.span(1) for match in _BARE_VALUE.finditer(text))
        for start, end in spans:
            value = text[start:end]
            if (
                end - start >= shortest
                and plugin.calculate_shannon_entropy(value) > plugin.entropy_limit
                and _is_named_credential(text[max(0, start - _NAME_CHARACTERS) : start])
                and _is_mixed(value)
            ):
                yield Hit(ENTROPY, value, start)


def _is_named_credential(before: str) -> bool:
    names = _IDENTIFIER.findall(before)
    return (
        _CREDENTIAL_WORD.search(before) is not None
        and _DIGEST_WORD.search(before) is None
        and not (names and speaks_about_secrets(names[-1]))
    )


def _is_mixed(value: str) -> bool:
    """Letters and digits in turn, as a generator makes them; no path, no identifier, no placeholder."""
    return (
        any(character.isdigit() for character in value)
        and any(character.isalpha() for character in value)
        and value.count("/") + value.count("-") + value.count("_") <= len(value) // 8
        and _UUID.fullmatch(value) is None
        and not is_marked_placeholder(value)
    )
