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
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
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


def serve(listener: socket.socket, life: socket.socket, greeting: bytes) -> None:
    """Greet whoever connects, and start a run for each message."""
    # Nobody here waits for the runs: each has somebody of its own for that.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    lines = {one.fileno(): one for one in (listener, life)}
    with selectors.DefaultSelector() as selector:
        for number in lines:
            selector.register(number, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                line = lines[key.fd]
                if line is life:
                    return
                if line is listener:
                    caller, _ = listener.accept()
                    caller.send(greeting)
                    lines[caller.fileno()] = caller
                    selector.register(caller.fileno(), selectors.EVENT_READ)
                    continue
                message, files, _, _ = socket.recv_fds(line, _LARGEST_MESSAGE_BYTES, _FILES)
                if not message:
                    selector.unregister(key.fd)
                    lines.pop(key.fd).close()
                    continue
                if os.fork() == 0:
                    selector.close()
                    for one in lines.values():
                        one.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _see_to(message, files)
                for file in files:
                    os.close(file)


def _see_to(message: bytes, files: list[int]) -> None:
    """Start one run, wait for it and tell its exit code; a negative one is the signal that ended it."""
    *streams, told = files
    program = os.fork()
    if program == 0:
        os.close(told)
        _become(json.loads(message), streams)
    for file in streams:
        os.close(file)
    _, status = os.waitpid(program, 0)
    os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


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
        serve(callers, end, said)
