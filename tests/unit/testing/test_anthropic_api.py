from __future__ import annotations

import pytest

from codeloupe.model.agent import TokenUsage
from codeloupe.testing import Json, MaxTokens, Refusal, Reply, StandInServer, Status, Text, ToolUse
from tests.unit.testing.wire import ask, send

USAGE = TokenUsage(input_tokens=10, cached_tokens=4, output_tokens=3)
WIRE_USAGE = {
    "input_tokens": 6,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 4,
    "output_tokens": 3,
}
STRUCTURED = [{"name": "Read", "input_schema": {}}, {"name": "StructuredOutput", "input_schema": {}}]


def test_a_message_has_the_fields_of_the_api() -> None:
    with StandInServer([Text("hi", usage=USAGE)]) as server:
        response = ask(server, "anthropic")
    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "id": "msg_000001",
        "type": "message",
        "role": "assistant",
        "model": "some-model",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": WIRE_USAGE,
    }


def test_a_stream_has_its_events_in_order() -> None:
    with StandInServer([Text("hi", usage=USAGE)]) as server:
        events = ask(server, "anthropic", stream=True).events()
    assert [name for name, _ in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(data["type"] == name for name, data in events)
    data = [data for _, data in events]
    assert (data[0]["message"]["content"], data[0]["message"]["stop_reason"]) == ([], None)
    assert data[1] == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    assert data[2]["delta"] == {"type": "text_delta", "text": "hi"}
    assert data[4]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert data[4]["usage"] == WIRE_USAGE


def test_a_long_text_comes_in_pieces_that_make_up_the_whole() -> None:
    text = "äöü – " * 5000
    with StandInServer([Text(text)]) as server:
        events = ask(server, "anthropic", stream=True).events()
    deltas = [data["delta"]["text"] for name, data in events if name == "content_block_delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == text


def test_a_tool_is_called_behind_the_text() -> None:
    reply = ToolUse("Read", {"file_path": "a.py"}, text="Let me look.")
    with StandInServer([reply]) as server:
        message = ask(server, "anthropic").json()
        events = ask(server, "anthropic", stream=True).events()
    call = {"type": "tool_use", "id": "toolu_000001", "name": "Read", "input": {"file_path": "a.py"}}
    assert message["content"] == [{"type": "text", "text": "Let me look."}, call]
    assert message["stop_reason"] == "tool_use"
    starts = [data for name, data in events if name == "content_block_start"]
    assert [start["index"] for start in starts] == [0, 1]
    assert starts[1]["content_block"]["input"] == {}
    assert [data["delta"]["partial_json"] for _, data in events if "partial_json" in data.get("delta", {})] == [
        '{"file_path": "a.py"}'
    ]


@pytest.mark.parametrize("tool", ["StructuredOutput", "final_result"])
def test_a_value_is_given_by_the_tool_that_asks_for_it(tool: str) -> None:
    with StandInServer([Json({"a": 1})]) as server:
        message = ask(server, "anthropic", tools=[{"name": "Read"}, {"name": tool}]).json()
    assert [(block["type"], block["name"], block["input"]) for block in message["content"]] == [
        ("tool_use", tool, {"a": 1})
    ]


@pytest.mark.parametrize(
    ("reply", "tools"),
    [(Json({"a": 1}), []), (Json({"a": 1}, as_text=True), STRUCTURED), (Json({"a": 1}), [{"name": "Read"}, 3])],
)
def test_a_value_is_text_where_no_tool_asks_or_text_was_told(reply: Reply, tools: list[object]) -> None:
    with StandInServer([reply]) as server:
        message = ask(server, "anthropic", tools=tools).json()
    assert message["content"] == [{"type": "text", "text": '{"a": 1}'}]
    assert message["stop_reason"] == "end_turn"


@pytest.mark.parametrize(("reply", "reason"), [(MaxTokens("cut"), "max_tokens"), (Refusal("no"), "refusal")])
def test_an_unusual_ending_is_the_stop_reason(reply: Reply, reason: str) -> None:
    with StandInServer([reply]) as server:
        assert ask(server, "anthropic").json()["stop_reason"] == reason
        assert ask(server, "anthropic", stream=True).events()[-2][1]["delta"]["stop_reason"] == reason


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_error_has_the_type_that_belongs_to_its_status(code: int, kind: str) -> None:
    with StandInServer([Status(code, "no")]) as server:
        response = ask(server, "anthropic", stream=True)
    assert response.status == code
    assert response.json()["type"] == "error"
    assert response.json()["error"] == {"type": kind, "message": "no"}


def test_an_error_in_the_stream_follows_an_answer_that_began_well() -> None:
    with StandInServer([Status(529, "busy", in_stream=True)]) as server:
        response = ask(server, "anthropic", stream=True)
    assert response.status == 200
    assert response.events()[0][0] == "message_start"
    assert response.events()[-1][0] == "error"
    assert response.events()[-1][1]["error"] == {"type": "overloaded_error", "message": "busy"}


def test_tokens_are_counted_without_asking_the_script() -> None:
    with StandInServer([Text("first")]) as server:
        counted = send(server, "/v1/messages/count_tokens?beta=true", {"messages": []}).json()
        assert counted["input_tokens"] >= 1
        assert ask(server, "anthropic").json()["content"][0]["text"] == "first"
        assert [request.auxiliary for request in server.requests] == [True, False]
