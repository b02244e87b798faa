from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from codeloupe.agents.claude.sdk import MARK, signal_marked
from tests.endings import PATIENCE_SECONDS

SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def start(token: str, script: str = SLEEP) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        (sys.executable, "-I", "-S", "-c", script),
        env={**os.environ, MARK: token},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_only_processes_with_the_very_mark_are_signalled() -> None:
    # Every process of the machine is looked at, and another one may run these tests too.
    token = str(uuid.uuid4())
    with start(token) as marked, start(f"{token}-more") as other:
        assert signal_marked(token, signal.SIGKILL) == 1
        assert marked.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        assert other.poll() is None
        assert signal_marked(token, signal.SIGKILL) == 0
        other.kill()


def test_a_descendant_in_a_session_of_its_own_is_found(tmp_path: Path) -> None:
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print('up', flush=True)\n    time.sleep(60)\n"
    token = str(uuid.uuid4())
    with start(token, script) as parent:
        assert parent.wait(PATIENCE_SECONDS) == 0
        assert signal_marked(token, signal.SIGKILL) == 1
        # Its end closes the pipe that it had inherited.
        assert parent.stdout is not None
        assert parent.stdout.read() == b""


def test_without_a_marked_process_nothing_happens() -> None:
    assert signal_marked("nobody", signal.SIGKILL) == 0
