from __future__ import annotations

import pytest

from codeloupe.model.agent import TokenUsage
from codeloupe.testing import Json, MaxTokens, Refusal, StandInServer, Status, Text, ToolUse
from tests.unit.testing.wire import ask, send

USAGE = TokenUsage(input_tokens=10, cached_tokens=4, output_tokens=3)
WIRE_USAGE = {
    "promptTokenCount": 10,
    "cachedContentTokenCount": 4,
    "candidatesTokenCount": 3,
    "totalTokenCount": 13,
}


def test_a_document_has_one_candidate_and_the_model_of_the_path() -> None:
    with StandInServer([Text("hi", usage=USAGE)]) as server:
        document = ask(server, "gemini").json()
    assert document["candidates"] == [
        {"index": 0, "content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}
    ]
    assert document["usageMetadata"] == WIRE_USAGE
    assert document["modelVersion"] == "some-model"


def test_a_stream_has_the_reason_of_its_end_in_the_last_event_alone() -> None:
    with StandInServer([Text("hi", usage=USAGE)]) as server:
        documents = [data for _, data in ask(server, "gemini", stream=True).events()]
    assert [document["candidates"][0].get("finishReason") for document in documents] == [None, "STOP"]
    assert documents[0]["candidates"][0]["content"]["parts"] == [{"text": "hi"}]
    assert documents[-1]["usageMetadata"] == WIRE_USAGE


def test_a_function_is_called_behind_the_text() -> None:
    reply = ToolUse("list_directory", {"dir_path": "."}, text="Let me look.")
    call = {"functionCall": {"id": "call_000001", "name": "list_directory", "args": {"dir_path": "."}}}
    with StandInServer([reply]) as server:
        parts = ask(server, "gemini").json()["candidates"][0]["content"]["parts"]
        streamed = [data["candidates"][0] for _, data in ask(server, "gemini", stream=True).events()]
    assert parts == [{"text": "Let me look."}, call]
    assert streamed[-1]["content"]["parts"][0]["functionCall"]["name"] == "list_directory"


def test_a_value_is_text_or_the_call_of_the_tool_that_asks_for_it() -> None:
    tools = [{"functionDeclarations": [{"name": "final_result"}]}]
    with StandInServer([Json({"a": 1})]) as server:
        text = ask(server, "gemini").json()["candidates"][0]["content"]["parts"]
        call = ask(server, "gemini", tools=tools).json()["candidates"][0]["content"]["parts"]
    assert text == [{"text": '{"a": 1}'}]
    assert call[0]["functionCall"]["args"] == {"a": 1}


def test_unusual_endings_are_finish_reasons() -> None:
    with StandInServer([MaxTokens("cut"), Refusal("no"), Refusal("no")]) as server:
        cut = ask(server, "gemini").json()["candidates"][0]
        refused = ask(server, "gemini").json()["candidates"][0]
        streamed = [data["candidates"][0] for _, data in ask(server, "gemini", stream=True).events()]
    assert (cut["finishReason"], cut["content"]["parts"]) == ("MAX_TOKENS", [{"text": "cut"}])
    assert refused == {"index": 0, "finishReason": "SAFETY", "finishMessage": "no"}
    assert streamed == [refused]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (529, "UNAVAILABLE"),
    ],
)
def test_an_error_has_the_status_word_of_its_code(code: int, status: str) -> None:
    with StandInServer([Status(code, "no")]) as server:
        response = ask(server, "gemini", stream=True)
    assert response.status == code
    assert response.json() == {"error": {"code": code, "message": "no", "status": status}}


def test_when_to_try_again_is_in_the_header_and_in_the_details() -> None:
    with StandInServer([Status(429, "slow down", retry_after=2.5)]) as server:
        response = ask(server, "gemini")
    assert response.headers["retry-after"] == "2.5"
    assert response.json()["error"]["details"][0]["retryDelay"] == "2.5s"


def test_an_error_in_the_stream_is_an_event() -> None:
    with StandInServer([Status(503, "busy", in_stream=True)]) as server:
        events = ask(server, "gemini", stream=True).events()
    assert events[-1][1]["error"]["status"] == "UNAVAILABLE"


def test_tokens_are_counted() -> None:
    with StandInServer() as server:
        assert send(server, "/v1beta/models/m:countTokens", {"contents": ["x" * 400]}).json()["totalTokens"] > 100
