from __future__ import annotations

import gzip
import json
import zlib

import pytest

from codeloupe.testing import StandInServer, Text
from codeloupe.testing.http import MAX_BODY_BYTES, MAX_HEAD_BYTES, UnreadableRequest, _unpack
from tests.unit.testing.wire import ask, raw_connection, read_to_end, send

BODY = json.dumps({"model": "m", "messages": ["wörds"]}).encode()


def exchange(server: StandInServer, request: bytes) -> bytes:
    with raw_connection(server) as connection:
        connection.sendall(request)
        return read_to_end(connection)


def post(headers: str, body: bytes) -> bytes:
    return f"POST /v1/messages HTTP/1.1\r\nconnection: close\r\n{headers}\r\n".encode() + body


def test_a_chunked_body_is_put_together() -> None:
    chunks = b"5;note=x\r\n" + BODY[:5] + b"\r\n" + b"%X\r\n%b\r\n" % (len(BODY) - 5, BODY[5:])
    with StandInServer() as server:
        reply = exchange(server, post("Transfer-Encoding: chunked\r\n", chunks + b"0\r\ntrailer: x\r\n\r\n"))
        assert reply.startswith(b"HTTP/1.1 200")
        assert server.requests[0].body == json.loads(BODY)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(BODY)),
        ("X-Gzip", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("identity", BODY),
        ("deflate, gzip", gzip.compress(zlib.compress(BODY))),
    ],
    # The packed bytes hold the time, and a test has the same name in every run.
    ids=["gzip", "x-gzip", "deflate", "identity", "both"],
)
def test_a_compressed_body_is_unpacked(coding: str, body: bytes) -> None:
    with StandInServer() as server:
        assert send(server, "/v1/messages", body, headers={"content-encoding": coding}).status == 200
        assert server.requests[0].body == json.loads(BODY)


def test_a_coding_that_needs_a_library_is_refused_with_its_name() -> None:
    with pytest.raises(UnreadableRequest, match="install one of: no_such_module or nor_this") as caught:
        _unpack("br", b"", ("no_such_module", "nor_this"))
    assert caught.value.status == 415


def test_a_library_that_is_here_unpacks() -> None:
    assert _unpack("gzip", gzip.compress(BODY), ("no_such_module", "gzip")) == BODY
    with pytest.raises(UnreadableRequest, match="broken") as caught:
        _unpack("gzip", b"abc", ("gzip",))
    assert caught.value.status == 400


@pytest.mark.parametrize("coding", ["zstd", "br"])
def test_a_broken_body_is_refused_whether_its_library_is_here_or_not(coding: str) -> None:
    with StandInServer() as server:
        assert send(server, "/v1/messages", b"\x00", headers={"content-encoding": coding}).status in {400, 415}


def test_twelve_megabytes_are_taken_whole() -> None:
    prompt = "x\n" * 6_000_000
    with StandInServer([Text("hi")]) as server:
        assert ask(server, "anthropic", messages=[{"role": "user", "content": prompt}]).status == 200
        assert server.requests[0].body["messages"][0]["content"] == prompt


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    with StandInServer() as server, raw_connection(server) as connection:
        connection.sendall(post(f"expect: 100-continue\r\ncontent-length: {len(BODY)}\r\n", b""))
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert read_to_end(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("request_bytes", "status", "words"),
    [
        (b"nonsense\r\n\r\n", 400, b"nonsense"),
        (post("content-length: many\r\n", b""), 400, b"many"),
        (post("content-length: -1\r\n", b""), 413, b"-1"),
        (post(f"content-length: {MAX_BODY_BYTES + 1}\r\n", b""), 413, b"bytes"),
        (post("transfer-encoding: chunked\r\n", b"zz\r\n"), 400, b"zz"),
        (post("transfer-encoding: chunked\r\n", b"fffffffff\r\n"), 413, b"bytes"),
        (post("content-encoding: gzip\r\ncontent-length: 3\r\n", b"abc"), 400, b"broken"),
        (post("content-encoding: secret\r\ncontent-length: 3\r\n", b"abc"), 415, b"secret"),
    ],
)
def test_what_is_no_request_is_refused_in_words(request_bytes: bytes, status: int, words: bytes) -> None:
    with StandInServer() as server:
        reply = exchange(server, request_bytes)
        assert server.count() == 0
    assert reply.startswith(b"HTTP/1.1 %d " % status)
    assert words in reply


@pytest.mark.parametrize("begun", [b"POST / HTTP/1.1\r\n", post("transfer-encoding: chunked\r\n", b"")])
def test_a_line_without_end_is_refused(begun: bytes) -> None:
    with StandInServer() as server, raw_connection(server) as connection:
        connection.sendall(begun + b"1" * (MAX_HEAD_BYTES + 10))
        assert connection.recv(65536).startswith(b"HTTP/1.1 431")


def test_a_body_that_unpacks_without_end_is_refused() -> None:
    bomb = gzip.compress(bytes(MAX_BODY_BYTES + 1))
    assert len(bomb) < 100_000
    with StandInServer() as server:
        assert send(server, "/v1/messages", bomb, headers={"content-encoding": "gzip"}).status == 413


def test_a_request_that_breaks_off_is_not_recorded() -> None:
    with StandInServer() as server:
        for begun in (b"", b"POST /v1/mess", post("content-length: 100\r\n", b"{"), post("", b"")[:-2]):
            with raw_connection(server) as connection:
                connection.sendall(begun)
        assert ask(server, "chat").status == 200
        assert server.count() == 1
