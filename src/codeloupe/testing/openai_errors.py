"""Errors as the OpenAI APIs and the many that are compatible with them word them."""

from __future__ import annotations

from typing import Any, Final

from codeloupe.testing.replies import Status

_TYPES: Final = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "service_unavailable"),
}


def openai_error(status: Status) -> dict[str, Any]:
    """What stands under `error` in such a document."""
    kind, word = _TYPES.get(status.code, ("server_error", "server_error"))
    return {"message": status.message, "type": status.type or kind, "param": None, "code": word}
