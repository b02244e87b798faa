"""Faults of the GitHub server: what goes wrong, for which request, and how often."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SECONDARY_DOCUMENTATION = "https://docs.github.com/free-pro-team@latest/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"
SECONDARY_WORDS = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. "
    "If you reach out to GitHub Support for help, please include the request ID 0000:000000:0000000:0000000:00000000."
)
CONTENT_WORDS = (
    "You have exceeded a secondary rate limit and have been temporarily blocked from content creation. "
    "Please retry your request again later."
)
BAD_GATEWAY_PAGE = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong. `status` None leaves the answer as it is, `cut` closes the line instead of one."""

    method: str
    pattern: re.Pattern[str]
    contains: str = ""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    times: int = 1
    after: bool = False
    cut: bool = False
    delay_seconds: float = 0.0
    met: int = 0

    def fits(self, method: str, path: str, body: str) -> bool:
        """Whether a request meets it now."""
        is_method = self.method in ("*", method)
        return self.times > 0 and is_method and bool(self.pattern.fullmatch(path)) and self.contains in body


def path_pattern(pattern: str) -> re.Pattern[str]:
    """A path in which `*` or `{name}` stands for one part, and `**` for any number of them."""
    parts = re.split(r"(\*\*|\*|\{\w+\})", pattern)
    made = (".*" if part == "**" else "[^/]*" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    return re.compile("".join(made))


def secondary_limit(*, content_creation: bool = False) -> dict[str, str]:
    """The body of a secondary rate limit."""
    words = CONTENT_WORDS if content_creation else SECONDARY_WORDS
    return {"documentation_url": SECONDARY_DOCUMENTATION, "message": words}


def graphql_limit(kind: str) -> dict[str, Any]:
    """The body of the limit of GraphQL, which comes with a 200."""
    error = {"type": kind, "code": "graphql_rate_limit", "message": "API rate limit already exceeded for user ID 1001."}
    return {"errors": [error]}


def primary_limit(reset_in_seconds: float) -> tuple[dict[str, str], dict[str, str]]:
    """The headers and the body of the primary rate limit."""
    reset = int(time.time() + reset_in_seconds + 0.999)
    headers = {
        "x-ratelimit-limit": "5000",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-used": "5000",
        "x-ratelimit-reset": str(reset),
        "x-ratelimit-resource": "core",
    }
    body = {
        "message": "API rate limit exceeded for user ID 1001.",
        "documentation_url": "https://docs.github.com/rest/overview/resources-in-the-rest-api#rate-limiting",
    }
    return headers, body
