"""Searches lines of text for secrets, with the detectors of detect-secrets and a few patterns of our own.

Only the detectors' patterns are used, never their own way of running them: that can verify a secret over the network.
What looks like a secret and cannot be one is left out: placeholders, references and ordinary names.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any

from msgspec import Struct, field

from codeloupe.system.token_forms import bits_per_character, find_aws_secrets, find_tokens

_SHORTEST_VALUE = 4
_SHORTEST_RANDOM = 12
_RANDOM_BITS_PER_CHARACTER = 3.1
_MASK = "********"

# Words of which a made-up value consists; a value that holds one of them and no digit is no real secret.
_PLACEHOLDER_WORDS = frozenset(
    """
    access admin api auth bar basic baz bearer blank client credential credentials default demo dev dummy empty env
    example fake false field fixture foo foobar here hidden inherit insert invalid key keyring label local localhost
    lorem mock my name new nil no none null old optional pass passphrase passwd password passwords placeholder plain
    private prompt pwd redacted required sample secret secrets secure service shared some string stub temp template
    test testing text todo token true undefined unknown unset user username value var variable vault wrong yes your
    """.split()  # noqa: SIM905 - a list of words is easiest to read as text
)
# Alone these are common default passwords, so they count as placeholders only beside another such word.
_DEFAULT_PASSWORDS = frozenset({"admin", "user", "default", "access", "service", "vault", "local", "demo", "dev"})
_PLACEHOLDER_PARTS = (
    "example", "changeme", "change_me", "change-me", "change me", "placeholder", "redacted", "dummy", "notasecret",
    "not-a-secret", "not_a_secret", "yourpass", "your-", "your_", "yourkey", "yoursecret", "yourtoken", "replace",
    "xxxx", "****", "....", "todo", "fixme", "lorem", "fake",
)  # fmt: skip
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz" * 2, "zyxwvutsrqponmlkjihgfedcba", "qwertyuiopasdfghjklzxcvbnm")
_REFERENCE = re.compile(
    r"""
    \$[\w{(] .*                                  # $NAME, ${NAME}, $(command)
    | .* (?: \$\{ | \{\{ | \}\} | <% | %\( ) .*  # a template with a hole in it
    | \{ .* \} | < .* > | \[ .* \] | %\w* %?
    | !(?: vault | env | ref | sub | getatt | secret | include | file )\b .*
    | \( .* | .* (?: \benviron\b | \bgetenv\b | process\.env | \benv\. | \bsecrets\. | \bsettings\. | \bconfig\. ) .*
    | [a-z_][\w.:>-]* (?: \( .* | \[ .* )        # a call or a look-up
    | [a-z_]\w* (?: (?: \. | -> | :: ) [a-z_]\w* )+   # an attribute
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_LOCATION = re.compile(r"(?:\.{0,2}/|~/|[a-z]:\\|[a-z][a-z0-9+.-]*://).*", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# The last word of a name that speaks about a secret and does not hold one, as in `secret_name`.
_ABOUT_A_SECRET = frozenset(
    """
    alias arn attribute attempts age available callback changed class column confirm confirmation config context count
    date dir directory enabled encoding endpoint engine env error errors expired expires expiry exists field fields file
    filename flow form format func function hash hasher hashers header headers help hint id identifier ids input invalid
    kind label labels len length limit link list location manager mapping max message method min minlength mode model
    module name names namespace option options page param parameter parameters params path paths pattern placeholder
    plugin policy position prefix prompt property provider read ref reference regex regexp required requirements reset
    resource role route rule rules schema scope screen selector size source status store storage strategy strength
    suffix sum table template text threshold time timeout title ttl type types uri url validator validators valid
    var variable version view visible widget
    """.split()  # noqa: SIM905 - a list of words is easiest to read as text
)


def is_marked_placeholder(value: str) -> bool:
    """Whether the value says of itself that it is none: `…EXAMPLE`, `xxxx`, an alphabet, one character repeated."""
    lowered = value.lower()
    return (
        len(value) < _SHORTEST_VALUE
        or len(set(lowered)) <= 2
        or any(lowered in row for row in _ALPHABETS)
        or any(part in lowered for part in _PLACEHOLDER_PARTS)
    )


def is_placeholder(value: str) -> bool:
    """Whether the value stands for a secret that a reader has to fill in, or is a plain word for one."""
    if is_marked_placeholder(value):
        return True
    if any(character.isdigit() for character in value):
        return False
    words = {word.lower() for word in _WORD.findall(value)}
    if any(len(word) < 3 and word not in _PLACEHOLDER_WORDS for word in words):
        return False  # capitals strewn over the text: a generator made it, and the words in it are chance
    return not words.isdisjoint(_PLACEHOLDER_WORDS) and not (len(words) == 1 and words <= _DEFAULT_PASSWORDS)


def is_reference(value: str) -> bool:
    """Whether the value names where a secret comes from: a variable, a call, a template, a file, a sentence."""
    return (
        _REFERENCE.fullmatch(value) is not None
        or _ENVIRONMENT_NAME.fullmatch(value) is not None
        or _LOCATION.fullmatch(value) is not None
        or any(character.isspace() for character in value)
    )


def speaks_about_secrets(name: str) -> bool:
    """Whether a variable of that name holds something about a secret, such as its file or its length."""
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _ABOUT_A_SECRET


def looks_random(value: str) -> bool:
    """Whether the value is more like the output of a generator than like a word that somebody chose."""
    return (
        len(value) >= _SHORTEST_RANDOM
        and not any(character.isspace() for character in value)
        and any(character.isdigit() for character in value)
        and any(character.isalpha() for character in value)
        and bits_per_character(value) >= _RANDOM_BITS_PER_CHARACTER
    )


def mask_secrets(text: str, values: Iterable[str]) -> str:
    """The text with every occurrence of each value hidden.

    At most the first four characters of a value stay, and never more than a quarter of it.
    """
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, value[: min(4, len(value) // 4)] + _MASK)
    return text


PRIVATE_KEY = "Private Key"
KEYWORD = "Secret Keyword"
BASIC_AUTH = "Basic Auth Credentials"
ENTROPY = "High Entropy String"
AWS_SECRET = "AWS Secret Key"  # noqa: S105 - a name, not a key
WEB_TOKEN = "JSON Web Token"  # noqa: S105 - a name, not a token

_KEY_LOOKAHEAD_LINES = 6
_KEY_BODY_LINES = 120
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{32,}")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{8,}")
_OTHER_PLUGINS = ("high_entropy_strings", "keyword")
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
    """Load the detectors, once in a process, without the HTTP library that they would verify a secret with.

    Safe to call from any thread. Raises ImportError when detect-secrets is missing, and AttributeError when it lacks a
    part that is named here.
    """
    with _loading:
        return _loaded()


@cache
def _loaded() -> Detectors:
    with _without_requests():
        plugins = {name: import_module(f"detect_secrets.plugins.{name}") for name in (*_DETECTORS, *_OTHER_PLUGINS)}
    patterns = [(kind, re.compile(pattern)) for kind, pattern in _OWN_PATTERNS.items()]
    for module, name in _DETECTORS.items():
        detector = getattr(plugins[module], name)
        patterns.extend((detector.secret_type, pattern) for pattern in detector.denylist)
    entropy: Any = plugins["high_entropy_strings"]
    return Detectors(
        patterns=tuple(patterns),
        is_web_token=getattr(plugins["jwt"], _DETECTORS["jwt"]).is_formally_valid,
        keywords=plugins["keyword"],
        entropy=(
            (entropy.Base64HighEntropyString(limit=4.0), _SHORTEST_BASE64),
            (entropy.HexHighEntropyString(limit=3.0), _SHORTEST_HEXADECIMAL),
        ),
    )


_loading = threading.Lock()


@contextmanager
def _without_requests() -> Iterator[None]:
    """Import detect-secrets with a stand-in for `requests`, which takes several times as long to load as all of it.

    Afterwards neither is known to other code: whoever imports one of them gets the real thing.
    """
    if "requests" in sys.modules or "detect_secrets" in sys.modules:
        yield
        return
    stand_in = ModuleType("requests")
    stand_in.Response = object  # type: ignore[attr-defined]  # some detectors name it in an annotation
    sys.modules["requests"] = stand_in
    try:
        yield
    finally:
        for name in list(sys.modules):
            if name == "requests" or name.partition(".")[0] == "detect_secrets":
                del sys.modules[name]


class Search(Struct):
    """What was found in a file: hits, and the lines that took too long. `is_finished` is off when the time ran out."""

    hits: list[dict[str, Any]] = field(default_factory=list)
    slow: list[int] = field(default_factory=list)
    is_finished: bool = True


def search_file(
    detectors: Detectors,
    file: str,
    lines: Sequence[tuple[int, str]],
    *,
    deadline: float,
    guarded: Callable[[Callable[[], list[Hit]], float], list[Hit] | None] = lambda find, _seconds: find(),
) -> Search:
    """Search the lines of a file until the deadline, of the monotonic clock.

    `guarded` runs the search of one line within the seconds that are left, and gives None when it took too long. In a
    hit, `values` are the secrets themselves; with an empty `kind` the line only belongs to another one's finding, as
    the body of a private key does.
    """
    found = Search()
    for index, (number, text) in enumerate(lines):
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            found.is_finished = False
            break
        hits = guarded(partial(find_secrets, detectors, file, text), seconds)
        if hits is None:
            found.slow.append(number)
            continue
        for hit in hits:
            if hit.kind == PRIVATE_KEY:
                found.hits.extend(_private_key(file, lines[index : index + _KEY_BODY_LINES], hit))
            else:
                found.hits.append({"file": file, "line": number, "kind": hit.kind, "values": [hit.value]})
    return found


def _private_key(file: str, lines: Sequence[tuple[int, str]], header: Hit) -> Iterator[dict[str, Any]]:
    """A header counts only with key material after it; text that merely mentions the header is no key."""
    number = lines[0][0]
    following = [text for offset, (line, text) in enumerate(lines) if offset and line == number + offset]
    near = [header.value, *following[:_KEY_LOOKAHEAD_LINES]]
    is_key = header.value.startswith(("-----", ":"))
    if not is_key or (following and not any(_KEY_MATERIAL.search(text) for text in near)):
        return
    yield {"file": file, "line": number, "kind": header.kind, "values": _KEY_BODY.findall(header.value)}
    for offset, text in enumerate(following, start=1):
        if "-----END" in text:
            break
        yield {"file": file, "line": number + offset, "kind": "", "values": _KEY_BODY.findall(text)}


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
