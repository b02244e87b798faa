"""Where the files of a run are: the workspaces of its stages, and what is kept of each attempt for people to read."""

from __future__ import annotations

import os
from pathlib import Path

_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
_MOST_READ_BYTES = 64 * 1024 * 1024


class Places:
    """The directory of one run. `checkout` is the user's own tree, where the stages work in that one."""

    def __init__(self, directory: Path, *, checkout: Path | None = None) -> None:
        self._directory = directory
        self.checkout = checkout

    @property
    def result(self) -> Path:
        """Where the work of all stages lies when the run is at its end."""
        return self._directory / "result"

    def workspace(self, stage: str) -> Path:
        """Where the agent of a stage works."""
        return self.checkout or self._directory / "stages" / stage / "work"

    def made_workspace(self, stage: str) -> Path:
        """The same, and it is a directory of its own: what an agent put in its place is gone. Raises OSError."""
        folder = self.workspace(stage)
        if self.checkout is None:
            self._made(folder.parent)
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                folder.unlink()
            folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        return folder

    def _made(self, folder: Path) -> Path:
        """A folder below the run's, which is there already; each on the way is for this user alone."""
        for part in (*reversed(folder.relative_to(self._directory).parents), folder.relative_to(self._directory)):
            (self._directory / part).mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        return folder

    def attempt(self, stage: str, number: int, file: str) -> str:
        """The name of a file about an attempt, below the run's directory."""
        return f"stages/{stage}/attempt-{number}/{file}"

    def made_attempt(self, stage: str, number: int) -> Path:
        """The folder of the files about an attempt, made if it is not there. Raises OSError."""
        return self._made((self._directory / self.attempt(stage, number, "file")).parent)

    def write(self, name: str, text: str) -> None:
        """Write a file, in the place of an earlier one. Raises OSError."""
        file = self._directory / name
        self._made(file.parent)
        whole = file.with_name(f"{file.name}.new")
        whole.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(whole, flags, _PRIVATE_FILE), "wb") as sink:
            sink.write(_encoded(text))
        whole.replace(file)

    def path(self, name: str) -> Path:
        """Where a file is that `write` writes."""
        return self._directory / name

    def read(self, name: str) -> str:
        """The text of a file that `write` wrote; nothing if it is not there, or too large to be read."""
        file = self._directory / name
        try:
            if not name or file.stat().st_size > _MOST_READ_BYTES:
                return ""
            return file.read_bytes().decode("utf-8", "surrogateescape")
        except OSError:
            return ""


def _encoded(text: str) -> bytes:
    try:
        # A patch has the bytes of its files, whatever they are.
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")
