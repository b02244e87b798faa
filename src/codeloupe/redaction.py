"""Secrets out of text, before it reaches a log, an error, a prompt or a report.

Every pattern takes time linear in the text, whatever the text is, and masks the secret alone: no text can make
the mask reach over what stands behind it.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

_MASK = "[redacted]"
_SHORTEST_SECRET = 8
_UNRESERVED = frozenset((string.ascii_letters + string.digits + "-._~").encode())
_SECRET_NAME = re.compile(
    r"KEYS?(?![A-Z])|TOKENS?(?![A-Z])|SECRET|PASSW|PASSPHRASE|_PWD$|CREDENTIAL|AUTH$|AUTHORIZATION|AUTH_CONFIG",
    re.IGNORECASE,
)
_KNOWN_TOKENS = r"""
    (?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))(?:       # at the start of a word, also behind an escape such as \n
        sk-[A-Za-z0-9_-]{16,}                   # OpenAI, Anthropic
        | eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{5,}     # JSON web token
        | SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}                       # SendGrid
    )
    | [rs]k_(?:live|test)_[A-Za-z0-9]{16,}      # Stripe
    | whsec_[A-Za-z0-9+/=]{16,}
    | gh[pousr]_[A-Za-z0-9]{20,}                # GitHub
    | github_pat_[A-Za-z0-9_]{20,}
    | glpat-[A-Za-z0-9_-]{16,}                  # GitLab
    | xox[abeposr]-[A-Za-z0-9-]{10,}            # Slack
    | xapp-[A-Za-z0-9-]{10,}
    | (?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}
    | (?:AKIA|ASIA)[A-Z0-9]{16}                 # AWS
    | AIza[A-Za-z0-9_-]{30,}                    # Google
    | ya29\.[A-Za-z0-9_-]{20,}
    | AccountKey=[A-Za-z0-9+/]{40,}={0,2}       # Azure
    | hf_[A-Za-z0-9]{30,}                       # Hugging Face
    | npm_[A-Za-z0-9]{30,}
    | pypi-[A-Za-z0-9_-]{30,}
    | (?<=://)[^/\s:@]*+:[^/\s@]++(?=@)         # user:password@ in an address
    | (?<=://)[^/\s:@]{20,}+(?=@)               # token@ in an address
    | (?i:authorization)["']?\s{0,8}[:=]\s{0,8}["']?(?i:bearer|basic|token)\s{1,8}[A-Za-z0-9._~+/=-]{8,}
    """
# What may stand between two lines of a key: line ends, also escaped, quotes, and the margin of a diff or a listing.
_MARGIN = r"""(?:\\[nrt]|[\s|│>+"'0-9]|-(?!-)|-(?=-----END)){0,60}"""


def _atomic(name: str, pattern: str) -> str:
    """A pattern that is never gone back into, so that time stays linear.

    A possessive group would say the same; Python 3.11 before 3.11.5 ends those in the wrong place (gh-106052).
    """
    return f"(?=(?P<{name}>{pattern}))(?P={name})"


_HEADER = r"(?:Proc-Type|DEK-Info|Version|Comment):[ ][A-Za-z0-9 ,./()-]{1,80}"
_PRIVATE_KEY = rf"""
    -----BEGIN[ ][A-Z ]{{0,40}}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
    {_atomic("headers", f"(?:{_atomic('before_header', _MARGIN)}{_HEADER}){{0,3}}")}
    {_atomic("lines", f"(?:{_atomic('before_line', _MARGIN)}[A-Za-z0-9+/=]{{40,}}+)*")}
    (?:{_atomic("before_last", _MARGIN)}[A-Za-z0-9+/=]{{0,80}}+{_atomic("before_end", _MARGIN)}
    -----END[ ][A-Z ]{{0,40}}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----)?
    """


# Each known token has one of these in it, or is in an address before an @; no white space stands before the end of it.
_SIGNS = (
    *("sk-", "eyJ", "SG.", "k_live_", "k_test_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    *("glpat-", "xox", "xapp-", "hooks.slack.com/services/", "AKIA", "ASIA", "AIza", "ya29.", "AccountKey="),
    *("hf_", "npm_", "pypi-"),
)
_SIGN_IN_ANY_CASE = "authorization"
_WHITE_SPACE = re.compile(r"\s")
# Far more than may stand between the sign of a token and its end, where white space may stand between them.
_PIECE_CHARACTERS = 4096


def redact(text: str) -> str:
    """Mask the exact values of credentials in our environment, and every well-known form of token."""
    for value in _own.secrets():
        text = text.replace(value, _MASK)
    return _without_tokens(_pattern(_PRIVATE_KEY).sub(_MASK, text))


def _without_tokens(text: str) -> str:
    """The text without known tokens. To try all of them at each place takes long, so that is done only near a sign."""
    done: list[str] = []
    near: list[str] = []
    for piece in _pieces(text):
        has_sign = _has_sign(piece)
        # A token may reach into the piece behind its sign.
        (near if has_sign or near else done).append(piece)
        if near and not has_sign:
            done.append(_pattern(_KNOWN_TOKENS).sub(_MASK, "".join(near)))
            near.clear()
    done.append(_pattern(_KNOWN_TOKENS).sub(_MASK, "".join(near)))
    return "".join(done)


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that begin with white space, save the first."""
    position = 0
    while position < len(text):
        border = _WHITE_SPACE.search(text, position + _PIECE_CHARACTERS)
        end = border.start() if border else len(text)
        yield text[position:end]
        position = end


def _has_sign(text: str) -> bool:
    if any(sign in text for sign in _SIGNS) or ("://" in text and "@" in text):
        return True
    return _SIGN_IN_ANY_CASE in text.lower()


@cache
def _pattern(text: str) -> re.Pattern[str]:
    # Made when it is first needed, since every start of the program loads this module and few have to mask.
    return re.compile(text, re.VERBOSE)


class _OwnSecrets:
    """The credentials in our environment, looked up again only when the environment changed."""

    def __init__(self) -> None:
        self._known: tuple[Mapping[Any, Any], tuple[str, ...]] = ({}, ())

    def secrets(self) -> tuple[str, ...]:
        """Longest first, so that no tail is left of one that begins with another."""
        # As the system has it; the public view decodes every variable each time, which takes far longer.
        present: Any = getattr(os.environ, "_data", os.environ)
        seen, secrets = self._known
        if present != seen:
            seen, secrets = dict(present), _secrets_in(os.environ)
            self._known = seen, secrets
        return secrets


_own = _OwnSecrets()


def _secrets_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    values = {value.strip() for name, value in environment.items() if _SECRET_NAME.search(name)}
    forms = {form for value in values if len(value) >= _SHORTEST_SECRET for form in (value, _percent_encoded(value))}
    return tuple(sorted(forms, key=len, reverse=True))


def _percent_encoded(value: str) -> str:
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in os.fsencode(value))
