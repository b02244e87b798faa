"""The agent `api`: models of Anthropic, OpenAI and Google, and of whatever speaks as OpenAI does, by pydantic-ai."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import logging
import math
import os
import re
import threading
import time
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import ModuleType, SimpleNamespace
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.agents.calls import failures as kinds
from codeloupe.agents.calls.program import installed_version
from codeloupe.agents.calls.validation import validate
from codeloupe.model import Confidential
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
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.json_values import parsed
from codeloupe.system.regex import regex

NAME = "api"
LIMITS = AgentLimits(schema=True)
_PROGRAM = kinds.Program(NAME, "", errors.install_command("api"), log_in="")
_DISTRIBUTION = "pydantic-ai-slim"
_CHOOSE = "set api_model, or give --model, such as anthropic:claude-opus-4-8, openai:gpt-5 or google:gemini-2.5-pro"
_TOOL = "final_result"
_WRAPPED = "answer"
_loading = threading.Lock()
_SILENT = kinds.Kind(errors.TimedOut, "got nothing from the service in time", "raise the idle timeout")
_BROKEN = kinds.Kind(errors.OutputInvalid, "got an error from the model", "try again, or another model")
# Services tell these apart only by their wording; a refused request holds no words of a model.
_BY_TEXT = kinds.patterns(
    ("api key not valid|api_key_invalid|credit balance is too low|insufficient_quota", kinds.NOT_LOGGED_IN),
    ("prompt is too long|context_length_exceeded|maximum context length|context window", kinds.TOO_LONG),
    ("exceeds the maximum number of tokens", kinds.TOO_LONG),
    ("overloaded", kinds.OVERLOADED),
    # The code of OpenAI's services for a prompt that their filter stops.
    ("content_filter", kinds.REFUSED),
)
# By the name of the exception or of one of its causes, since the packages they come from are loaded late.
_BY_NAME = {
    **dict.fromkeys(("ReadTimeout", "WriteTimeout"), _SILENT),
    **dict.fromkeys(("UserError", "InvalidURL", "UnsupportedProtocol"), kinds.INVALID),
    "ContentFilterError": kinds.REFUSED,
}
_REASONING = regex(r"[\s\ufeff]*+<(think|thinking|thoughts?|reasoning)>", re.IGNORECASE)
_BY_ENDING = {"length": kinds.CUT_OFF, "content_filter": kinds.REFUSED, "error": _BROKEN}


class Vendor(Struct, frozen=True):
    """A service, its package, the variables with its key and its address, and its own address."""

    name: str
    sdk: str
    key_names: tuple[str, ...]
    url_name: str
    url: str
    needs_key: bool = True

    @property
    def set_key(self) -> str:
        """What to do where there is no key."""
        return f"set {' or '.join(self.key_names)}"


_GOOGLE_KEYS, _GOOGLE_URL = ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "https://generativelanguage.googleapis.com"
_GOOGLE = Vendor("google", "google.genai", _GOOGLE_KEYS, "GOOGLE_GEMINI_BASE_URL", _GOOGLE_URL)
_OPENAI = Vendor("openai", "openai", ("OPENAI_API_KEY",), "OPENAI_BASE_URL", "https://api.openai.com/v1")
_COMPATIBLE = replace(_OPENAI, url_name="", url="", needs_key=False)
_ANTHROPIC_URL = "https://api.anthropic.com"
_ANTHROPIC = Vendor("anthropic", "anthropic", ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL", _ANTHROPIC_URL)
_VENDORS = {"anthropic": _ANTHROPIC, "openai": _OPENAI, "google": _GOOGLE, "google-gla": _GOOGLE}


class Target(Confidential, frozen=True, kw_only=True):
    """A model, where it is asked, and with which key. `idle_seconds` is the limit of silence."""

    vendor: Vendor
    model: str
    url: str
    key: str | None
    idle_seconds: float = math.inf


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
    limits = LIMITS

    def __init__(
        self, model: str | None = None, *, base_url: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._model = model
        self._base_url = base_url
        self._environment = os.environ if environment is None else environment

    @property
    def default_model(self) -> str:
        """What is asked when a request names no model, or none with a provider; and where."""
        return f"{self._model} at {self._base_url}"

    def service_of(self, request: AgentRequest) -> str | None:
        """Where it asks for the model of a request; None when that is unknown."""
        try:
            target = self._target(request.model or self._model)
        except errors.InvalidRequest:
            return None
        return f"{target.vendor.name} {target.url}"

    def credential_of(self, request: AgentRequest) -> str | None:
        """The key that it asks with, if there is one."""
        try:
            return self._target(request.model or self._model).key
        except errors.InvalidRequest:
            return None

    async def prepare(self, request: AgentRequest) -> None:
        """Load the packages and the certificates for a request. Raise InvalidRequest and NotInstalled."""
        target = self._target(request.model or self._model)
        packages = await asyncio.to_thread(_loaded, target.vendor)
        await asyncio.to_thread(_trusted, packages)

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the connection being closed."""
        validate(request, LIMITS, agent=NAME)
        target = self._target(request.model or self._model)
        if target.key is None and target.vendor.needs_key:
            message = f"{NAME} has no key for {target.vendor.name}"
            raise errors.NotLoggedIn(message, agent=NAME, hint=target.vendor.set_key)
        target = replace(target, idle_seconds=request.idle_timeout_seconds or request.timeout_seconds + 1)
        packages = await asyncio.to_thread(_loaded, target.vendor)
        started = time.monotonic()
        response = await _ask(packages, target, request)
        duration_ms = round((time.monotonic() - started) * 1000)
        emit(TurnTaken(NAME, 1))
        cost, tokens = None, response.usage
        if target.vendor is not _COMPATIBLE:
            # By the price list that pydantic-ai brings, where the model is on it.
            with suppress(AssertionError, LookupError, ValueError):
                cost = float(response.cost().total_price)
        usage = TokenUsage(
            input_tokens=tokens.input_tokens, cached_tokens=tokens.cache_read_tokens, output_tokens=tokens.output_tokens
        )
        emit(TokensSpent(NAME, usage.input_tokens, usage.output_tokens, cost))
        try:
            answer = _answer(response, target, request.output_schema)
        except errors.AgentError as error:
            error.cost_usd, error.usage = cost, usage
            raise
        return AgentResult(
            success=True,
            output=answer.text,
            agent=NAME,
            structured=answer.value,
            duration_ms=duration_ms,
            num_turns=1,
            total_cost_usd=cost,
            usage=usage,
            model=response.model_name or target.model,
            raw_output=answer.raw,
            inexact=answer.inexact,
            other_answers=answer.others,
        )

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing, asks no service and never raises."""
        version = installed_version(_DISTRIBUTION)
        missing = Availability(found=False, how_to_fix=_PROGRAM.install, default_model=self._model)
        try:
            target = self._target(self._model)
        except errors.InvalidRequest as error:
            found = replace(missing, lacks_model=True)
            return found if version is None else replace(found, found=True, version=version, how_to_fix=error.hint)
        vendor = target.vendor
        if version is None or installed_version(vendor.sdk.replace(".", "-")) is None:
            return missing
        logged_in = True if target.key is not None else False if vendor.needs_key else None
        fix = vendor.set_key if logged_in is False else ""
        return replace(missing, found=True, version=version, logged_in=logged_in, how_to_fix=fix)

    def _target(self, name: str | None) -> Target:
        """Where the model of this name is asked. Raises InvalidRequest when that is unknown."""
        if not name:
            message = f"{NAME} does not know which model to ask"
            raise errors.InvalidRequest(message, agent=NAME, hint=_CHOOSE, unusable=True)
        # Who answers for a model that is named without its provider.
        own = _split(self._model or "")[0] or (None if self._base_url is None else _COMPATIBLE)
        vendor, model = _split(name)
        vendor = vendor or own
        if vendor is None:
            message = f"{NAME} does not know the provider of the model {name!r}"
            raise errors.InvalidRequest(message, agent=NAME, hint=_CHOOSE)
        source = self._environment
        # The key of one provider must not go to the address that was set for another.
        base_url = self._base_url if own is None or own.name == vendor.name else None
        url = base_url or source.get(vendor.url_name) or vendor.url
        key = next((source[key] for key in vendor.key_names if source.get(key)), None)
        return Target(vendor=vendor, model=model, url=url, key=key)


def _split(name: str) -> tuple[Vendor | None, str]:
    """The provider in front of a name, and the rest. Names of local models have colons of their own: qwen3:8b."""
    prefix, _, model = name.partition(":")
    vendor = _VENDORS.get(prefix) if model else None
    return (None, name) if vendor is None else (vendor, model)


@functools.cache
def _loaded(vendor: Vendor) -> SimpleNamespace:
    """The packages for a vendor, which are optional and take seconds to import: not before they are needed."""
    names = {
        "http": "httpx2",
        "sdk": vendor.sdk,
        "vendor_models": f"pydantic_ai.models.{vendor.name}",
        "vendor_providers": f"pydantic_ai.providers.{vendor.name}",
        **{name: f"pydantic_ai.{name}" for name in ("direct", "messages", "models", "tools")},
    }
    # Warnings about the packages' own source are not ours. They are switched for all threads, hence the lock.
    with _loading, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Google's says at each call that there are two keys and which one it takes. That is not the one it is given.
        logging.getLogger("google_genai._api_client").addFilter(
            lambda entry: "API_KEY are set" not in entry.getMessage()
        )
        try:
            return SimpleNamespace(**{name: importlib.import_module(module) for name, module in names.items()})
        except ImportError as error:
            raise errors.NotInstalled(f"{NAME} cannot be used: {error}", agent=NAME, hint=_PROGRAM.install) from error


async def _ask(packages: SimpleNamespace, target: Target, request: AgentRequest) -> Any:
    """The response of the service. Every failure below is turned into an AgentError here and nowhere else."""
    deadline = asyncio.timeout(request.timeout_seconds)
    instructions = "\n\n".join(text for text in (request.system_prompt, request.append_system_prompt) if text)
    part = packages.messages.UserPromptPart(full_prompt(request))
    message = packages.messages.ModelRequest(parts=[part], instructions=instructions or None)
    options: dict[str, Any] = {}
    if request.output_schema is not None:
        # The package changes the schema that it is given, and that of a request cannot be changed.
        schema = json.loads(json.dumps(_wrapped(request.output_schema) or request.output_schema))
        # Structured output is asked for by a tool that must be called: that works with every vendor and most others.
        tool = packages.tools.ToolDefinition(
            name=_TOOL,
            description="Gives the answer, in the form that is asked for.",
            parameters_json_schema=schema,
            kind="output",
        )
        options = {"output_mode": "tool", "output_tools": [tool], "allow_text_output": False}
    parameters = packages.models.ModelRequestParameters(**options)
    try:
        async with deadline, _opened(packages, target) as model:
            return await packages.direct.model_request(
                model, [message], model_request_parameters=parameters, instrument=False
            )
    except Exception as error:  # vendors' packages raise anything for a broken reply; all of it becomes an AgentError
        if deadline.expired():
            message = f"{NAME} had no answer from {target.url} within {round(request.timeout_seconds, 2):g} s"
            hint = "raise the time limit, or ask for less at once"
            raise errors.TimedOut(message, agent=NAME, hint=hint) from error
        raise _call_failed(error, target) from error


@asynccontextmanager
async def _opened(packages: SimpleNamespace, target: Target) -> AsyncIterator[Any]:
    """The model, ready to be asked; its connections are closed at the end. The vendors' own retries are off."""

    async def connect_in_time(request: Any) -> None:
        """A service that does not take a connection is not waited for as long as an answer is."""
        limits = request.extensions.get("timeout")
        if isinstance(limits, dict):
            limits["connect"] = min(limits.get("connect") or math.inf, 15.0)

    # Beside the event loop, since it takes so long that connections which are being made would run out of time.
    trust = await asyncio.to_thread(_trusted, packages)
    async with packages.http.AsyncClient(verify=trust, event_hooks={"request": [connect_in_time]}) as http:
        sdk, models, providers = packages.sdk, packages.vendor_models, packages.vendor_providers
        # OpenAI's refuses to be made without a key, and local services do not look at it.
        common = {"api_key": target.key or "none", "base_url": target.url, "max_retries": 0, "http_client": http}
        if target.vendor.name == "anthropic":
            client = sdk.AsyncAnthropic(timeout=target.idle_seconds, **common)
            provider = providers.AnthropicProvider(anthropic_client=client)
            yield models.AnthropicModel(target.model, provider=provider)
        elif target.vendor.name == "openai":
            provider = providers.OpenAIProvider(openai_client=sdk.AsyncOpenAI(timeout=target.idle_seconds, **common))
            # What a model thinks aloud is parted from its answer by us. pydantic-ai would take the opening tag away
            # from a thought that never ends, and the drafts in it for the answer; so it looks for tags of no model.
            profile = {"thinking_tags": ("\0thought", "\0end")}
            yield models.OpenAIChatModel(target.model, provider=provider, profile=profile)
        else:
            options = sdk.types.HttpOptions(
                base_url=target.url,
                timeout=round(target.idle_seconds * 1000),
                httpx_async_client=http,
                client_args={"verify": trust},
                async_client_args={"verify": trust},
                retry_options=sdk.types.HttpRetryOptions(attempts=1),
            )
            client = sdk.Client(vertexai=False, api_key=target.key, http_options=options)
            yield models.GoogleModel(target.model, provider=providers.GoogleProvider(client=client))


def _trusted(packages: SimpleNamespace) -> Any:
    return _trust(packages.http, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.lru_cache(maxsize=1)
def _trust(http: ModuleType, _file: str | None, _directory: str | None) -> Any:
    """Whose certificates are trusted, for all calls: the list is long, and a client would read it for each proxy."""
    return http.create_ssl_context()


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """An object around what is none, since that is all that a tool can take; None for a schema of an object."""
    if schema.get("type") == "object" or "properties" in schema:
        return None
    # Definitions are referred to from the root, so they stay there.
    definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    inner = {name: value for name, value in schema.items() if name not in definitions}
    return {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED], **definitions}


class _Answer(Struct, frozen=True, kw_only=True):
    """The answer of a model: as text, as a value, and raw; see `AgentResult` for the other fields."""

    text: str
    raw: str
    value: Any = None
    inexact: str = ""
    others: tuple[str, ...] = ()


def _answer(response: Any, target: Target, schema: Mapping[str, Any] | None) -> _Answer:
    """Return what the model answered. Raise the AgentError of an answer that is none.

    An answer is exact only if it consists of text and at most one call of the tool for the answer.
    """
    text = "".join(part.content for part in response.parts if part.part_kind == "text")
    calls = [part for part in response.parts if part.part_kind == "tool-call"]
    answers = [_arguments(call) for call in calls if call.tool_name == _TOOL]
    others = [_arguments(call) for call in calls if call.tool_name != _TOOL]
    raw = "\n".join(filter(None, (text, *answers, *others)))
    # Drafts are in the reasoning, and a draft is not an answer.
    said = after_reasoning(text)
    answered = "\n".join(part for part in (said, *answers, *others) if part.strip())
    if response.finish_reason is None:
        raise _failed(kinds.UNREACHED, target, text="the reply does not say how the answer ended", raw_output=raw)
    if kind := _BY_ENDING.get(response.finish_reason):
        raise _failed(kind, target, raw_output=raw, output=answered, model=target.model)
    found = _Answer(text=said, raw=raw, inexact=_why_inexact(response), others=(*answers[1:], *others))
    if answers:
        value = _arguments_value(answers[0], target, raw=raw, answered=answered)
        if schema is not None and _wrapped(schema) and isinstance(value, dict) and set(value) == {_WRAPPED}:
            value = value[_WRAPPED]
        if not said.strip():
            said = json.dumps(value, ensure_ascii=False)
        return replace(found, text=said, value=value)
    if not said.strip():
        problem = "it has reasoning, but no answer" if text.strip() else "it is empty"
        raise _no_answer(problem, target, raw=raw, answered=answered)
    return found


def _arguments(call: Any) -> str:
    """Return the arguments of a call as the model wrote them, if the service passes that on."""
    if isinstance(call.args, str):
        return call.args
    return json.dumps(call.args or {}, ensure_ascii=False)


def _why_inexact(response: Any) -> str:
    """Return why an answer with these parts cannot be exact, or nothing."""
    answers = 0
    for part in response.parts:
        if part.part_kind == "tool-call" and part.tool_name == _TOOL:
            answers += 1
        elif part.part_kind == "tool-call":
            return f"{NAME} got a call to an unknown tool: {kinds.one_line(part.tool_name)}"
        elif part.part_kind not in ("text", "thinking"):
            return f"{NAME} got a part that it cannot read: {part.part_kind}"
    return f"{NAME} got several answers" if answers > 1 else ""


def _arguments_value(arguments: str, target: Target, *, raw: str, answered: str) -> Any:
    try:
        return parsed(arguments)
    except ValueError as error:
        raise _no_answer(str(error), target, raw=raw, answered=answered) from error


def _no_answer(problem: str, target: Target, *, raw: str, answered: str) -> errors.OutputInvalid:
    message = f"{NAME} got no answer from {target.model}: {problem}"
    hint = "try again, or another model"
    return errors.OutputInvalid(message, agent=NAME, hint=hint, raw_output=raw, output=answered, model=target.model)


def after_reasoning(text: str) -> str:
    """Return the text after the reasoning that it begins with; nothing if the reasoning does not end.

    The first closing tag counts, so that a tag which is quoted later cannot hide a part of the answer.
    """
    position = 0
    lowered = text.lower()
    while opening := _REASONING.match(text, position):
        closing = f"</{opening[1].lower()}>"
        end = lowered.find(closing, opening.end())
        if end < 0:
            return ""
        position = end + len(closing)
    return text[position:]


def _call_failed(error: Exception, target: Target) -> errors.AgentError:
    """The error that an exception of pydantic-ai, or of a package below it, is."""
    body = getattr(error, "body", None)
    status: int | None = getattr(error, "status_code", None)
    # What a service says in the body of an error, as the vendors word such bodies.
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    message = inner.get("message") if isinstance(inner, Mapping) else inner
    text = message if isinstance(message, str) and message else str(error)
    kind = kinds.kind_of_status(status) or kinds.INVALID
    if status is None:
        causes: list[BaseException] = [error]
        while len(causes) < 10 and (cause := causes[-1].__cause__) is not None:
            causes.append(cause)
        names = (type(cause).__name__ for cause in causes)
        kind = next((_BY_NAME[name] for name in names if name in _BY_NAME), kinds.UNREACHED)
    elif status in (400, 403, 422, 429):
        kind = kinds.kind_in(f"{text} {body or ''}", _BY_TEXT) or kind
    raw, wait = "" if body is None else str(body)[:4000], getattr(error, "retry_after", None)
    return _failed(kind, target, text=text, status=status, raw_output=raw, retry_after_seconds=wait)


def _failed(kind: kinds.Kind, target: Target, *, text: str = "", **known: Any) -> errors.AgentError:
    """The error of a failure, with what is known of the service in its words."""
    program = replace(_PROGRAM, log_in=f"{target.vendor.set_key} to a valid key")
    if kind in (kinds.UNREACHED, kinds.INVALID):
        text = f"{target.url}: {text}"
    if kind is _SILENT:
        text = f"nothing came from {target.url} for {target.idle_seconds:g} s"
    return kinds.error_of(kind, program, text, asked_model=target.model, **known)
