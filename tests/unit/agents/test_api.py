"""The api agent against the stand-in server, as each vendor's service."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.api.agent import ApiAgent
from codeloupe.agents.calls.schemas import check_output
from codeloupe.errors import (
    AgentError,
    ConnectionFailed,
    InvalidRequest,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Refused,
    TimedOut,
)
from codeloupe.model.agent import AgentEvent, AgentResult, TokensSpent, TokenUsage, TurnTaken
from codeloupe.testing import (
    Cut,
    Delay,
    Empty,
    Garbage,
    Hang,
    Json,
    MaxTokens,
    Refusal,
    Reply,
    Stall,
    StandInServer,
    Status,
    Text,
)
from tests.endings import FAR_TOO_LONG_SECONDS, with_enough_time
from tests.unit.agents.call_samples import request

pytestmark = pytest.mark.timeout(120)

KEY = "made-up"
KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY}
MODELS = {"anthropic": "anthropic:claude-stand-in", "chat": "openai:stand-in", "gemini": "google:gemini-stand-in"}
SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
    "additionalProperties": False,
}

every_vendor = pytest.mark.parametrize("api", MODELS)


def agent_for(api: str, server: StandInServer) -> ApiAgent:
    return ApiAgent(MODELS[api], base_url=server.url, environment=KEYS)


def ask(agent: ApiAgent, *, events: list[AgentEvent] | None = None, **fields: Any) -> AgentResult:
    seen = list[AgentEvent]() if events is None else events
    return asyncio.run(agent.run(request(**fields), seen.append))


def failure_of(api: str, reply: Reply, kind: type[AgentError], **fields: Any) -> Any:
    """The error that a reply is; it names its agent, has a hint, and one request alone was made."""
    with StandInServer([reply]) as server:
        with pytest.raises(kind) as caught:
            ask(agent_for(api, server), **fields)
        assert server.count() == 1
    assert type(caught.value) is kind
    assert caught.value.agent == "api"
    assert caught.value.hint
    assert KEY not in str(caught.value)
    return caught.value


def test_an_answer_comes_back_whole_with_its_tokens_and_its_model(subtests: pytest.Subtests) -> None:
    for api in MODELS:
        with subtests.test(str(api)[:80]):
            usage = TokenUsage(input_tokens=100, cached_tokens=40, output_tokens=7)
            events: list[AgentEvent] = []
            with StandInServer([Text("Hello — there.")], usage=usage) as server:
                result = ask(agent_for(api, server), events=events)
                [asked] = server.requests
            assert (result.success, result.output, result.agent) == (True, "Hello — there.", "api")
            assert result.model == MODELS[api].partition(":")[2]
            assert result.usage == usage
            assert result.num_turns == 1
            assert result.error is None
            assert asked.api == api
            assert asked.credential == KEY
            assert events == [TurnTaken("api", 1), TokensSpent("api", 100, 7, None)]


def test_what_the_model_thought_aloud_is_not_its_answer_but_is_kept_with_it(subtests: pytest.Subtests) -> None:
    for api in MODELS:
        with subtests.test(str(api)[:80]):
            said = "<think>Perhaps nothing.</think>\n\nTwo things."
            with StandInServer([Text(said)]) as server:
                result = ask(agent_for(api, server))
            assert (result.output.strip(), result.raw_output) == ("Two things.", said)


def test_a_draft_in_a_thought_without_an_answer_behind_it_is_no_answer(subtests: pytest.Subtests) -> None:
    for said in ['<think>So {"findings": []}, or not', '<think>{"findings": []}</think>\n']:
        for api in MODELS:
            with subtests.test(str((api, said))[:80]):
                error = failure_of(api, Text(said), OutputInvalid)
                assert error.raw_output == said
                assert "thought aloud" in str(error)


def test_system_prompts_prompt_and_context_all_reach_the_model(subtests: pytest.Subtests) -> None:
    for api in MODELS:
        with subtests.test(str(api)[:80]):
            with StandInServer() as server:
                ask(
                    agent_for(api, server),
                    prompt="/look -at @/etc/hostname",
                    system_prompt="You are strict.",
                    append_system_prompt="Be brief.",
                    context={"The diff": "+ a line"},
                )
                [asked] = server.requests
            assert asked.mentions("/look -at @/etc/hostname\n\n## The diff\n\n+ a line")
            assert asked.mentions("You are strict.\n\nBe brief.")


def test_a_schema_gives_a_structured_answer(subtests: pytest.Subtests) -> None:
    for as_text in [False, True]:
        for api in MODELS:
            with subtests.test(str((api, as_text))[:80]):
                with StandInServer([Json({"count": 3}, as_text=as_text)]) as server:
                    result = ask(agent_for(api, server), output_schema=SCHEMA)
                assert result.structured == (None if as_text else {"count": 3})
                assert check_output(result, SCHEMA).structured == {"count": 3}


def test_a_schema_of_a_list_is_asked_for_inside_an_object_and_taken_out_again(subtests: pytest.Subtests) -> None:
    for api in MODELS:
        with subtests.test(str(api)[:80]):
            schema = {"type": "array", "items": {"$ref": "#/$defs/name"}, "$defs": {"name": {"type": "string"}}}
            with StandInServer([Json({"answer": ["a", "b"]})]) as server:
                result = ask(agent_for(api, server), output_schema=schema)
            assert result.structured == ["a", "b"]


def test_the_price_of_a_known_model_is_told(subtests: pytest.Subtests) -> None:
    for api in ["anthropic", "gemini"]:
        with subtests.test(str(api)[:80]):
            model = {"anthropic": "anthropic:claude-opus-4-8", "gemini": "google-gla:gemini-2.5-pro"}[api]
            with StandInServer() as server:
                result = ask(ApiAgent(model, base_url=server.url, environment=KEYS))
            assert result.total_cost_usd is not None
            assert 0 < result.total_cost_usd < 1


def test_a_service_that_speaks_as_openai_does_needs_no_key_and_no_provider() -> None:
    with StandInServer([Text("hello")]) as server:
        result = ask(ApiAgent("qwen3:8b", base_url=f"{server.url}/v1", environment={}))
        [asked] = server.requests
    assert asked.path == "/v1/chat/completions"
    assert asked.body["model"] == "qwen3:8b"
    assert (result.output, result.model, result.total_cost_usd) == ("hello", "qwen3:8b", None)


def test_the_model_of_a_request_goes_before_that_of_the_agent_and_is_asked_of_the_same_provider(
    subtests: pytest.Subtests,
) -> None:
    for api, model in MODELS.items():
        with subtests.test(str(api)[:80]), StandInServer() as server:
            assert ask(agent_for(api, server), model="another").model == "another"
            assert ask(agent_for(api, server), model=model).model == model.partition(":")[2]
            assert {asked.api for asked in server.requests} == {api}


def test_a_key_does_not_go_to_the_address_that_was_set_for_another_provider() -> None:
    with StandInServer() as local, StandInServer() as other:
        source = {**KEYS, "ANTHROPIC_BASE_URL": other.url}
        ask(ApiAgent("qwen3:8b", base_url=local.url, environment=source), model="anthropic:claude-stand-in")
        assert (local.count(), other.count()) == (0, 1)


STATUSES = [
    (Status(400), InvalidRequest),
    (Status(400, "Your credit balance is too low to ask."), NotLoggedIn),
    (Status(400, "API key not valid. Please pass a valid API key."), NotLoggedIn),
    (Status(400, "prompt is too long: 3 tokens > 2 maximum"), PromptTooLong),
    (Status(401), NotLoggedIn),
    (Status(403), NotLoggedIn),
    (Status(404), InvalidRequest),
    (Status(413), PromptTooLong),
    (Status(429, retry_after=7), RateLimited),
    (Status(500), Overloaded),
    (Status(502), Overloaded),
    (Status(503), Overloaded),
    (Status(504), Overloaded),
    (Status(529), Overloaded),
]


def test_each_status_is_its_error_and_what_the_service_said_is_in_it(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Status, type[AgentError]]] = STATUSES
    for status, kind in rows:
        for api in MODELS:
            with subtests.test(str((api, status, kind))[:80]):
                error = failure_of(api, status, kind)
                assert status.message.rstrip(".") in error.message
                assert f"({status.code})" in error.message
                assert error.__cause__ is not None
                assert getattr(error, "retry_after_seconds", None) == status.retry_after
                assert status.code != 404 or MODELS[api].partition(":")[2] in error.hint
    failure_of("chat", Status(429, type="insufficient_quota"), NotLoggedIn)


BROKEN: list[Reply] = [Cut(), Cut(30), Garbage(), Garbage('{"a": 1}'), Garbage("[]"), Garbage("null"), Empty()]


def test_a_broken_reply_of_the_service_is_a_failed_connection(subtests: pytest.Subtests) -> None:
    for reply in BROKEN:
        for api in MODELS:
            with subtests.test(str((api, reply))[:80]):
                assert failure_of(api, reply, ConnectionFailed).retryable


def test_a_service_that_is_not_there_is_a_failed_connection(subtests: pytest.Subtests) -> None:
    for api in MODELS:
        with subtests.test(str(api)[:80]):
            with StandInServer() as server:
                agent = agent_for(api, server)
            with pytest.raises(ConnectionFailed, match="127.0.0.1"):
                ask(agent)


def test_an_address_that_is_none_is_a_wrong_request() -> None:
    with pytest.raises(InvalidRequest, match="a request that the service rejected"):
        ask(ApiAgent("local", base_url="nowhere", environment={}))


def test_an_answer_that_is_none_fails(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Reply, type[AgentError]]] = [
        (MaxTokens(), OutputInvalid),
        (Refusal(), Refused),
        (Text(""), OutputInvalid),
    ]
    for reply, kind in rows:
        for api in MODELS:
            with subtests.test(str((api, reply, kind))[:80]):
                error = failure_of(api, reply, kind)
                if isinstance(reply, MaxTokens):
                    assert error.raw_output == reply.text


# The first one is too short where packages have to be loaded first, or where the machine is busy.
LIMITS_SECONDS = (0.3, 2.0, 10.0)


@every_vendor
@pytest.mark.parametrize("reply", [Hang(), Stall()], ids=repr)
def test_silence_ends_at_its_limit(api: str, reply: Reply) -> None:
    def asked_in(seconds: float) -> int:
        with StandInServer([reply]) as server, pytest.raises(TimedOut, match=f"for {seconds:g} s"):
            ask(agent_for(api, server), idle_timeout_seconds=seconds)
        return server.count()

    assert with_enough_time(asked_in, ready=bool, seconds=LIMITS_SECONDS) == 1


@every_vendor
def test_a_call_ends_at_its_deadline(api: str) -> None:
    late: Reply = Delay(FAR_TOO_LONG_SECONDS, Text("late"))

    def asked_in(seconds: float) -> int:
        with StandInServer([late]) as server, pytest.raises(TimedOut, match=f"within {seconds:g} s"):
            ask(agent_for(api, server), timeout_seconds=seconds)
        return server.count()

    assert with_enough_time(asked_in, ready=bool, seconds=LIMITS_SECONDS) == 1


@pytest.mark.parametrize("api", ["chat", "anthropic"])
def test_the_certificates_that_are_trusted_are_read_once_for_all_calls(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reading them for each call and each proxy holds up the event loop until connections run out of time.
    read: list[object] = []
    load = ssl.SSLContext.load_verify_locations

    def counted(context: ssl.SSLContext, *files: Any, **more: Any) -> None:
        read.append(files)
        load(context, *files, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", counted)
    with StandInServer([Text("hello")]) as server:
        agent = agent_for(api, server)
        assert [ask(agent).output for _ in range(3)] == ["hello"] * 3
    assert len(read) <= 1


def test_a_missing_key_is_named(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, str]] = [
        ("anthropic:claude", "ANTHROPIC_API_KEY"),
        ("openai:gpt", "OPENAI_API_KEY"),
        ("google:gemini", "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ]
    for model, name in rows:
        with subtests.test(str((model, name))[:80]):
            agent = ApiAgent(model, environment={})
            with pytest.raises(NotLoggedIn) as caught:
                ask(agent)
            assert name in caught.value.hint
            availability = asyncio.run(agent.check())
            assert (availability.found, availability.logged_in, availability.usable) == (True, False, False)
            assert name in availability.how_to_fix


def test_a_model_that_is_missing_or_without_a_known_provider_is_a_wrong_request(subtests: pytest.Subtests) -> None:
    for model in [None, "", "claude", "mistral:large", "anthropic:"]:
        with subtests.test(str(model)[:80]):
            agent = ApiAgent(model, environment=KEYS)
            with pytest.raises(InvalidRequest) as caught:
                ask(agent)
            assert "api_model" in caught.value.hint
            assert "give model" in caught.value.hint
            found = asyncio.run(agent.check())
            assert "api_model" in found.how_to_fix
            assert (found.found, found.lacks_model, found.usable) == (True, True, False)


def test_the_check_tells_version_key_and_model_and_asks_nobody() -> None:
    with StandInServer() as server:
        availability = asyncio.run(agent_for("gemini", server).check())
        local = asyncio.run(ApiAgent("local", base_url=server.url, environment={}).check())
        assert server.count() == 0
    assert availability.version
    assert (availability.logged_in, availability.default_model) == (True, MODELS["gemini"])
    assert (local.usable, local.logged_in, local.how_to_fix) == (True, None, "")


def test_without_its_packages_the_agent_says_how_to_install_them(tmp_path: Path) -> None:
    """In a process of its own: these packages are loaded here."""
    script = """
import asyncio, sys
from pathlib import Path
from codeloupe.agents.api.agent import ApiAgent
from codeloupe.errors import NotInstalled
from codeloupe.model.agent import AgentRequest
assert "pydantic_ai" not in sys.modules and "httpx2" not in sys.modules
sys.modules["pydantic_ai"] = None
agent = ApiAgent("openai:gpt", environment={"OPENAI_API_KEY": "made-up"})
try:
    asyncio.run(agent.run(AgentRequest(prompt="hello", working_dir=Path()), print))
except NotInstalled as error:
    print(error.hint)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("pip install 'codeloupe[api]'", "")
