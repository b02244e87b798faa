"""A program in the place of a vendor's: it writes down how it was started, and prints what it is told to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!@python@ -IS
import json, os, sys, time
def text_of(path):
    try:
        return open(path).read()
    except OSError:
        return None
files = [value for one in sys.argv for value in one.split('"') + one.split("=") if value.startswith("/")]
files += [os.environ.get("GEMINI_SYSTEM_MD", "")]
files += [os.environ.get("CODEX_HOME", "") + "/config.toml", os.environ["HOME"] + "/.gemini/settings.json"]
said = {"argv": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}
said["leads"] = os.getsid(0) == os.getpid()
# The Agent SDK speaks with its program, which then has no end of input.
said["stdin"] = "" if "--input-format" in sys.argv else sys.stdin.read()
said["files"] = {os.path.basename(path): text for path in files if (text := text_of(path)) is not None}
found = [os.path.join(place, one) for place, _, files in os.walk(os.environ["HOME"]) for one in files]
said["links"] = {os.path.basename(one): os.readlink(one) for one in found if os.path.islink(one)}
with open(@folder@ + "/started.json", "w") as file:
    json.dump(said, file)
@body@
"""


class FakeProgram:
    """The program at `path`. `body` is Python that runs after it wrote down how it was started."""

    def __init__(self, folder: Path, body: str = "", *, name: str = "codex", version: str = "0.99.0") -> None:
        self._folder = folder
        self.path = str(folder / name)
        # A first line has its limit of length, so the interpreter is reached over a short way.
        (folder / "python").symlink_to(sys.executable)
        text = _PROGRAM.replace("@python@", str(folder / "python")).replace("@folder@", repr(str(folder)))
        Path(self.path).write_text(text.replace("@body@", body), encoding="utf-8")
        Path(self.path).chmod(0o755)
        package = {"name": "@google/gemini-cli", "version": version}
        (folder / "package.json").write_text(json.dumps(package), encoding="utf-8")

    @property
    def was_started(self) -> bool:
        """Whether it ran at all."""
        return (self._folder / "started.json").exists()

    @property
    def started(self) -> dict[str, Any]:
        """How it was started."""
        found = json.loads((self._folder / "started.json").read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found


def printing(text: str, then: str = "") -> str:
    """A program body that prints a text and goes on."""
    return f"os.write(1, {text.encode()!r})\n{then}"
