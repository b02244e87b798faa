"""A process that has loaded codeloupe and its slow packages, and forks itself for each run of the program.

Started by `tests/warm_program.py` with the numbers of two sockets. To whoever connects to the first one it says `ready`
when it has loaded all, or why it could not. Each message of theirs is a run: the words, the working directory and the
environment as JSON, and four files: its three streams, and where its exit code goes. It ends when the second socket
does. It must not be the child of whoever runs the tests, since some tests look at their children.
"""

import asyncio
import contextlib
import gc
import json
import os
import pkgutil
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from functools import partial
from importlib import import_module
from pathlib import Path

import codeloupe
from codeloupe.agents.api.agent import ApiAgent
from codeloupe.cli.main import main
from codeloupe.model.agent import AgentRequest
from codeloupe.testing import StandInServer, Text

_LARGEST_MESSAGE_BYTES = 1 << 20
_FILES = 4


def load() -> None:
    """Load whatever a run may need."""
    for module in pkgutil.walk_packages(codeloupe.__path__, "codeloupe."):
        if not module.name.endswith(".__main__"):
            import_module(module.name)
    # Packages put off much until their first use.
    with StandInServer([Text("Hello.")]) as server:
        agent = ApiAgent("anthropic:stand-in", base_url=server.url, environment={"ANTHROPIC_API_KEY": "made-up"})
        asyncio.run(agent.run(AgentRequest(prompt="Hello?", working_dir=Path()), lambda _event: None))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _review(Path("repository"))
    assert threading.active_count() == 1, "a fork would lose a thread"
    # What lives already is not looked at again, and so not copied by each fork.
    gc.collect()
    gc.freeze()


def _review(path: Path) -> None:
    """Review a change, as our own modules put off much too: patterns to compile, tables to read."""
    path.mkdir()
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.invalid")
    for words in (("init", "--quiet", "--template="), ("commit", "--quiet", "--allow-empty", "-m", "first")):
        subprocess.run(("git", *identity, *words), cwd=path, check=True)
    (path / "a.py").write_text("import os\n\n\nos.system(input())\n", encoding="utf-8")
    (path / "b.js").write_text("eval(location.hash)\n", encoding="utf-8")
    os.environ["CODELOUPE_HOME"] = str(path.absolute().with_name("home"))
    for form in ("text", "json", "markdown"):
        exit_code = main(["review", "--repo", str(path), "--reviewer", "offline", "--format", form])
        assert exit_code == 1, exit_code
    del os.environ["CODELOUPE_HOME"]


class Server:
    """Greets whoever connects, starts a run for each message, and says how it ended: a negative code is a signal."""

    def __init__(self, listener: socket.socket, greeting: bytes) -> None:
        self._listener, self._greeting = listener, greeting
        self._lines = [listener]
        # What the runs under way have here: a file that can be read when one has ended, and one for its exit code.
        self._files: set[int] = set()
        self._selector = selectors.DefaultSelector()

    def serve(self, life: socket.socket) -> None:
        """Serve until the other end of `life` is closed."""
        self._lines.append(life)
        self._selector.register(life, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ, self._greet)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is life:
                    return
                key.data()

    def _greet(self) -> None:
        caller, _ = self._listener.accept()
        caller.send(self._greeting)
        self._lines.append(caller)
        self._selector.register(caller, selectors.EVENT_READ, partial(self._start, caller))

    def _start(self, caller: socket.socket) -> None:
        message, files, _, _ = socket.recv_fds(caller, _LARGEST_MESSAGE_BYTES, _FILES)
        if not message:
            self._selector.unregister(caller)
            self._lines.remove(caller)
            caller.close()
            return
        *streams, said = files
        process = os.fork()
        if process == 0:
            self._selector.close()
            for line in self._lines:
                line.close()
            for file in (said, *self._files):
                os.close(file)
            _become(json.loads(message), streams)
        for file in streams:
            os.close(file)
        ended = os.pidfd_open(process)
        self._files.update((ended, said))
        self._selector.register(ended, selectors.EVENT_READ, partial(self._finish, process, ended, said))

    def _finish(self, process: int, ended: int, said: int) -> None:
        self._selector.unregister(ended)
        _, status = os.waitpid(process, 0)
        with contextlib.suppress(BrokenPipeError):  # a worker that is gone
            os.write(said, str(os.waitstatus_to_exitcode(status)).encode())
        for file in (ended, said):
            os.close(file)
            self._files.remove(file)


def _become(run: dict[str, object], streams: list[int]) -> None:
    """Be the program, as if it had just been started."""
    words, cwd, environment = run["words"], run["cwd"], run["environment"]
    assert isinstance(words, list)
    assert isinstance(cwd, str)
    assert isinstance(environment, dict)
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None
    sys.argv = ["codeloupe", *words]
    sys.exit(main())


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as callers, socket.socket(fileno=int(sys.argv[2])) as end:
        try:
            load()
            said = b"ready"
        except BaseException:  # noqa: BLE001 - it fails every test that asks, in these words
            said = traceback.format_exc()[-10_000:].encode("utf-8", "backslashreplace")
        Server(callers, said).serve(end)
