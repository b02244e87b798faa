from __future__ import annotations

import pytest

from codeloupe.model.agent import TokenUsage
from codeloupe.testing import Json, MaxTokens, Refusal, StandInServer, Status, Text, ToolUse
from tests.unit.testing.wire import ask

USAGE = TokenUsage(input_tokens=10, cached_tokens=4, output_tokens=3)
WIRE_USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 13,
}


def test_a_response_has_the_message_and_the_usage() -> None:
    with StandInServer([Text("hi", usage=USAGE)]) as server:
        response = ask(server, "responses").json()
    assert (response["object"], response["status"], response["model"]) == ("response", "completed", "some-model")
    part = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}
    assert response["output"] == [
        {"type": "message", "id": "msg_000001", "role": "assistant", "content": [part], "status": "completed"}
    ]
    assert response["usage"] == WIRE_USAGE


def test_a_stream_has_its_events_in_order_and_numbered() -> None:
    with StandInServer([Text("hi", usage=USAGE)]) as server:
        whole = ask(server, "responses").json()
        events = ask(server, "responses", stream=True).events()
    assert [name for name, _ in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert all(data["type"] == name for name, data in events)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    data = dict(events)
    assert data["response.created"]["response"]["status"] == "in_progress"
    assert data["response.created"]["response"]["output"] == []
    assert data["response.output_item.added"]["item"]["content"] == []
    assert data["response.output_text.delta"]["delta"] == "hi"
    assert data["response.output_item.done"]["item"]["content"][0]["text"] == "hi"
    assert data["response.completed"]["response"] == {
        **whole,
        "id": "resp_000002",
        "output": [{**whole["output"][0], "id": "msg_000002"}],
    }


def test_a_function_is_called_with_json() -> None:
    with StandInServer([ToolUse("exec_command", {"cmd": "ls"})]) as server:
        events = ask(server, "responses", stream=True).events()
    assert [name for name, _ in events][2:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    item = dict(events)["response.output_item.done"]["item"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "exec_command", '{"cmd": "ls"}')


def test_a_tool_that_takes_text_is_called_with_text() -> None:
    with StandInServer([ToolUse("exec", 'text("hi")')]) as server:
        output = ask(server, "responses").json()["output"]
        names = [name for name, _ in ask(server, "responses", stream=True).events()]
    assert [(item["type"], item["name"], item["input"]) for item in output] == [
        ("custom_tool_call", "exec", 'text("hi")')
    ]
    assert "response.custom_tool_call_input.delta" in names


def test_a_value_is_text_or_the_call_of_the_tool_that_asks_for_it() -> None:
    with StandInServer([Json({"a": 1})]) as server:
        text = ask(server, "responses").json()["output"]
        call = ask(server, "responses", tools=[{"type": "function", "name": "final_result"}]).json()["output"]
    assert text[0]["content"][0]["text"] == '{"a": 1}'
    assert (call[0]["name"], call[0]["arguments"]) == ("final_result", '{"a": 1}')


def test_an_answer_that_ran_out_of_tokens_is_incomplete() -> None:
    with StandInServer([MaxTokens("cut")]) as server:
        name, data = ask(server, "responses", stream=True).events()[-1]
    assert name == "response.incomplete"
    assert data["response"]["status"] == "incomplete"
    assert data["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_refusal_is_a_part_of_its_own() -> None:
    with StandInServer([Refusal("no")]) as server:
        whole = ask(server, "responses").json()
        events = dict(ask(server, "responses", stream=True).events())
    assert whole["output"][0]["content"] == [{"type": "refusal", "refusal": "no"}]
    assert events["response.refusal.delta"]["delta"] == "no"
    assert events["response.refusal.done"]["refusal"] == "no"


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        (400, "invalid_request_error", None),
        (401, "invalid_request_error", "invalid_api_key"),
        (404, "invalid_request_error", "model_not_found"),
        (429, "requests", "rate_limit_exceeded"),
        (500, "server_error", "server_error"),
    ],
)
def test_an_error_has_the_words_that_belong_to_its_status(code: int, kind: str, word: str | None) -> None:
    with StandInServer([Status(code, "no")]) as server:
        response = ask(server, "responses", stream=True)
    assert response.status == code
    assert response.json() == {"error": {"message": "no", "type": kind, "param": None, "code": word}}


def test_an_error_in_the_stream_is_a_failed_response() -> None:
    with StandInServer([Status(429, "slow down", in_stream=True)]) as server:
        name, data = ask(server, "responses", stream=True).events()[-1]
    assert name == "response.failed"
    assert data["response"]["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}
