"""Every way in which a service can fail, on every API, as a client sees it on the wire."""

from __future__ import annotations

import http.client
import time

import pytest

from codeloupe.testing import Cut, Delay, Empty, Garbage, Hang, Json, Stall, StandInServer, Status, Text, ToolUse
from tests.endings import PATIENCE_SECONDS
from tests.rows import each
from tests.unit.testing.wire import PATHS, arrived, ask, raw_connection, raw_question, read_to_end

every_api = each("api", PATHS)
streamed_or_not = each("stream", [True, False])


@every_api
@streamed_or_not
@each("code", [400, 401, 403, 404, 413, 429, 500, 529])
def test_a_status_arrives_with_its_message_as_json(api: str, code: int, *, stream: bool) -> None:
    with StandInServer([Status(code, "these words", type="own_type")]) as server:
        response = ask(server, api, stream=stream)
    assert response.status == code
    assert response.headers["content-type"] == "application/json"
    assert "retry-after" not in response.headers
    error = response.json()["error"]
    assert error["message"] == "these words"
    assert "own_type" in (error.get("type"), error.get("status"))


@every_api
def test_a_status_can_bring_headers_and_when_to_try_again(api: str) -> None:
    with StandInServer([Status(429, retry_after=3600, headers={"x-quota-reset": "tomorrow"})]) as server:
        response = ask(server, api, stream=True)
    assert (response.headers["retry-after"], response.headers["x-quota-reset"]) == ("3600", "tomorrow")


@every_api
@streamed_or_not
def test_hanging_sends_nothing_and_ends_with_the_server(api: str, *, stream: bool) -> None:
    with StandInServer([Hang()]) as server, raw_connection(server) as connection:
        connection.sendall(raw_question(api, stream=stream))
        assert arrived(server)
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(PATIENCE_SECONDS)
        connection.sendall(b"more")
        server.stop()
        assert read_to_end(connection) == b""


@every_api
def test_a_stall_sends_the_text_and_neither_its_end_nor_anything_more(api: str) -> None:
    with StandInServer([Stall("so far")]) as server, raw_connection(server) as connection:
        connection.sendall(raw_question(api, stream=True))
        received = b""
        while b"so far" not in received:
            received += connection.recv(65536)
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert b"transfer-encoding: chunked" in received
    assert not received.endswith(b"0\r\n\r\n")
    for mark in (b"message_stop", b"message_delta", b"response.completed", b"[DONE]", b"finishReason", b'"stop"'):
        assert mark not in received


def test_a_stall_of_a_whole_answer_sends_half_of_it() -> None:
    with StandInServer([Stall("so far")]) as server, raw_connection(server) as connection:
        connection.sendall(raw_question("chat", stream=False))
        assert arrived(server)
        server.stop()
        head, _, body = read_to_end(connection).partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    assert 0 < len(body) < length


@every_api
@streamed_or_not
def test_a_cut_at_once_sends_no_byte(api: str, *, stream: bool) -> None:
    with StandInServer([Cut()]) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, api, stream=stream)
        assert server.count() == 1


@every_api
@streamed_or_not
@each("after_bytes", [1, 40, 10**9])
def test_a_cut_later_leaves_the_body_unfinished(api: str, after_bytes: int, *, stream: bool) -> None:
    with StandInServer([Cut(after_bytes)]) as server, pytest.raises(http.client.IncompleteRead):
        ask(server, api, stream=stream)


@each("of", [Text("what is cut"), Json({"a": 1}), ToolUse("look", {})])
def test_a_cut_counts_the_bytes_of_the_body(of: Text | Json | ToolUse) -> None:
    with StandInServer([Cut(25, of=of)]) as server, raw_connection(server) as connection:
        connection.sendall(raw_question("anthropic", stream=False))
        body = read_to_end(connection).partition(b"\r\n\r\n")[2]
    assert len(body) == 25


@every_api
@streamed_or_not
def test_garbage_and_nothing_come_with_a_good_status(api: str, *, stream: bool) -> None:
    with StandInServer([Garbage(), Garbage("{"), Empty()]) as server:
        page, brace, nothing = (ask(server, api, stream=stream) for _ in range(3))
    assert [response.status for response in (page, brace, nothing)] == [200, 200, 200]
    assert page.body.startswith(b"<html>")
    assert (brace.body, nothing.body) == (b"{", b"")
    kind = "text/event-stream" if stream else "application/json"
    assert nothing.headers["content-type"].startswith(kind)


def test_an_empty_text_is_an_answer_without_content() -> None:
    with StandInServer([Text("")]) as server:
        assert ask(server, "anthropic").json()["content"] == []
        assert ask(server, "responses").json()["output"] == []
        assert ask(server, "chat").json()["choices"][0]["message"]["content"] == ""
        assert ask(server, "gemini").json()["candidates"][0]["content"]["parts"] == []


def test_a_delay_comes_before_what_follows_it() -> None:
    with StandInServer([Delay(0.2, Delay(0.1, Status(500))), Text("at once")]) as server:
        began = time.monotonic()
        assert ask(server, "chat").status == 500
        assert time.monotonic() - began >= 0.3
        assert ask(server, "chat").status == 200


def test_a_client_that_goes_away_during_a_delay_harms_nobody() -> None:
    with StandInServer([Delay(0.05, Text("x" * 200_000)), Text("next")]) as server:
        with raw_connection(server) as connection:
            connection.sendall(raw_question("chat", stream=True))
            assert arrived(server)
        assert ask(server, "chat").json()["choices"][0]["message"]["content"] == "next"
        time.sleep(0.1)
