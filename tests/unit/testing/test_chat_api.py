from __future__ import annotations

import json

from codeloupe.model.agent import TokenUsage
from codeloupe.testing import Json, MaxTokens, Refusal, StandInServer, Status, Text, ToolUse
from tests.unit.testing.wire import ask, send

USAGE = TokenUsage(input_tokens=10, cached_tokens=4, output_tokens=3)
WIRE_USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 3,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 4},
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


def test_a_completion_has_one_choice_and_the_usage() -> None:
    with StandInServer([Text("hi", usage=USAGE)]) as server:
        completion = ask(server, "chat").json()
    assert (completion["object"], completion["model"]) == ("chat.completion", "some-model")
    message = {"role": "assistant", "content": "hi", "refusal": None}
    assert completion["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    assert completion["usage"] == WIRE_USAGE


def test_a_stream_begins_with_the_role_and_ends_with_usage_and_done() -> None:
    with StandInServer([Text("hi", usage=USAGE)]) as server:
        chunks = [data for _, data in ask(server, "chat", stream=True).events()]
    assert chunks.pop() == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    *spoken, last = chunks
    assert [chunk["choices"][0]["delta"] for chunk in spoken] == [
        {"role": "assistant", "content": ""},
        {"content": "hi"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in spoken] == [None, None, "stop"]
    assert (last["choices"], last["usage"]) == ([], WIRE_USAGE)


def test_a_value_is_text_where_a_response_format_asks_for_it() -> None:
    with StandInServer([Json({"a": 1})]) as server:
        completion = ask(server, "chat", response_format=SCHEMA).json()
    assert json.loads(completion["choices"][0]["message"]["content"]) == {"a": 1}


def test_a_value_is_the_call_of_the_tool_that_asks_for_it() -> None:
    tools = [{"type": "function", "function": {"name": "final_result"}}]
    with StandInServer([Json({"a": 1})]) as server:
        choice = ask(server, "chat", tools=tools).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "final_result", "arguments": '{"a": 1}'}


def test_a_tool_is_called_in_a_chunk_of_its_own() -> None:
    with StandInServer([ToolUse("look", {"at": "a.py"}), ToolUse("say", "words")]) as server:
        chunks = [data for _, data in ask(server, "chat", stream=True).events()][:-1]
        text_input = ask(server, "chat").json()["choices"][0]["message"]["tool_calls"][0]["function"]
    calls = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", [])]
    assert [(call["index"], call["type"], call["function"]) for call in calls] == [
        (0, "function", {"name": "look", "arguments": '{"at": "a.py"}'})
    ]
    assert text_input == {"name": "say", "arguments": '{"input": "words"}'}


def test_unusual_endings_have_their_own_marks() -> None:
    with StandInServer([MaxTokens("cut"), Refusal("no"), Refusal("no")]) as server:
        cut = ask(server, "chat").json()["choices"][0]
        refused = ask(server, "chat").json()["choices"][0]
        chunks = [data for _, data in ask(server, "chat", stream=True).events()]
    assert (cut["finish_reason"], cut["message"]["content"]) == ("length", "cut")
    assert (refused["message"]["content"], refused["message"]["refusal"]) == (None, "no")
    assert chunks[1]["choices"][0]["delta"] == {"refusal": "no"}


def test_errors_are_worded_as_those_of_openai() -> None:
    with StandInServer([Status(429, "slow down"), Status(500, "oh", in_stream=True)]) as server:
        whole = ask(server, "chat")
        streamed = ask(server, "chat", stream=True)
    assert (whole.status, whole.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert streamed.events()[-1][1]["error"]["message"] == "oh"


def test_the_models_are_listed_for_clients_that_look_first() -> None:
    with StandInServer() as server:
        listed = send(server, "/v1/models", method="GET").json()
        assert server.count(auxiliary=True) == 1
    assert listed["object"] == "list"
    assert [model["object"] for model in listed["data"]] == ["model"]
