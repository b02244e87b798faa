"""The stand-in server, as a client sees it on the wire: no library of a vendor is between."""

import contextlib
import gc
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codeloupe.model.agent import TokenUsage
from codeloupe.testing import (
    Cut,
    Delay,
    Empty,
    Garbage,
    Hang,
    Json,
    MaxTokens,
    RecordedRequest,
    Refusal,
    Reply,
    Stall,
    StandInServer,
    Status,
    Text,
    ToolUse,
)
from codeloupe.testing.__main__ import main
from tests.endings import PATIENCE_SECONDS, ends_soon, with_enough_time
from tests.rows import each

pytestmark = pytest.mark.program

PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/some-model:generateContent",
}
SECRET = "not-a-real-" + "credential"
every_api = each("api", PATHS)
streamed_or_not = each("stream", [True, False])


@dataclass(frozen=True)
class Response:
    """A response that came whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The parsed data of server-sent events."""
        assert self.headers["content-type"].startswith("text/event-stream")
        parts = self.body.decode().replace("\r\n", "\n").split("\n\n")
        assert parts.pop() == "", "the last event is not ended by an empty line"
        fields = [dict(line.split(": ", 1) for line in part.split("\n")) for part in parts]
        return [field["data"] if field["data"] == "[DONE]" else json.loads(field["data"]) for field in fields]


def port_of(server: StandInServer) -> int:
    return int(server.url.rpartition(":")[2])


def send(server: StandInServer, path: str, body: Any = None, *, method: str = "POST", **headers: str) -> Response:
    """One request on a connection of its own."""
    raw = json.dumps(body).encode() if body is not None else None
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=PATIENCE_SECONDS)) as connection:
        connection.request(method, path, raw, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def question(api: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """The path and the body of a short request."""
    if api == "gemini":
        path = PATHS[api].replace(":g", ":streamG") + "?alt=sse" if stream else PATHS[api]
        return path, {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    said = {"input": "hello"} if api == "responses" else {"messages": [{"role": "user", "content": "hello"}]}
    return PATHS[api], {"model": "some-model", "stream": stream, **said}


def ask(server: StandInServer, api: str = "chat", *, stream: bool = False, **fields: Any) -> Response:
    """Ask a model by one of the APIs."""
    path, body = question(api, stream=stream)
    return send(server, path, {**body, **fields})


def answers(*replies: Reply, api: str = "chat", stream: bool = False, **fields: Any) -> list[Response]:
    """What a server with this script says, one answer a reply."""
    with StandInServer(replies) as server:
        return [ask(server, api, stream=stream, **fields) for _ in replies]


def choices(*replies: Reply, **fields: Any) -> list[Any]:
    return [response.json()["choices"][0] for response in answers(*replies, **fields)]


def raw_connection(server: StandInServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(server)), timeout=PATIENCE_SECONDS)


def raw_question(api: str, *, stream: bool, headers: str = "") -> bytes:
    path, body = question(api, stream=stream)
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len(data)}\r\n\r\n".encode() + data


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def says_nothing(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        connection.recv(1)
    except TimeoutError:
        connection.settimeout(PATIENCE_SECONDS)
        return True
    return False


def arrived(server: StandInServer, count: int = 1) -> bool:
    """Whether so many requests come, be it late."""
    return server.wait_for(count, timeout_seconds=PATIENCE_SECONDS)


# The script and the record.


def test_the_replies_come_in_order_over_all_apis_and_the_last_one_repeats_or_none_is_left() -> None:
    words = ("one", "two", "three", "four")
    with StandInServer([*map(Text, words), Status(500)]) as server:
        assert all(word.encode() in ask(server, api).body for word, api in zip(words, PATHS, strict=True))
        assert [ask(server).status for _ in range(2)] == [500, 500]
    with StandInServer([Text("one")], then="error") as server:
        assert ask(server).status == 200
        response = ask(server)
    assert response.status == 400
    assert "no reply left" in response.json()["error"]["message"]


def test_a_function_decides_by_the_request_and_what_it_raises_is_raised_at_the_end() -> None:
    def reply(request: RecordedRequest) -> Reply:
        if request.mentions("trouble"):
            raise LookupError(f"nothing for {request.path}")
        return Text("found") if request.mentions("needle") else Status(404)

    server = StandInServer(reply=reply).start()
    said = ("a needle here", "hello", "trouble")
    responses = [ask(server, messages=[{"role": "user", "content": words}]) for words in said]
    assert [response.status for response in responses] == [200, 404, 400]
    with pytest.raises(LookupError, match="nothing for /v1/chat"):
        server.stop()


def test_requests_are_recorded_with_what_was_sent_and_a_credential_is_masked_but_can_be_compared() -> None:
    before = time.monotonic()
    with StandInServer() as server:
        send(server, "/label/v1/messages?beta=true", {"model": "m", "deep": [{"x": "needle"}]})
        recorded = server.requests[0]
        server.clear()
        for name in ("x-api-key", "Authorization", "x-goog-api-key", "api-key"):
            send(server, "/v1/messages", {}, **{name: f"Bearer {SECRET}" if name == "Authorization" else SECRET})
            assert server.requests[-1].headers[name.lower()] == "[masked]"
        send(server, f"/v1beta/models/m:generateContent?alt=json&key={SECRET}&x=1", {})
        assert server.requests[-1].query == "alt=json&key=[masked]&x=1"
        assert {one.credential for one in server.requests} == {SECRET}
        assert SECRET not in repr(server.requests)
    assert (recorded.method, recorded.path, recorded.query) == ("POST", "/label/v1/messages", "beta=true")
    assert (recorded.api, recorded.auxiliary) == ("anthropic", False)
    assert recorded.body == {"model": "m", "deep": [{"x": "needle"}]}
    assert list(recorded.strings()) == ["m", "needle"]
    assert (recorded.mentions("eedl"), recorded.mentions("deep")) == (True, False)
    assert before <= recorded.received_at <= time.monotonic()


def test_counting_goes_by_path_and_by_who_asked_and_an_unknown_path_is_not_found() -> None:
    with StandInServer() as server:
        send(server, "/a/v1/messages", {})
        send(server, "/b/v1/messages", {})
        listed = send(server, "/b/v1/models", method="GET").json()
        assert (server.count(), server.count("/a"), server.count("/b")) == (3, 1, 2)
        assert (server.count("/b", auxiliary=False), server.count(auxiliary=True)) == (1, 1)
        server.clear()
        assert (server.count(), server.requests) == (0, ())
        response = send(server, "/v1/wrong", {})
    assert response.status == 404
    assert all(path in response.json()["error"]["message"] for path in ("/v1/wrong", "/chat/completions"))
    assert (listed["object"], [model["object"] for model in listed["data"]]) == ("list", ["model"])


def test_a_hundred_and_fifty_at_once_are_all_answered() -> None:
    question = raw_question("anthropic", stream=True, headers="connection: close\r\n")

    def most_at_once(seconds: float) -> int:
        with StandInServer([Delay(seconds, Text("hi"))]) as server, contextlib.ExitStack() as stack:
            connections = [stack.enter_context(raw_connection(server)) for _ in range(150)]
            for connection in connections:
                connection.sendall(question)
            assert all(b"message_stop" in read_to_end(connection) for connection in connections)
            return server.max_concurrent

    assert with_enough_time(most_at_once, ready=lambda most: most == 150) == 150


def test_stopping_ends_every_connection_and_the_thread_and_a_taken_port_is_an_error() -> None:
    threads = set(threading.enumerate())
    server = StandInServer([Hang()]).start()
    connections = [raw_connection(server) for _ in range(20)]
    for connection in connections:
        connection.sendall(raw_question("chat", stream=True))
    idle = raw_connection(server)
    assert arrived(server, 20)
    with ends_soon():
        server.stop()
    assert set(threading.enumerate()) <= threads
    for connection in (*connections, idle):
        with connection, contextlib.suppress(ConnectionResetError):  # one that was never taken is reset by the system
            assert read_to_end(connection) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(server)))
    with StandInServer() as again, pytest.raises(OSError, match="in use"):
        StandInServer(port=port_of(again)).start()
    gc.collect()  # a socket that was left open would be a warning here, so a failure


def test_a_program_that_ends_beside_a_running_server_ends_without_a_word() -> None:
    source = (
        "import socket, sys\n"
        "from codeloupe.testing import Hang, StandInServer\n"
        "with StandInServer([Hang()]) as server:\n"
        "    connection = socket.create_connection(('127.0.0.1', int(server.url.rpartition(':')[2])))\n"
        "    connection.sendall(b'POST /v1/messages HTTP/1.1\\r\\ncontent-length: 2\\r\\n\\r\\n{}')\n"
        "    assert server.wait_for(1, timeout_seconds=30)\n"
        "connection.close()\n"
        "left_running = StandInServer().start()\n"
    )
    command = (sys.executable, "-X", "dev", "-W", "error", "-c", source)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


# The chat API, which has no program of its own among the tests.


def test_a_completion_and_a_stream_have_one_choice_and_the_usage() -> None:
    usage = TokenUsage(input_tokens=10, cached_tokens=4, output_tokens=3)
    on_wire = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    on_wire |= {"prompt_tokens_details": {"cached_tokens": 4}}  # type: ignore[dict-item]  # as the API nests it
    (whole,) = answers(Text("hi", usage=usage))
    completion = whole.json()
    assert (completion["object"], completion["model"]) == ("chat.completion", "some-model")
    message = {"role": "assistant", "content": "hi", "refusal": None}
    assert completion["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    (streamed,) = answers(Text("hi", usage=usage), stream=True)
    *spoken, last, done = streamed.events()
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in (*spoken, last)} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in spoken]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "hi"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in spoken] == [None, None, "stop"]
    assert last["choices"] == []
    assert completion["usage"] == last["usage"] == on_wire


def test_a_value_is_text_or_the_call_of_the_tool_that_asks_for_it() -> None:
    (choice,) = choices(Json({"a": 1}), response_format={"type": "json_schema"})
    assert json.loads(choice["message"]["content"]) == {"a": 1}
    (choice,) = choices(Json({"a": 1}), tools=[{"type": "function", "function": {"name": "final_result"}}])
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "final_result", "arguments": '{"a": 1}'}
    (choice,) = choices(ToolUse("say", "words"))
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "say", "arguments": '{"input": "words"}'}
    (streamed,) = answers(ToolUse("look", {"at": "a.py"}), stream=True)
    deltas = [choice["delta"] for chunk in streamed.events()[:-1] for choice in chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    function = {"name": "look", "arguments": '{"at": "a.py"}'}
    assert [(call["index"], call["type"], call["function"]) for call in calls] == [(0, "function", function)]


def test_unusual_endings_and_errors_have_their_own_marks() -> None:
    cut, refused = choices(MaxTokens("cut"), Refusal("no"))
    assert (cut["finish_reason"], cut["message"]["content"]) == ("length", "cut")
    assert (refused["message"]["content"], refused["message"]["refusal"]) == (None, "no")
    refusal, broken = answers(Refusal("no"), Status(500, "oh", in_stream=True), stream=True)
    assert refusal.events()[1]["choices"][0]["delta"] == {"refusal": "no"}
    assert broken.events()[-1]["error"]["message"] == "oh"
    (limited,) = answers(Status(429, "slow down"))
    assert (limited.status, limited.json()["error"]["code"]) == (429, "rate_limit_exceeded")


# Every way in which a service can fail, on every API.


@every_api
@streamed_or_not
def test_a_status_arrives_with_its_message_as_json(api: str, *, stream: bool) -> None:
    codes = [400, 401, 403, 404, 413, 429, 500, 529]
    responses = answers(*(Status(code, "these words", type="own_type") for code in codes), api=api, stream=stream)
    assert [response.status for response in responses] == codes
    assert {response.headers["content-type"] for response in responses} == {"application/json"}
    assert [response for response in responses if "retry-after" in response.headers] == []
    (limited,) = answers(Status(429, retry_after=36, headers={"x-reset": "tomorrow"}), api=api, stream=stream)
    assert (limited.headers["retry-after"], limited.headers["x-reset"]) == ("36", "tomorrow")
    errors = [response.json()["error"] for response in responses]
    assert {error["message"] for error in errors} == {"these words"}
    assert all("own_type" in (error.get("type"), error.get("status")) for error in errors)


@every_api
def test_hanging_sends_nothing_and_a_stall_sends_the_text_and_neither_its_end_nor_anything_more(api: str) -> None:
    for stream in (True, False):
        with StandInServer([Hang()]) as server, raw_connection(server) as connection:
            connection.sendall(raw_question(api, stream=stream))
            assert arrived(server)
            assert says_nothing(connection)
            connection.sendall(b"more")
            server.stop()
            assert read_to_end(connection) == b""
    with StandInServer([Stall("so far")]) as server, raw_connection(server) as connection:
        connection.sendall(raw_question(api, stream=True))
        received = b""
        while b"so far" not in received:
            received += connection.recv(65536)
        assert says_nothing(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length
    assert len(body) < int(length[1])
    marks = (b"message_stop", b"message_delta", b"response.completed", b"[DONE]", b"finishReason", b'"stop"')
    assert [mark for mark in marks if mark in received] == []


@every_api
@streamed_or_not
def test_a_cut_leaves_the_body_unfinished_and_garbage_or_nothing_comes_with_a_good_status(
    api: str, *, stream: bool
) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        answers(Cut(), api=api, stream=stream)
    for after_bytes in (1, 40, 10**9):
        with pytest.raises(http.client.IncompleteRead):
            answers(Cut(after_bytes), api=api, stream=stream)
    page, brace, nothing = answers(Garbage(), Garbage("{"), Empty(), api=api, stream=stream)
    assert [response.status for response in (page, brace, nothing)] == [200, 200, 200]
    assert page.body.startswith(b"<html>")
    assert (brace.body, nothing.body) == (b"{", b"")
    assert nothing.headers["content-type"].startswith("text/event-stream" if stream else "application/json")


def test_a_delay_comes_before_what_follows_it_and_a_client_that_goes_away_meanwhile_harms_nobody() -> None:
    with StandInServer([Delay(0.05, Text("x" * 200_000)), Delay(0.2, Delay(0.1, Status(500)))]) as server:
        with raw_connection(server) as connection:
            connection.sendall(raw_question("chat", stream=True))
            assert arrived(server)
        began = time.monotonic()
        assert ask(server).status == 500
        assert time.monotonic() - began >= 0.3


# `python -m codeloupe.testing`, run as a person would.


def lines_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    text = ""
    while word not in text:
        line = process.stdout.readline()
        assert line, f"it ended without saying {word!r}: {text}"
        text += line
    return text


def test_it_prints_its_address_and_settings_shows_requests_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('["by the script"]')
    command = (sys.executable, "-m", "codeloupe.testing", str(tmp_path / "script.json"))
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        said = lines_until(process, "OPENAI_API_KEY")
        address = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert address
        assert '{"security": {"auth": {"selectedType": "gemini-api-key"}}}' in said
        for name in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "model_providers.standin", "OPENAI_BASE_URL"):
            assert name in said
        answer = ask(StandInServer(port=int(address[1])), "chat").json()
        assert answer["choices"][0]["message"]["content"] == "by the script"
        assert "POST /v1/chat/completions" in lines_until(process, "POST")
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, "")


def test_what_cannot_be_used_is_an_error_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["missing.json"], "cannot read the script missing.json: .*JSON list"),
        (["1", "2"], "1 2.*Usage: python -m codeloupe.testing"),
        (["--port"], "--port.*Usage"),
        (["99999"], "99999 is not a port.*65535"),
    ):
        assert main(words) == 2
        assert re.search(said, capsys.readouterr().err, re.DOTALL)
