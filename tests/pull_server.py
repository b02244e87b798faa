"""A loopback server of repositories, spoken to by the real git: git's own http-backend, and a few ways to fail."""

import base64
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Instead:
    """What is answered in the place of git: a status, perhaps with a place to go on to or a text, or without an end.

    With `first_bytes` git's own answer is begun, and the rest of it never comes.
    """

    status: int
    location: str = ""
    hang: bool = False
    text: str = ""
    first_bytes: int = 0


class PullServer:
    """Serves the repositories below `root`, bare or not, under their folder's name.

    `refuse` may answer a request by its path instead. With a `login`, as `user:password`, it serves nobody else.
    `asked` is every request, the oldest first.
    """

    def __init__(self, root: Path, *, refuse: Callable[[str], Instead | None] = lambda _path: None) -> None:
        self.root = root
        self.refuse = refuse
        self.login = ""
        self.asked: list[Asked] = []
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _answer(self, served)

            do_POST = do_GET  # noqa: N815 - the library's name

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
                """Tests read `asked`."""

        return Handler


def _answer(request: BaseHTTPRequestHandler, served: PullServer) -> None:
    served.asked.append(Asked(request.command, request.path, dict(request.headers)))
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    wanted = f"Basic {base64.b64encode(served.login.encode()).decode()}"
    is_known = not served.login or request.headers.get("Authorization") == wanted
    instead = served.refuse(request.path) if is_known else Instead(401)
    if instead is not None and not instead.first_bytes:
        _refuse(request, instead, served)
        return
    answer = subprocess.run(
        ("git", "http-backend"), input=body, env=_variables(request, served), capture_output=True, check=False
    ).stdout
    head, _, content = answer.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n") if ": " in line)
    request.send_response(int(fields.pop("Status", "200 OK").split(" ", 1)[0]))
    for name, value in fields.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content if instead is None else content[: instead.first_bytes])
    if instead is not None:
        request.wfile.flush()
        served.closing.wait(60)


def _refuse(request: BaseHTTPRequestHandler, instead: Instead, served: PullServer) -> None:
    if instead.hang:
        served.closing.wait(60)
        return
    request.send_response(instead.status, _REASONS.get(instead.status))
    if instead.status == 401:
        request.send_header("WWW-Authenticate", 'Basic realm="here"')
    if instead.location:
        request.send_header("Location", instead.location)
    request.send_header("Content-Type", "text/plain")
    request.send_header("Content-Length", str(len(instead.text)))
    request.end_headers()
    request.wfile.write(instead.text.encode("ascii"))


def _variables(request: BaseHTTPRequestHandler, served: PullServer) -> dict[str, str]:
    url = urlsplit(request.path)
    return {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_PROJECT_ROOT": str(served.root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": url.path,
        "QUERY_STRING": url.query,
        "REQUEST_METHOD": request.command,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
    }
