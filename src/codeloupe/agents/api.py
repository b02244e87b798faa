"""The agent `api`: models of Anthropic, OpenAI and Google, and of whatever speaks as OpenAI does, by pydantic-ai."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import threading
import time
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field, replace
from types import ModuleType
from typing import Any

from codeloupe.agents.api_failures import AskedOf, bad_ending, call_failed, no_answer
from codeloupe.agents.installed_package import installed_version
from codeloupe.agents.prompt_text import full_prompt
from codeloupe.agents.validation import validate
from codeloupe.errors import AgentError, InvalidRequest, NotInstalled, NotLoggedIn, TimedOut
from codeloupe.extraction.json_text import parsed
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability, PermissionMode, TokenUsage
from codeloupe.model.agent_events import TokensSpent, TurnTaken
from codeloupe.model.records import dataclass
from codeloupe.ports import AgentEventSink

INSTALL = "pip install 'codeloupe[api]'"
LIMITS = AgentLimits(schema=True)
_NAME = "api"
_DISTRIBUTION = "pydantic-ai-slim"
_CHOOSE = "set api_model, or give --model, such as anthropic:claude-opus-4-8, openai:gpt-5 or google:gemini-2.5-pro"
# The clients of OpenAI refuse to be made without a key, and local services do not look at it.
_NO_KEY = "none"
_TOOL = "final_result"
_WRAPPED = "answer"
_loading = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vendor:
    name: str
    distribution: str
    sdk: str
    key_names: tuple[str, ...]
    url_name: str
    url: str
    needs_key: bool = True


_OPENAI = _Vendor(
    name="openai",
    distribution="openai",
    sdk="openai",
    key_names=("OPENAI_API_KEY",),
    url_name="OPENAI_BASE_URL",
    url="https://api.openai.com/v1",
)
_COMPATIBLE = replace(_OPENAI, url_name="", url="", needs_key=False)
_ANTHROPIC = _Vendor(
    name="anthropic",
    distribution="anthropic",
    sdk="anthropic",
    key_names=("ANTHROPIC_API_KEY",),
    url_name="ANTHROPIC_BASE_URL",
    url="https://api.anthropic.com",
)
_GOOGLE = _Vendor(
    name="google",
    distribution="google-genai",
    sdk="google.genai",
    key_names=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    url_name="GOOGLE_GEMINI_BASE_URL",
    url="https://generativelanguage.googleapis.com",
)
_VENDORS = {"anthropic": _ANTHROPIC, "openai": _OPENAI, "google": _GOOGLE, "google-gla": _GOOGLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    vendor: _Vendor
    model: str
    url: str
    key: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Packages:
    sdk: ModuleType
    vendor_models: ModuleType
    vendor_providers: ModuleType
    direct: ModuleType
    messages: ModuleType
    models: ModuleType
    tools: ModuleType


class ApiAgent:
    """Asks a model once for each call, without tools and without files.

    `model` has its provider in front: `anthropic:`, `openai:` or `google:`. A request's own model goes before it; one
    without a provider is asked of the same. `base_url` is the address to be used instead of the provider's own. With
    it and without a provider the model is asked in the manner of OpenAI's chat completions, as Ollama, vLLM and LM
    Studio speak it, and needs no key. Keys are taken from `environment`, by default our own.

    The limit of silence is how long the connection may bring nothing. OpenAI's and Google's services are asked for
    the answer as a whole, so there it is the time until the answer.
    """

    name = _NAME

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

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the connection being closed."""
        validate(request, LIMITS, agent=_NAME)
        _refuse_bypass(request)
        target = self._target(request.model or self._model)
        if target.key is None and target.vendor.needs_key:
            raise NotLoggedIn(f"{_NAME} has no key for {target.vendor.name}", agent=_NAME, hint=_set_key(target.vendor))
        packages = await asyncio.to_thread(_loaded, target.vendor)
        started = time.monotonic()
        asked = _asked_of(target, request)
        response = await _ask(packages, target, request, asked)
        duration_ms = round((time.monotonic() - started) * 1000)
        emit(TurnTaken(_NAME, 1))
        cost = None if target.vendor is _COMPATIBLE else _cost(response)
        usage = _usage(response)
        emit(TokensSpent(_NAME, usage.input_tokens, usage.output_tokens, cost))
        try:
            answer = _answer(response, asked, is_wrapped=_is_wrapped(request.output_schema))
        except AgentError as error:
            error.cost_usd, error.usage = cost, usage
            raise
        return AgentResult(
            success=True,
            output=answer.text,
            agent=_NAME,
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
            hint = INSTALL if version is None else error.hint
            return Availability(found=version is not None, version=version, how_to_fix=hint, default_model=self._model)
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

    def _target(self, name: str | None) -> _Target:
        """Where the model of this name is asked. Raises InvalidRequest when that cannot be told."""
        if not name:
            raise InvalidRequest(f"{_NAME} was not told which model to ask", agent=_NAME, hint=_CHOOSE)
        own = self._own_vendor()
        vendor, model = _split(name)
        vendor = vendor or own
        if vendor is None:
            raise InvalidRequest(f"{_NAME} does not know the provider of the model {name!r}", agent=_NAME, hint=_CHOOSE)
        source = self._environment
        # The key of one provider must not go to the address that was set for another.
        base_url = self._base_url if own is None or own.name == vendor.name else None
        url = base_url or source.get(vendor.url_name) or vendor.url
        key = next((source[key] for key in vendor.key_names if source.get(key)), None)
        return _Target(vendor=vendor, model=model, url=url, key=key)

    def _own_vendor(self) -> _Vendor | None:
        """Who answers for a model that is named without its provider; None when nobody is known."""
        vendor = _split(self._model)[0] if self._model else None
        if vendor is None and self._base_url is not None:
            return _COMPATIBLE
        return vendor


def _split(name: str) -> tuple[_Vendor | None, str]:
    """The provider in front of a name, and the rest. Names of local models have colons of their own: qwen3:8b."""
    prefix, _, model = name.partition(":")
    vendor = _VENDORS.get(prefix) if model else None
    return (None, name) if vendor is None else (vendor, model)


def _refuse_bypass(request: AgentRequest) -> None:
    if request.permission_mode is PermissionMode.BYPASS:
        raise InvalidRequest(
            f"{_NAME} cannot bypass permissions: its models have no tools and no files",
            agent=_NAME,
            hint="leave permission_mode as it is, or use another agent",
        )


def _set_key(vendor: _Vendor) -> str:
    return f"set {' or '.join(vendor.key_names)}"


def _asked_of(target: _Target, request: AgentRequest) -> AskedOf:
    return AskedOf(
        agent=_NAME,
        model=target.model,
        url=target.url,
        set_key=_set_key(target.vendor),
        idle_seconds=request.idle_timeout_seconds or request.timeout_seconds + 1,
    )


@functools.cache
def _loaded(vendor: _Vendor) -> _Packages:
    """The packages for a vendor, which are optional and take seconds to import: not before they are needed."""
    part = vendor.name
    names = (
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
        try:
            return _Packages(*map(importlib.import_module, names))
        except ImportError as error:
            raise NotInstalled(f"{_NAME} cannot be used: {error}", agent=_NAME, hint=INSTALL) from error


async def _ask(packages: _Packages, target: _Target, request: AgentRequest, asked: AskedOf) -> Any:
    """The response of the service. Every failure below is turned into an AgentError here and nowhere else."""
    deadline = asyncio.timeout(request.timeout_seconds)
    try:
        async with deadline, _opened(packages, target, timeout_seconds=asked.idle_seconds) as model:
            return await packages.direct.model_request(
                model,
                [_message(packages, request)],
                model_request_parameters=_parameters(packages, request.output_schema),
                instrument=False,
            )
    except Exception as error:  # vendors' packages raise anything for a broken reply; all of it becomes an AgentError
        if deadline.expired():
            raise TimedOut(
                f"{_NAME} had no answer from {target.url} within {request.timeout_seconds:g} s",
                agent=_NAME,
                hint="raise the time limit, or ask for less at once",
            ) from error
        raise call_failed(error, asked) from error


@asynccontextmanager
async def _opened(packages: _Packages, target: _Target, *, timeout_seconds: float) -> AsyncIterator[Any]:
    """The model, ready to be asked; its connections are closed at the end. The vendors' own retries are off."""
    async with packages.models.create_async_httpx2_client() as http:
        yield _MAKERS[target.vendor.name](packages, target, http, timeout_seconds)


def _anthropic_model(packages: _Packages, target: _Target, http: Any, timeout_seconds: float) -> Any:
    client = packages.sdk.AsyncAnthropic(
        api_key=target.key, base_url=target.url, max_retries=0, timeout=timeout_seconds, http_client=http
    )
    provider = packages.vendor_providers.AnthropicProvider(anthropic_client=client)
    return packages.vendor_models.AnthropicModel(target.model, provider=provider)


def _openai_model(packages: _Packages, target: _Target, http: Any, timeout_seconds: float) -> Any:
    client = packages.sdk.AsyncOpenAI(
        api_key=target.key or _NO_KEY, base_url=target.url, max_retries=0, timeout=timeout_seconds, http_client=http
    )
    provider = packages.vendor_providers.OpenAIProvider(openai_client=client)
    return packages.vendor_models.OpenAIChatModel(target.model, provider=provider)


def _google_model(packages: _Packages, target: _Target, http: Any, timeout_seconds: float) -> Any:
    types = packages.sdk.types
    options = types.HttpOptions(
        base_url=target.url,
        timeout=round(timeout_seconds * 1000),
        httpx_async_client=http,
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    client = packages.sdk.Client(vertexai=False, api_key=target.key, http_options=options)
    provider = packages.vendor_providers.GoogleProvider(client=client)
    return packages.vendor_models.GoogleModel(target.model, provider=provider)


_MAKERS = {"anthropic": _anthropic_model, "openai": _openai_model, "google": _google_model}


def _message(packages: _Packages, request: AgentRequest) -> Any:
    instructions = "\n\n".join(text for text in (request.system_prompt, request.append_system_prompt) if text)
    part = packages.messages.UserPromptPart(full_prompt(request))
    return packages.messages.ModelRequest(parts=[part], instructions=instructions or None)


def _parameters(packages: _Packages, schema: Mapping[str, Any] | None) -> Any:
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


@dataclass(frozen=True, slots=True)
class _Answer:
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
    if call is None:
        if not text.strip():
            raise no_answer("it is empty", asked, text=raw)
        return _Answer(text, None, raw)
    try:
        value = parsed(arguments)
    except ValueError as problem:
        raise no_answer(str(problem), asked, text=raw) from problem
    if is_wrapped and isinstance(value, dict) and set(value) == {_WRAPPED}:
        value = value[_WRAPPED]
    return _Answer(text if text.strip() else json.dumps(value, ensure_ascii=False), value, raw)


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
