"""A program in the place of claude: it writes down how it was started, and prints what it is told to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!@python@ -IS
import json, os, sys, time
folder = @folder@
said = {"argv": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}
said["leads"] = os.getsid(0) == os.getpid()
if "--input-format" not in sys.argv:
    said["stdin"] = sys.stdin.read()
files = dict(one.split("=", 1) for one in sys.argv if "prompt-file=" in one)
said["files"] = {flag: open(name).read() for flag, name in files.items()}
with open(folder + "/started.json", "w") as file:
    json.dump(said, file)
@body@
"""


class FakeClaude:
    """The program at `path`. `body` is Python that runs after it wrote down how it was started."""

    def __init__(self, folder: Path, body: str = "") -> None:
        self._folder = folder
        self.path = str(folder / "claude")
        # A first line has its limit of length, so the interpreter is reached over a short way.
        (folder / "python").symlink_to(sys.executable)
        text = _PROGRAM.replace("@python@", str(folder / "python")).replace("@folder@", repr(str(folder)))
        Path(self.path).write_text(text.replace("@body@", body), encoding="utf-8")
        Path(self.path).chmod(0o755)

    @property
    def started(self) -> dict[str, Any]:
        """How it was started."""
        found = json.loads((self._folder / "started.json").read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found
