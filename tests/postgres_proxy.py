"""A proxy on loopback before a Postgres server, which loses a connection on purpose where a test says so.

It reads the messages of both sides, so that each phase is met exactly: to connect, to begin, in a statement, at the
commit. Nothing depends on time.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

# What the client sends first has no letter.
STARTUP = b"startup"


@dataclass
class Proxy:
    """A message of the client that begins with `letter` and holds `word` meets a misfortune, at most `times` times.

    `cut` ends the connection before the server sees it, `cut_after` when the server has answered, which the client
    never sees, and `swallow` passes neither on, as a network that is gone. `answer` changes what the server says.
    """

    port: int
    url: str
    letter: bytes = b""
    word: bytes = b""
    misfortune: str = "cut"
    times: int = 1
    spared: int = 0
    answer: Callable[[bytes, bytes], bytes] = lambda _letter, body: body
    met: threading.Event = field(default_factory=threading.Event)
    connections: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lose(
        self, letter: bytes, word: bytes = b"", *, misfortune: str = "cut", times: int = 1, spared: int = 0
    ) -> None:
        """From now on; the first ones are `spared`."""
        self.met.clear()
        self.spared = spared
        self.letter, self.word, self.misfortune, self.times = letter, word, misfortune, times

    def strikes(self, letter: bytes, body: bytes) -> bool:
        with self._lock:
            if not self.times or letter != self.letter or self.word not in body:
                return False
            if self.spared:
                self.spared -= 1
                return False
            self.times -= 1
        self.met.set()
        return True


@contextmanager
def proxy_before(url: str) -> Iterator[Proxy]:
    """A proxy before the server of a URL, which has a Unix socket."""
    parts = urlsplit(url)
    folder = parse_qs(parts.query)["host"][0]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        own = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?sslmode=disable&gssencmode=disable"
        proxy = Proxy(port, own)
        open_sockets: list[socket.socket] = []
        threads: list[threading.Thread] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(f"{folder}/.s.PGSQL.5432")
                    proxy.connections += 1
                    open_sockets.extend((client, server))
                    lost = threading.Event()
                    for work in (_from_client, _from_server):
                        threads.append(threading.Thread(target=work, args=(proxy, client, server, lost), daemon=True))
                        threads[-1].start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield proxy
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for one in open_sockets:
                _end(one)
            for thread in threads:
                thread.join()
            for one in open_sockets:
                one.close()


def _from_client(proxy: Proxy, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
    letter = STARTUP
    while (body := _message(client, has_letter=letter != STARTUP)) is not None:
        letter, body = (STARTUP, body) if letter == STARTUP else (body[:1], body)
        if not lost.is_set() and proxy.strikes(letter, body):
            lost.set()
            if proxy.misfortune == "cut":
                break
        if not lost.is_set() or proxy.misfortune == "cut_after":
            with suppress(OSError):
                server.sendall(body)
        letter = b"any"
    if proxy.misfortune != "swallow" or not lost.is_set():
        _end(client)
    _end(server)


def _from_server(proxy: Proxy, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
    while (message := _message(server, has_letter=True)) is not None:
        if not lost.is_set():
            changed = proxy.answer(message[:1], message[5:])
            with suppress(OSError):
                client.sendall(message[:1] + struct.pack(">I", len(changed) + 4) + changed)
        elif proxy.misfortune == "cut_after" and message[:1] == b"Z":
            break
    if proxy.misfortune != "swallow" or not lost.is_set():
        _end(client)
    _end(server)


def _message(stream: socket.socket, *, has_letter: bool) -> bytes | None:
    """The next message with its head, or None at the end."""
    head = _exactly(stream, 4 + has_letter)
    if head is None:
        return None
    (size,) = struct.unpack(">I", head[-4:])
    rest = _exactly(stream, size - 4)
    return None if rest is None else head + rest


def _exactly(stream: socket.socket, size: int) -> bytes | None:
    data = b""
    with suppress(OSError):
        while len(data) < size:
            if not (more := stream.recv(size - len(data))):
                return None
            data += more
        return data
    return None


def _end(stream: socket.socket) -> None:
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
