from __future__ import annotations

import contextlib
import gc
import socket
import subprocess
import sys
import threading
import time

import pytest

from codeloupe.testing import Delay, Hang, RecordedRequest, Reply, StandInServer, Status, Text
from tests.endings import ends_soon, with_enough_time
from tests.rows import each
from tests.unit.testing.wire import PATHS, arrived, ask, port_of, raw_connection, raw_question, read_to_end, send

SECRET = "not-a-real-" + "credential"


def spoken(server: StandInServer) -> str:
    response = ask(server, "chat")
    body = response.json()
    return str(body["choices"][0]["message"]["content"] if response.status == 200 else response.status)


def test_the_replies_come_in_order_and_the_last_one_repeats() -> None:
    with StandInServer([Text("one"), Status(500), Text("three")]) as server:
        assert [spoken(server) for _ in range(4)] == ["one", "500", "three", "three"]


def test_a_script_that_must_not_repeat_ends_in_an_error_that_says_so() -> None:
    with StandInServer([Text("one")], then="error") as server:
        assert spoken(server) == "one"
        response = ask(server, "chat")
    assert response.status == 400
    assert "no reply left" in response.json()["error"]["message"]


def test_one_script_serves_all_apis() -> None:
    with StandInServer([Text("one"), Text("two"), Text("three"), Text("four")]) as server:
        bodies = [ask(server, api).body for api in PATHS]
    for word, body in zip((b"one", b"two", b"three", b"four"), bodies, strict=True):
        assert word in body


def test_a_function_decides_by_the_request() -> None:
    def reply(request: RecordedRequest) -> Reply:
        return Text("found") if request.mentions("needle") else Status(404)

    with StandInServer(reply=reply) as server:
        assert ask(server, "chat", messages=[{"role": "user", "content": "a needle here"}]).status == 200
        assert ask(server, "chat").status == 404


def test_what_the_function_raises_is_an_error_400_and_is_raised_at_the_end() -> None:
    def reply(request: RecordedRequest) -> Reply:
        raise LookupError(f"nothing for {request.path}")

    with pytest.raises(LookupError, match="nothing for /v1/chat"), StandInServer(reply=reply) as server:
        assert ask(server, "chat").status == 400


def test_requests_are_recorded_with_what_was_sent() -> None:
    before = time.monotonic()
    with StandInServer() as server:
        send(server, "/label/v1/messages?beta=true", {"model": "m", "deep": [{"x": "needle"}]})
        recorded = server.requests[0]
    assert (recorded.method, recorded.path, recorded.query) == ("POST", "/label/v1/messages", "beta=true")
    assert (recorded.api, recorded.auxiliary) == ("anthropic", False)
    assert recorded.body == {"model": "m", "deep": [{"x": "needle"}]}
    assert list(recorded.strings()) == ["m", "needle"]
    assert recorded.mentions("eedl")
    assert not recorded.mentions("deep")
    assert before <= recorded.received_at <= time.monotonic()


@each(
    ("name", "value"),
    [("x-api-key", SECRET), ("Authorization", f"Bearer {SECRET}"), ("x-goog-api-key", SECRET), ("api-key", SECRET)],
)
def test_a_credential_is_masked_and_can_still_be_compared(name: str, value: str) -> None:
    with StandInServer() as server:
        send(server, "/v1/messages", {}, headers={name: value})
        recorded = server.requests[0]
    assert recorded.headers[name.lower()] == "[masked]"
    assert recorded.credential == SECRET
    assert SECRET not in repr(recorded)


def test_a_credential_in_the_address_is_masked() -> None:
    with StandInServer() as server:
        send(server, f"/v1beta/models/m:generateContent?alt=json&key={SECRET}&x=1", {})
        recorded = server.requests[0]
    assert recorded.query == "alt=json&key=[masked]&x=1"
    assert recorded.credential == SECRET


def test_counting_goes_by_path_and_by_who_asked() -> None:
    with StandInServer() as server:
        send(server, "/a/v1/messages", {})
        send(server, "/b/v1/messages", {})
        send(server, "/b/v1/models", method="GET")
        assert (server.count(), server.count("/a"), server.count("/b")) == (3, 1, 2)
        assert (server.count("/b", auxiliary=False), server.count(auxiliary=True)) == (1, 1)
        server.clear()
        assert (server.count(), server.requests) == (0, ())


def test_an_unknown_path_is_not_found_and_the_known_ones_are_named() -> None:
    with StandInServer() as server:
        response = send(server, "/v1/wrong", {})
    assert response.status == 404
    assert "/v1/wrong" in response.json()["error"]["message"]
    assert "/chat/completions" in response.json()["error"]["message"]


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


def test_stopping_ends_every_connection_and_the_thread() -> None:
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
        with connection:
            assert ended_empty(connection)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(server)))


def ended_empty(connection: socket.socket) -> bool:
    """Whether the other side ended it without a word; one that was never taken is reset by the system."""
    try:
        return read_to_end(connection) == b""
    except ConnectionResetError:
        return True


def test_a_port_can_be_asked_for_and_a_taken_one_is_an_error() -> None:
    with StandInServer() as server, pytest.raises(OSError, match="in use"):
        StandInServer(port=port_of(server)).start()
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
    ended = subprocess.run(
        (sys.executable, "-X", "dev", "-W", "error", "-c", source), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
