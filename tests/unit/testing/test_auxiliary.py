"""What the agent programs ask for themselves, in the form in which they were seen to ask it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codeloupe.testing import RecordedRequest, StandInServer, Text
from codeloupe.testing.recording import is_auxiliary, sample_of
from tests.unit.testing.wire import PATHS, STREAMED_GEMINI, send

CLAUDE = {"user-agent": "claude-cli/2.1.325 (external, sdk-py, agent-sdk/0.2.182)"}
GEMINI = {"user-agent": "GeminiCLI-tui/0.61.0/gemini-3.1-pro-preview (linux; x64; terminal)"}
TITLE_SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
TITLE = {
    "model": "m",
    "stream": True,
    "tools": [],
    "output_config": {"effort": "medium", "format": {"type": "json_schema", "schema": TITLE_SCHEMA}},
}
TURN = {"model": "m", "stream": True, "tools": [{"name": "StructuredOutput"}], "output_config": {"effort": "medium"}}
ROUTING_SCHEMA = {
    "type": "OBJECT",
    "properties": {"complexity_reasoning": {"type": "STRING"}, "complexity_score": {"type": "INTEGER"}},
    "required": ["complexity_reasoning", "complexity_score"],
}
ROUTING = {"contents": [], "generationConfig": {"responseJsonSchema": ROUTING_SCHEMA}}


def codex(kind: str) -> dict[str, str]:
    return {"x-codex-turn-metadata": json.dumps({"session_id": "s", "request_kind": kind})}


@pytest.mark.parametrize(
    ("path", "body", "headers", "expected"),
    [
        (PATHS["anthropic"], TITLE, CLAUDE, True),
        (PATHS["anthropic"], {"model": "m", "max_tokens": 1, "messages": []}, CLAUDE, True),
        (PATHS["anthropic"], TURN, CLAUDE, False),
        (PATHS["anthropic"], TITLE, {}, False),
        (PATHS["gemini"], ROUTING, GEMINI, True),
        (STREAMED_GEMINI, {"contents": []}, GEMINI, False),
        (PATHS["gemini"], ROUTING, {"user-agent": "google-genai-sdk/3.1.0"}, False),
        (PATHS["responses"], {"input": []}, codex("turn"), False),
        (PATHS["responses"], {"input": []}, codex("memory"), True),
        (PATHS["responses"], {"input": []}, {"x-codex-turn-metadata": "{"}, False),
        (PATHS["responses"], {"input": []}, {"x-codex-turn-metadata": "[]"}, False),
        (PATHS["responses"], {"input": []}, {}, False),
        (PATHS["chat"], {"messages": []}, CLAUDE, False),
    ],
)
def test_only_what_a_program_asks_for_itself_leaves_the_script_alone(
    path: str, body: dict[str, Any], headers: dict[str, str], *, expected: bool
) -> None:
    with StandInServer([Text("scripted"), Text("left")]) as server:
        response = send(server, path, body, headers=headers)
        assert [request.auxiliary for request in server.requests] == [expected]
        assert server.wait_for(1, timeout_seconds=0) is not expected
    assert (b"scripted" in response.body) is not expected


def test_a_title_and_a_route_are_given_as_their_schemas_ask() -> None:
    with StandInServer() as server:
        title = send(server, PATHS["anthropic"], {**TITLE, "stream": False}, headers=CLAUDE).json()
        route = send(server, PATHS["gemini"], ROUTING, headers=GEMINI).json()
    assert json.loads(title["content"][0]["text"]) == {"title": "ok"}
    text = route["candidates"][0]["content"]["parts"][0]["text"]
    assert json.loads(text) == {"complexity_reasoning": "ok", "complexity_score": 1}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["flash", "pro"]}, "flash"),
        ({"enum": []}, {}),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": "boolean"}, False),
        ({"type": ["string", "null"]}, None),
        ({"type": "object", "properties": {"a": {"type": "number"}}}, {"a": 1}),
        ({"properties": 3, "required": "ab"}, {}),
        ("nonsense", None),
    ],
)
def test_a_sample_is_small_and_never_fails(schema: Any, value: Any) -> None:
    assert sample_of(schema) == value


def test_a_body_of_strange_types_is_nobodys_own() -> None:
    request = RecordedRequest(
        method="POST", path="/v1/messages", api="anthropic", headers=CLAUDE, body={"output_config": {"format": 3}}
    )
    assert not is_auxiliary(request)
