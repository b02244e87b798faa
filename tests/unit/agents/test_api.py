"""The api agent against the stand-in server, as each vendor's service."""

import asyncio
import json
import ssl
from typing import Any

import pytest

from codeloupe import errors
from codeloupe.agents.api.agent import ApiAgent
from codeloupe.agents.calls.schemas import check_output
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
from tests.rows import each
from tests.unit.agents.samples import request

pytestmark = [pytest.mark.program, pytest.mark.timeout(120)]

KEY = "made-up"
KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY}
MODELS = {"anthropic": "anthropic:claude-stand-in", "chat": "openai:stand-in", "gemini": "google:gemini-stand-in"}
COUNT = {"count": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": COUNT, "required": ["count"], "additionalProperties": False}

every_vendor = each("api", MODELS)
# The first one is too short where packages have to be loaded first, or where the machine is busy.
LIMITS_SECONDS = (0.3, 2.0, 10.0)
STATUSES = [
    (Status(400), errors.InvalidRequest),
    (Status(400, "Your credit balance is too low to ask."), errors.NotLoggedIn),
    (Status(400, "API key not valid. Please pass a valid API key."), errors.NotLoggedIn),
    (Status(400, "prompt is too long: 3 tokens > 2 maximum"), errors.PromptTooLong),
    (Status(401), errors.NotLoggedIn),
    (Status(403), errors.NotLoggedIn),
    (Status(404), errors.InvalidRequest),
    (Status(413), errors.PromptTooLong),
    (Status(429, retry_after=7), errors.RateLimited),
    *((Status(code), errors.Overloaded) for code in (500, 502, 503, 504, 529)),
]
BROKEN: list[Reply] = [Cut(), Cut(30), Garbage(), Garbage('{"a": 1}'), Garbage("[]"), Garbage("null"), Empty()]


def agent_for(api: str, server: StandInServer) -> ApiAgent:
    return ApiAgent(MODELS[api], base_url=server.url, environment=KEYS)


def ask(agent: ApiAgent, *, events: list[AgentEvent] | None = None, **fields: Any) -> AgentResult:
    seen = list[AgentEvent]() if events is None else events
    return asyncio.run(agent.run(request(**fields), seen.append))


def failure_of(api: str, reply: Reply, kind: type[errors.AgentError], **fields: Any) -> Any:
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


@every_vendor
def test_an_answer_comes_back_whole_with_its_tokens_and_its_model(api: str) -> None:
    usage = TokenUsage(input_tokens=100, cached_tokens=40, output_tokens=7)
    events: list[AgentEvent] = []
    with StandInServer([Text("Hello — there.")], usage=usage) as server:
        result = ask(
            agent_for(api, server),
            events=events,
            prompt="/look -at @/etc/hostname",
            system_prompt="You are strict.",
            append_system_prompt="Be brief.",
            context={"The diff": "+ a line"},
        )
        [asked] = server.requests
    assert (result.success, result.output, result.agent, result.num_turns) == (True, "Hello — there.", "api", 1)
    assert (result.model, result.usage, result.error) == (MODELS[api].partition(":")[2], usage, None)
    assert (asked.api, asked.credential) == (api, KEY)
    assert asked.mentions("/look -at @/etc/hostname\n\n## The diff\n\n+ a line")
    assert asked.mentions("You are strict.\n\nBe brief.")
    assert events == [TurnTaken("api", 1), TokensSpent("api", 100, 7, None)]


@every_vendor
def test_what_the_model_thought_aloud_is_not_its_answer_but_is_kept_with_it(api: str) -> None:
    said = "<think>Perhaps nothing.</think>\n\nTwo things."
    with StandInServer([Text(said)]) as server:
        result = ask(agent_for(api, server))
    assert (result.output.strip(), result.raw_output) == ("Two things.", said)
    for draft in ('<think>So {"findings": []}, or not', '<think>{"findings": []}</think>\n'):
        error = failure_of(api, Text(draft), errors.OutputInvalid)
        assert isinstance(error, errors.OutputInvalid)
        assert (error.raw_output, error.output) == (draft, "")
        assert "it has reasoning, but no answer" in str(error)


@every_vendor
def test_an_answer_that_was_cut_off_is_told_without_the_drafts_before_it(api: str) -> None:
    for thought, said in (('<think>{"findings": []}</think>', '{"findings": ['), ('<think>{"findings": []}', "")):
        error = failure_of(api, MaxTokens(f"{thought}{said}"), errors.OutputInvalid)
        assert isinstance(error, errors.OutputInvalid)
        assert (error.output, error.raw_output) == (said, f"{thought}{said}")
        assert "was cut off" in error.message


@every_vendor
def test_a_schema_gives_a_structured_answer_also_of_a_list(api: str) -> None:
    listing = {"type": "array", "items": {"$ref": "#/$defs/name"}, "$defs": {"name": {"type": "string"}}}
    cases: list[tuple[Reply, dict[str, Any], Any, Any]] = [
        (Json({"count": 3}), SCHEMA, {"count": 3}, {"count": 3}),
        (Json({"count": 3}, as_text=True), SCHEMA, None, {"count": 3}),
        (Json({"answer": ["a", "b"]}), listing, ["a", "b"], ["a", "b"]),
    ]
    for reply, schema, structured, checked in cases:
        with StandInServer([reply]) as server:
            result = ask(agent_for(api, server), output_schema=schema)
        assert result.structured == structured
        assert check_output(result, schema).structured == checked


FOUND = '{"count": 3}'
CLEAN = '{"count": 0}'


def chat(content: str | None, *calls: tuple[str, str], finish: str = "tool_calls") -> Reply:
    """Return a completion in the manner of OpenAI with these calls of tools, each with its arguments."""
    used = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": used}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    known = {"id": "x", "object": "chat.completion", "created": 1, "model": "stand-in"}
    return Garbage(json.dumps({**known, "choices": [choice], "usage": usage}))


@pytest.mark.defect("F8")
@each(
    ("reply", "why", "others"),
    [
        (chat(None, ("final_result", CLEAN)), "", ()),
        (chat("I looked.", ("final_result", CLEAN)), "", ()),
        (chat(None, ("final_result", CLEAN), ("final_result", FOUND)), "several answers", (FOUND,)),
        (chat(None, ("report", FOUND), ("final_result", CLEAN)), "a call to an unknown tool: report", (FOUND,)),
        (chat(CLEAN, ("report", FOUND)), "a call to an unknown tool: report", (FOUND,)),
        (chat(CLEAN, ("report", "{]")), "a call to an unknown tool: report", ("{]",)),
    ],
)
def test_an_answer_with_any_part_but_text_and_one_answer_is_inexact(
    reply: Reply, why: str, others: tuple[str, ...]
) -> None:
    with StandInServer([reply]) as server:
        result = ask(agent_for("chat", server), output_schema=SCHEMA)
    assert why in result.inexact
    assert bool(result.inexact) is bool(why)
    assert result.other_answers == others
    assert all(other in result.raw_output for other in others)


def test_the_arguments_of_a_call_are_read_as_the_model_wrote_them() -> None:
    for arguments, problem in (('{"count": 3, "count": 0}', "key given twice"), ('{"count": 3,}', "not JSON")):
        error = failure_of("chat", chat(None, ("final_result", arguments)), errors.OutputInvalid, output_schema=SCHEMA)
        assert problem in error.message
        assert error.output == arguments
    cut = '{"findings": [{"title": "a"}, {"ti'
    error = failure_of("chat", chat(None, ("final_result", cut), finish="length"), errors.OutputInvalid)
    assert error.output == cut


def test_the_model_decides_on_the_provider_the_price_and_what_a_request_without_one_is_asked_of() -> None:
    for model in ("anthropic:claude-opus-4-8", "google-gla:gemini-2.5-pro"):
        with StandInServer() as server:
            cost = ask(ApiAgent(model, base_url=server.url, environment=KEYS)).total_cost_usd
        assert cost is not None
        assert 0 < cost < 1
    for api, model in MODELS.items():
        with StandInServer() as server:
            assert ask(agent_for(api, server), model="another").model == "another"
            assert ask(agent_for(api, server), model=model).model == model.partition(":")[2]
            assert {asked.api for asked in server.requests} == {api}
    # One that speaks as OpenAI does needs no key and no provider.
    with StandInServer([Text("hello")]) as server:
        result = ask(ApiAgent("qwen3:8b", base_url=f"{server.url}/v1", environment={}))
        [asked] = server.requests
    assert (asked.path, asked.body["model"]) == ("/v1/chat/completions", "qwen3:8b")
    assert (result.output, result.model, result.total_cost_usd) == ("hello", "qwen3:8b", None)
    # A key does not go to the address that was set for another provider.
    with StandInServer() as local, StandInServer() as other:
        source = {**KEYS, "ANTHROPIC_BASE_URL": other.url}
        ask(ApiAgent("qwen3:8b", base_url=local.url, environment=source), model="anthropic:claude-stand-in")
        assert (local.count(), other.count()) == (0, 1)


@every_vendor
def test_each_status_is_its_error_and_what_the_service_said_is_in_it(api: str) -> None:
    for status, kind in STATUSES:
        error = failure_of(api, status, kind)
        assert status.message.rstrip(".") in error.message
        assert f"({status.code})" in error.message
        assert error.__cause__ is not None
        assert getattr(error, "retry_after_seconds", None) == status.retry_after
        assert status.code != 404 or MODELS[api].partition(":")[2] in error.hint
    if api == "chat":
        failure_of(api, Status(429, type="insufficient_quota"), errors.NotLoggedIn)
        failure_of(api, Status(400, type="content_filter"), errors.Refused)


@every_vendor
def test_a_broken_reply_is_a_failed_connection_and_an_answer_that_is_none_fails(api: str) -> None:
    for reply in BROKEN:
        assert failure_of(api, reply, errors.ConnectionFailed).retryable
    assert failure_of(api, MaxTokens(), errors.OutputInvalid).raw_output == MaxTokens().text
    failure_of(api, Refusal(), errors.Refused)
    failure_of(api, Text(""), errors.OutputInvalid)
    with StandInServer() as server:
        agent = agent_for(api, server)
    with pytest.raises(errors.ConnectionFailed, match=r"127\.0\.0\.1"):
        ask(agent)


@every_vendor
def test_silence_ends_at_its_limit_and_a_call_at_its_deadline(api: str) -> None:
    late: Reply = Delay(FAR_TOO_LONG_SECONDS, Text("late"))
    cases: list[tuple[Reply, str, str]] = [
        (Hang(), "idle_timeout_seconds", "for"),
        (Stall(), "idle_timeout_seconds", "for"),
        (late, "timeout_seconds", "within"),
    ]
    for reply, limit, word in cases:

        def asked_in(seconds: float, reply: Reply = reply, limit: str = limit, word: str = word) -> int:
            with StandInServer([reply]) as server, pytest.raises(errors.TimedOut, match=f"{word} {seconds:g} s"):
                ask(agent_for(api, server), events=[], **{limit: seconds})
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


def test_what_is_missing_is_named_by_a_call_and_by_the_check_which_asks_nobody() -> None:
    for model, name in (
        ("anthropic:claude", "ANTHROPIC_API_KEY"),
        ("openai:gpt", "OPENAI_API_KEY"),
        ("google:gemini", "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ):
        agent = ApiAgent(model, environment={})
        with pytest.raises(errors.NotLoggedIn) as caught:
            ask(agent)
        found = asyncio.run(agent.check())
        assert (found.found, found.logged_in, found.usable) == (True, False, False)
        assert all(name in hint for hint in (caught.value.hint, found.how_to_fix))
    for no_model in (None, "", "claude", "mistral:large", "anthropic:"):
        agent = ApiAgent(no_model, environment=KEYS)
        with pytest.raises(errors.InvalidRequest, match="model") as wrong:
            ask(agent)
        found = asyncio.run(agent.check())
        assert (found.found, found.lacks_model, found.usable) == (True, True, False)
        assert all("api_model" in hint for hint in (wrong.value.hint, found.how_to_fix))
    with pytest.raises(errors.InvalidRequest, match="a request that the service rejected"):
        ask(ApiAgent("local", base_url="nowhere", environment={}))
    with StandInServer() as server:
        found = asyncio.run(agent_for("gemini", server).check())
        local = asyncio.run(ApiAgent("local", base_url=server.url, environment={}).check())
        assert server.count() == 0
    assert found.version
    assert (found.logged_in, found.default_model) == (True, MODELS["gemini"])
    assert (local.usable, local.logged_in, local.how_to_fix) == (True, None, "")
