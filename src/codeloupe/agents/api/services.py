"""The services that the agent `api` asks: who they are, their optional packages, and a connection for one call."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import math
import os
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import NotInstalled, install_command
from codeloupe.model import Confidential

NAME = "api"
INSTALL = install_command("api")
# The clients of OpenAI refuse to be made without a key, and local services do not look at it.
_NO_KEY = "none"
# What a model thinks aloud is parted from its answer by us. pydantic-ai would take the opening tag away from a thought
# that never ends, and the drafts in it for the answer; so it is told to look for tags that no model writes.
_THINKING_TAGS = ("\0thought", "\0end")
_loading = threading.Lock()
_CONNECT_SECONDS = 15.0


class Vendor(Struct, frozen=True, kw_only=True):
    """A service, its packages, the variables with its key and its address, and its own address."""

    name: str
    distribution: str
    sdk: str
    key_names: tuple[str, ...]
    url_name: str
    url: str
    needs_key: bool = True


OPENAI = Vendor(
    name="openai",
    distribution="openai",
    sdk="openai",
    key_names=("OPENAI_API_KEY",),
    url_name="OPENAI_BASE_URL",
    url="https://api.openai.com/v1",
)
COMPATIBLE = replace(OPENAI, url_name="", url="", needs_key=False)
ANTHROPIC = Vendor(
    name="anthropic",
    distribution="anthropic",
    sdk="anthropic",
    key_names=("ANTHROPIC_API_KEY",),
    url_name="ANTHROPIC_BASE_URL",
    url="https://api.anthropic.com",
)
GOOGLE = Vendor(
    name="google",
    distribution="google-genai",
    sdk="google.genai",
    key_names=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    url_name="GOOGLE_GEMINI_BASE_URL",
    url="https://generativelanguage.googleapis.com",
)
VENDORS = {"anthropic": ANTHROPIC, "openai": OPENAI, "google": GOOGLE, "google-gla": GOOGLE}


class Target(Confidential, frozen=True, kw_only=True):
    """A model, where it is asked, and with which key."""

    vendor: Vendor
    model: str
    url: str
    key: str | None


class Packages(Struct, frozen=True):
    """What a call to one vendor needs of the optional packages."""

    http: ModuleType
    sdk: ModuleType
    vendor_models: ModuleType
    vendor_providers: ModuleType
    direct: ModuleType
    messages: ModuleType
    models: ModuleType
    tools: ModuleType


@functools.cache
def loaded(vendor: Vendor) -> Packages:
    """The packages for a vendor, which are optional and take seconds to import: not before they are needed."""
    part = vendor.name
    names = (
        "httpx2",
        vendor.sdk,
        f"pydantic_ai.models.{part}",
        f"pydantic_ai.providers.{part}",
        "pydantic_ai.direct",
        "pydantic_ai.messages",
        "pydantic_ai.models",
        "pydantic_ai.tools",
    )
    # Warnings about the packages' own source are not ours. They are switched for all threads, hence the lock.
    with _loading, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Google's says at each call that there are two keys and which one it takes. That is not the one it is given.
        logging.getLogger("google_genai._api_client").addFilter(lambda told: "API_KEY are set" not in told.getMessage())
        try:
            return Packages(*map(importlib.import_module, names))
        except ImportError as error:
            raise NotInstalled(f"{NAME} cannot be used: {error}", agent=NAME, hint=INSTALL) from error


@asynccontextmanager
async def opened(packages: Packages, target: Target, *, timeout_seconds: float) -> AsyncIterator[Any]:
    """The model, ready to be asked; its connections are closed at the end. The vendors' own retries are off."""
    # Beside the event loop, since it takes so long that connections which are being made would run out of time.
    trust = await asyncio.to_thread(_trust, packages.http, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))
    async with packages.http.AsyncClient(verify=trust, event_hooks={"request": [_connect_in_time]}) as http:
        yield _MAKERS[target.vendor.name](packages, target, _Line(http, trust, timeout_seconds))


@functools.lru_cache(maxsize=1)
def _trust(http: ModuleType, _file: str | None, _directory: str | None) -> Any:
    """Whose certificates are trusted, for all calls: the list is long, and a client would read it for each proxy."""
    return http.create_ssl_context()


async def _connect_in_time(request: Any) -> None:
    """A service that does not take a connection is not waited for as long as an answer is."""
    limits = request.extensions.get("timeout")
    if isinstance(limits, dict):
        limits["connect"] = min(limits.get("connect") or math.inf, _CONNECT_SECONDS)


class _Line(Struct, frozen=True):
    http: Any
    trust: Any
    timeout_seconds: float


def _anthropic_model(packages: Packages, target: Target, line: _Line) -> Any:
    client = packages.sdk.AsyncAnthropic(
        api_key=target.key, base_url=target.url, max_retries=0, timeout=line.timeout_seconds, http_client=line.http
    )
    provider = packages.vendor_providers.AnthropicProvider(anthropic_client=client)
    return packages.vendor_models.AnthropicModel(target.model, provider=provider)


def _openai_model(packages: Packages, target: Target, line: _Line) -> Any:
    client = packages.sdk.AsyncOpenAI(
        api_key=target.key or _NO_KEY,
        base_url=target.url,
        max_retries=0,
        timeout=line.timeout_seconds,
        http_client=line.http,
    )
    provider = packages.vendor_providers.OpenAIProvider(openai_client=client)
    profile = {"thinking_tags": _THINKING_TAGS}
    return packages.vendor_models.OpenAIChatModel(target.model, provider=provider, profile=profile)


def _google_model(packages: Packages, target: Target, line: _Line) -> Any:
    types = packages.sdk.types
    options = types.HttpOptions(
        base_url=target.url,
        timeout=round(line.timeout_seconds * 1000),
        httpx_async_client=line.http,
        client_args={"verify": line.trust},
        async_client_args={"verify": line.trust},
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    client = packages.sdk.Client(vertexai=False, api_key=target.key, http_options=options)
    provider = packages.vendor_providers.GoogleProvider(client=client)
    return packages.vendor_models.GoogleModel(target.model, provider=provider)


_MAKERS = {"anthropic": _anthropic_model, "openai": _openai_model, "google": _google_model}
