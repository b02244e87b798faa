"""The agent `api`: models of Anthropic, OpenAI and Google, and of whatever speaks as OpenAI does, by pydantic-ai."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import logging
import math
import os
import threading
import time
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.api.failures import AskedOf, bad_ending, call_failed, no_answer
from codeloupe.agents.calls.program import installed_version
from codeloupe.agents.calls.validation import validate
from codeloupe.engine.parse.json_text import parsed
from codeloupe.engine.parse.reasoning import behind_reasoning
from codeloupe.errors import AgentError, InvalidRequest, NotInstalled, NotLoggedIn, TimedOut, install_command
from codeloupe.model.agent import (
    AgentLimits,
    AgentRequest,
    AgentResult,
    Availability,
    TokensSpent,
    TokenUsage,
    TurnTaken,
    full_prompt,
)
from codeloupe.model.confidential import Confidential
from codeloupe.model.ports import AgentEventSink

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


LIMITS = AgentLimits(schema=True)
_DISTRIBUTION = "pydantic-ai-slim"
_CHOOSE = "set api_model, or give --model, such as anthropic:claude-opus-4-8, openai:gpt-5 or google:gemini-2.5-pro"
_TOOL = "final_result"
_WRAPPED = "answer"


class ApiAgent:
    """Asks a model once for each call, without tools and without files.

    `model` has its provider in front: `anthropic:`, `openai:` or `google:`. A request's own model goes before it; one
    without a provider is asked of the same. `base_url` is the address to be used instead of the provider's own. With
    it and without a provider the model is asked in the manner of OpenAI's chat completions, as Ollama, vLLM and LM
    Studio speak it, and needs no key. Keys are taken from `environment`, by default our own.

    The limit of silence is how long the connection may bring nothing. OpenAI's and Google's services are asked for
    the answer as a whole, so there it is the time until the answer.
    """

    name = NAME

    def __init__(
        self, model: str | None = None, *, base_url: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._model = model
        self._base_url = base_url
        self._environment = os.environ if environment is None else environment

    @property
    def limits(self) -> AgentLimits:
        """What it can take and do."""
        return LIMITS

    @property
    def default_model(self) -> str:
        """What is asked when a request names no model, or none with a provider; and where."""
        return f"{self._model} at {self._base_url}"

    def service_of(self, request: AgentRequest) -> str | None:
        """Where it asks for the model of a request; None when that cannot be told."""
        try:
            target = self._target(request.model or self._model)
        except InvalidRequest:
            return None
        return f"{target.vendor.name} {target.url}"

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the connection being closed."""
        validate(request, LIMITS, agent=NAME)
        target = self._target(request.model or self._model)
        if target.key is None and target.vendor.needs_key:
            raise NotLoggedIn(f"{NAME} has no key for {target.vendor.name}", agent=NAME, hint=_set_key(target.vendor))
        packages = await asyncio.to_thread(loaded, target.vendor)
        started = time.monotonic()
        asked = _asked_of(target, request)
        response = await _ask(packages, target, request, asked)
        duration_ms = round((time.monotonic() - started) * 1000)
        emit(TurnTaken(NAME, 1))
        cost = None if target.vendor is COMPATIBLE else _cost(response)
        usage = _usage(response)
        emit(TokensSpent(NAME, usage.input_tokens, usage.output_tokens, cost))
        try:
            answer = _answer(response, asked, is_wrapped=_is_wrapped(request.output_schema))
        except AgentError as error:
            error.cost_usd, error.usage = cost, usage
            raise
        return AgentResult(
            success=True,
            output=answer.text,
            agent=NAME,
            structured=answer.structured,
            duration_ms=duration_ms,
            num_turns=1,
            total_cost_usd=cost,
            usage=usage,
            model=response.model_name or target.model,
            raw_output=answer.raw,
        )

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing, asks no service and never raises."""
        version = installed_version(_DISTRIBUTION)
        try:
            target = self._target(self._model)
        except InvalidRequest as error:
            return Availability(
                found=version is not None,
                version=version,
                how_to_fix=INSTALL if version is None else error.hint,
                default_model=self._model,
                lacks_model=True,
            )
        if version is None or installed_version(target.vendor.distribution) is None:
            return Availability(found=False, how_to_fix=INSTALL, default_model=self._model)
        logged_in = True if target.key is not None else False if target.vendor.needs_key else None
        return Availability(
            found=True,
            version=version,
            logged_in=logged_in,
            how_to_fix=_set_key(target.vendor) if logged_in is False else "",
            default_model=self._model,
        )

    def _target(self, name: str | None) -> Target:
        """Where the model of this name is asked. Raises InvalidRequest when that cannot be told."""
        if not name:
            raise InvalidRequest(f"{NAME} does not know which model to ask", agent=NAME, hint=_CHOOSE)
        own = self._own_vendor()
        vendor, model = _split(name)
        vendor = vendor or own
        if vendor is None:
            raise InvalidRequest(f"{NAME} does not know the provider of the model {name!r}", agent=NAME, hint=_CHOOSE)
        source = self._environment
        # The key of one provider must not go to the address that was set for another.
        base_url = self._base_url if own is None or own.name == vendor.name else None
        url = base_url or source.get(vendor.url_name) or vendor.url
        key = next((source[key] for key in vendor.key_names if source.get(key)), None)
        return Target(vendor=vendor, model=model, url=url, key=key)

    def _own_vendor(self) -> Vendor | None:
        """Who answers for a model that is named without its provider; None when nobody is known."""
        vendor = _split(self._model)[0] if self._model else None
        if vendor is None and self._base_url is not None:
            return COMPATIBLE
        return vendor


def _split(name: str) -> tuple[Vendor | None, str]:
    """The provider in front of a name, and the rest. Names of local models have colons of their own: qwen3:8b."""
    prefix, _, model = name.partition(":")
    vendor = VENDORS.get(prefix) if model else None
    return (None, name) if vendor is None else (vendor, model)


def _set_key(vendor: Vendor) -> str:
    return f"set {' or '.join(vendor.key_names)}"


def _asked_of(target: Target, request: AgentRequest) -> AskedOf:
    return AskedOf(
        agent=NAME,
        model=target.model,
        url=target.url,
        set_key=_set_key(target.vendor),
        idle_seconds=request.idle_timeout_seconds or request.timeout_seconds + 1,
    )


async def _ask(packages: Packages, target: Target, request: AgentRequest, asked: AskedOf) -> Any:
    """The response of the service. Every failure below is turned into an AgentError here and nowhere else."""
    deadline = asyncio.timeout(request.timeout_seconds)
    try:
        async with deadline, opened(packages, target, timeout_seconds=asked.idle_seconds) as model:
            return await packages.direct.model_request(
                model,
                [_message(packages, request)],
                model_request_parameters=_parameters(packages, request.output_schema),
                instrument=False,
            )
    except Exception as error:  # vendors' packages raise anything for a broken reply; all of it becomes an AgentError
        if deadline.expired():
            raise TimedOut(
                f"{NAME} had no answer from {target.url} within {round(request.timeout_seconds, 2):g} s",
                agent=NAME,
                hint="raise the time limit, or ask for less at once",
            ) from error
        raise call_failed(error, asked) from error


def _message(packages: Packages, request: AgentRequest) -> Any:
    instructions = "\n\n".join(text for text in (request.system_prompt, request.append_system_prompt) if text)
    part = packages.messages.UserPromptPart(full_prompt(request))
    return packages.messages.ModelRequest(parts=[part], instructions=instructions or None)


def _parameters(packages: Packages, schema: Mapping[str, Any] | None) -> Any:
    """Structured output is asked for by a tool that must be called: that works with every vendor and most others."""
    if schema is None:
        return packages.models.ModelRequestParameters()
    tool = packages.tools.ToolDefinition(
        name=_TOOL,
        description="Gives the answer, in the form that is asked for.",
        parameters_json_schema=_wrapped(schema) if _is_wrapped(schema) else {**schema},
        kind="output",
    )
    return packages.models.ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)


def _is_wrapped(schema: Mapping[str, Any] | None) -> bool:
    """Whether the schema is of something else than an object, which is all that a tool can take."""
    return schema is not None and schema.get("type") != "object" and "properties" not in schema


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    # Definitions are referred to from the root, so they stay there.
    definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    inner = {name: value for name, value in schema.items() if name not in definitions}
    return {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED], **definitions}


class _Answer(Struct, frozen=True):
    text: str
    structured: Any
    raw: str


def _answer(response: Any, asked: AskedOf, *, is_wrapped: bool) -> _Answer:
    """What the model answered. Raises an AgentError for an answer that is empty, broken, cut off or refused."""
    text = "".join(part.content for part in response.parts if part.part_kind == "text")
    call = next((part for part in response.parts if part.part_kind == "tool-call" and part.tool_name == _TOOL), None)
    arguments = "" if call is None else call.args_as_json_str()
    raw = "\n".join(filter(None, (text, arguments)))
    if error := bad_ending(response.finish_reason, asked, text=raw):
        raise error
    said = behind_reasoning(text)
    if call is None:
        if said is None:
            raise no_answer("it thought aloud and then said nothing", asked, text=raw)
        if not said.strip():
            raise no_answer("it is empty", asked, text=raw)
        return _Answer(said, None, raw)
    try:
        value = parsed(arguments)
    except ValueError as problem:
        raise no_answer(str(problem), asked, text=raw) from problem
    if is_wrapped and isinstance(value, dict) and set(value) == {_WRAPPED}:
        value = value[_WRAPPED]
    return _Answer(said if said and said.strip() else json.dumps(value, ensure_ascii=False), value, raw)


def _usage(response: Any) -> TokenUsage:
    usage = response.usage
    return TokenUsage(
        input_tokens=usage.input_tokens, cached_tokens=usage.cache_read_tokens, output_tokens=usage.output_tokens
    )


def _cost(response: Any) -> float | None:
    """What the answer cost by the price list that pydantic-ai brings; None for a model that is not on it."""
    try:
        return float(response.cost().total_price)
    except (AssertionError, LookupError, ValueError):
        return None
