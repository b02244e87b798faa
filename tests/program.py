"""The installed program, run as a user would: a child process, real exit codes, real streams."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("codeloupe")


# The first lines of a Python program that this interpreter runs, wherever it lies: a plain `#!` cannot hold a space.
PYTHON_HEADER = f"""#!/bin/sh
''''exec "{sys.executable}" "$0" "$@" #'''
"""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    exit_code: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        """Standard output as JSON; fails the test when it is none."""
        return json.loads(self.stdout)


def codeloupe(
    *words: str, cwd: Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None, program: Path = PROGRAM
) -> Ended:
    """Run the program to its end. A traceback on stderr fails the test, whatever it was about."""
    completed = subprocess.run(
        (str(program), *words),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    ended = Ended(
        completed.returncode,
        completed.stdout.decode("utf-8", "surrogateescape"),
        completed.stderr.decode("utf-8", "surrogateescape"),
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended
