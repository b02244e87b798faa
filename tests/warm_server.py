"""A process that has loaded codeloupe and its slow packages, and forks itself for each run of the program.

Started by `tests/warm_program.py` with the number of a socket, on which it says `ready` when it has loaded all, or why
it could not. Each message on it is a run: the words, the working
directory and the environment as JSON, and four files: its three streams, and where its exit code goes. It ends with
the end of the socket. It must not be the child of whoever runs the tests, since some tests look at their children.
"""

import asyncio
import gc
import json
import os
import pkgutil
import signal
import socket
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
    assert threading.active_count() == 1, "a fork would lose a thread"
    # What lives already is not looked at again, and so not copied by each fork.
    gc.collect()
    gc.freeze()


def serve(runs: socket.socket) -> None:
    """Start a run for each message."""
    # Nobody here waits for the runs: each has somebody of its own for that.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(runs, _LARGEST_MESSAGE_BYTES, _FILES)
        if not message:
            return
        if os.fork() == 0:
            runs.close()
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
    with socket.socket(fileno=int(sys.argv[1])) as line:
        try:
            load()
        except BaseException:
            line.send(traceback.format_exc()[-10_000:].encode("utf-8", "backslashreplace"))
            raise
        line.send(b"ready")
        serve(line)
