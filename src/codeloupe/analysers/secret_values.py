"""Whether a text that looks like a secret can be one: placeholders, references and ordinary names are none."""

from __future__ import annotations

import re
from collections.abc import Iterable

from codeloupe.system.token_forms import bits_per_character

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
