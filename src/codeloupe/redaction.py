"""Secrets out of text, before it reaches a log, an error, a prompt or a report."""

from __future__ import annotations

import os
import re

_MASK = "[redacted]"
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH)", re.IGNORECASE)
_SHORTEST_SECRET = 8
_KNOWN_TOKENS = re.compile(
    r"""
    sk-[A-Za-z0-9_-]{16,}                       # OpenAI, Anthropic
    | gh[pousr]_[A-Za-z0-9]{20,}                # GitHub
    | github_pat_[A-Za-z0-9_]{20,}
    | glpat-[A-Za-z0-9_-]{16,}                  # GitLab
    | xox[abposr]-[A-Za-z0-9-]{10,}             # Slack
    | (?:AKIA|ASIA)[A-Z0-9]{16}                 # AWS
    | AIza[A-Za-z0-9_-]{30,}                    # Google
    | npm_[A-Za-z0-9]{30,}
    | pypi-[A-Za-z0-9_-]{30,}
    | eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}   # JSON web token
    | (?<=://)[^/\s:@]{1,100}:[^/\s@]{1,200}(?=@)                    # user:password@ in an address
    | -----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)


def redact(text: str) -> str:
    """Mask the exact values of credentials in our environment, and every well-known form of token."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_NAME.search(name):
            text = text.replace(value, _MASK)
    return _KNOWN_TOKENS.sub(_MASK, text)
