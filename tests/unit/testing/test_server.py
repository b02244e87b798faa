from __future__ import annotations

import contextlib
import gc
import http.client
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from codeloupe.testing import Delay, Hang, RecordedRequest, Reply, StandInServer, Status, Text
from tests.endings import comes_to_pass, ends_soon, with_enough_time
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


def test_a_server_without_a_script_answers_and_replies_can_be_added() -> None:
    with StandInServer() as server:
        assert "stand-in" in spoken(server)
        server.extend(Text("added"), Text("and more"))
        assert [spoken(server), spoken(server), spoken(server)] == ["added", "and more", "and more"]


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


def test_what_failed_inside_the_block_is_told_first() -> None:
    def reply(request: RecordedRequest) -> Reply:
        raise LookupError

    with pytest.raises(ZeroDivisionError) as caught, StandInServer(reply=reply) as server:
        assert 1 / (ask(server, "chat").status - 400)
    assert "LookupError" in caught.value.__notes__[0]


def test_what_a_watcher_raises_ends_that_connection_and_is_raised_at_the_end() -> None:
    def watch(request: RecordedRequest) -> None:
        if request.path == "/bad":
            raise LookupError("what the watcher raised")

    server = StandInServer(on_request=watch).start()
    with pytest.raises(http.client.RemoteDisconnected):
        send(server, "/bad")
    assert ask(server, "chat").status == 200
    with pytest.raises(LookupError, match="the watcher"):
        server.stop()


def test_a_string_in_place_of_a_reply_is_refused_in_words() -> None:
    script: list[Reply] = ["hello"]  # type: ignore[list-item]  # the mistake under test
    with pytest.raises(TypeError, match="'hello'.*Text"), StandInServer(script) as server:
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


@pytest.mark.parametrize(
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


def test_waiting_ends_with_the_request_or_with_the_time() -> None:
    with StandInServer() as server:
        assert not server.wait_for(1, timeout_seconds=0.02)
        later = threading.Timer(0.05, ask, (server, "chat"))
        later.start()
        assert arrived(server)
        later.join()


def test_every_request_is_shown_as_it_comes() -> None:
    seen: list[str] = []
    with StandInServer(on_request=lambda request: seen.append(request.path)) as server:
        send(server, "/", method="HEAD")
        ask(server, "chat")
    assert seen == ["/", "/v1/chat/completions"]


@pytest.mark.parametrize("body", [b"{", b"[1]", b'"text"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_an_error_in_the_words_of_the_api(body: bytes) -> None:
    with StandInServer([Text("unused")]) as server:
        response = send(server, "/v1/messages", body)
        assert (response.status, response.json()["error"]["type"]) == (400, "invalid_request_error")
        assert spoken(server) == "unused"


def test_what_programs_do_at_their_start_is_answered_and_leaves_the_script_alone() -> None:
    with StandInServer([Text("one")]) as server:
        head = send(server, "/", method="HEAD")
        hello = send(server, "/api/hello", method="GET")
        assert (head.status, head.body, hello.status) == (200, b"", 200)
        assert all(request.auxiliary for request in server.requests)
        assert spoken(server) == "one"


def test_an_unknown_path_is_not_found_and_the_known_ones_are_named() -> None:
    with StandInServer() as server:
        response = send(server, "/v1/wrong", {})
    assert response.status == 404
    assert "/v1/wrong" in response.json()["error"]["message"]
    assert "/chat/completions" in response.json()["error"]["message"]


def test_an_upgrade_is_answered_so_that_codex_goes_on_without() -> None:
    with StandInServer() as server:
        response = send(server, "/v1/responses", method="GET", headers={"upgrade": "websocket"})
    assert response.status == 426


def test_a_connection_is_kept_for_the_next_request() -> None:
    with StandInServer([Text("one"), Text("two"), Text("three")]) as server, raw_connection(server) as connection:
        connection.sendall(raw_question("chat", stream=True) + raw_question("chat", stream=False))
        connection.sendall(raw_question("chat", stream=True, headers="connection: close\r\n"))
        received = read_to_end(connection)
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.index(b"one") < received.index(b"two") < received.index(b"three")


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


def test_threads_share_one_server() -> None:
    with StandInServer([Text(str(number)) for number in range(40)]) as server, ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda _: spoken(server), range(40)))
        assert server.count() == 40
    assert sorted(told, key=int) == [str(number) for number in range(40)]


def test_one_connection_takes_one_question_after_the_other() -> None:
    question = raw_question("anthropic", stream=True)
    with StandInServer([Text("hi")]) as server, raw_connection(server) as connection:
        for _ in range(30):
            connection.sendall(question)
            received = b""
            while not received.endswith(b"0\r\n\r\n"):
                received += connection.recv(65536)
        assert (server.count(), server.max_concurrent) == (30, 1)


def test_a_request_is_open_until_its_client_gives_up() -> None:
    with StandInServer([Hang()]) as server:
        with raw_connection(server) as connection:
            connection.sendall(raw_question("chat", stream=True))
            assert arrived(server)
            assert server.open_requests == 1
        assert comes_to_pass(lambda: not server.open_requests)
        assert (server.open_requests, server.max_concurrent) == (0, 1)


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


def test_stopping_ends_connections_that_are_just_being_taken() -> None:
    for count in range(1, 31):
        server = StandInServer([Hang()]).start()
        connections = [raw_connection(server) for _ in range(count)]
        server.stop()
        for connection in connections:
            with connection:
                assert ended_empty(connection)


def ended_empty(connection: socket.socket) -> bool:
    """Whether the other side ended it without a word; one that was never taken is reset by the system."""
    try:
        return read_to_end(connection) == b""
    except ConnectionResetError:
        return True


def test_stopping_does_not_wait_for_a_client_that_does_not_read() -> None:
    with StandInServer([Text("x" * 20_000_000)]) as server, raw_connection(server) as connection:
        connection.sendall(raw_question("chat", stream=False))
        assert arrived(server)
        with ends_soon():
            server.stop()


def test_stopping_twice_or_before_the_start_is_no_mistake() -> None:
    server = StandInServer()
    server.stop()
    server.start()
    server.stop()
    server.stop()


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
