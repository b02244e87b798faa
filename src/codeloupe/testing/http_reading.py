"""HTTP/1.1 requests off a connection: plain, chunked or compressed bodies, and limits on all of them."""

from __future__ import annotations

import asyncio
import importlib
import zlib
from collections.abc import Callable, Mapping

from msgspec import Struct

MAX_HEAD_BYTES = 1024 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


class UnreadableRequest(ValueError):
    """A request that cannot be read; `status` is what to answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request as it came, its body decoded. Header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request, or None when the client closed the connection instead.

    Raises UnreadableRequest, and what the connection raises.
    """
    try:
        return await _read_request(reader, writer)
    except asyncio.LimitOverrunError as error:
        raise UnreadableRequest(431, f"a line or the head is longer than {MAX_HEAD_BYTES} bytes") from error


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, headers = _parse_head(head)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _read_body(reader, headers)
    return HttpRequest(method=method, target=target, headers=headers, body=_decoded(body, headers))


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    try:
        method, target, _version = first.split(" ")
    except ValueError as error:
        raise UnreadableRequest(400, f"this is not the first line of an HTTP request: {first[:80]!r}") from error
    fields = (line.partition(":") for line in lines)
    return method, target, {name.strip().lower(): value.strip() for name, _, value in fields}


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    size = _size(headers.get("content-length", "0"), base=10)
    return await reader.readexactly(size) if size else b""


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := _size((await reader.readuntil(b"\r\n")).decode("latin-1").partition(";")[0], base=16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
        _check_size(len(body))
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        pass
    return bytes(body)


def _size(digits: str, *, base: int) -> int:
    try:
        size = int(digits.strip(), base)
    except ValueError as error:
        raise UnreadableRequest(400, f"this is not the size of a body: {digits[:40]!r}") from error
    _check_size(size)
    return size


def _check_size(size: int) -> None:
    if not 0 <= size <= MAX_BODY_BYTES:
        raise UnreadableRequest(413, f"the body has {size} bytes, and at most {MAX_BODY_BYTES} are taken")


def _decoded(body: bytes, headers: Mapping[str, str]) -> bytes:
    for coding in reversed(headers.get("content-encoding", "identity").lower().split(",")):
        body = _decode(coding.strip(), body)
    return body


def _decode(coding: str, body: bytes) -> bytes:
    match coding:
        case "identity" | "":
            return body
        case "gzip" | "x-gzip":
            return _inflate(body, zlib.MAX_WBITS | 16)
        case "deflate":
            return _inflate(body, zlib.MAX_WBITS)
        case "zstd":
            return _unpack(coding, body, ("compression.zstd", "zstandard"))
        case "br":
            return _unpack(coding, body, ("brotli", "brotlicffi"))
        case _:
            raise UnreadableRequest(415, f"the body is encoded as {coding[:40]!r}, which this server does not know")


def _inflate(body: bytes, window_bits: int) -> bytes:
    inflater = zlib.decompressobj(window_bits)
    try:
        text = inflater.decompress(body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise UnreadableRequest(400, f"the compressed body is broken: {error}") from error
    if inflater.unconsumed_tail:
        raise UnreadableRequest(413, f"the body unpacks to more than {MAX_BODY_BYTES} bytes")
    return text


def _unpack(coding: str, body: bytes, modules: tuple[str, ...]) -> bytes:
    """Unpack with whichever of the modules is here; none of them is needed for anything else."""
    decompress = next((found for module in modules if (found := _decompressor(module))), None)
    if decompress is None:
        names = " or ".join(modules)
        raise UnreadableRequest(415, f"the body is encoded as {coding}; to read it, install one of: {names}")
    try:
        text = decompress(body)
    except Exception as error:  # each library has errors of its own
        raise UnreadableRequest(400, f"the compressed body is broken: {error}") from error
    _check_size(len(text))
    return text


def _decompressor(module: str) -> Callable[[bytes], bytes] | None:
    try:
        found: Callable[[bytes], bytes] = importlib.import_module(module).decompress
    except ImportError:
        return None
    return found
