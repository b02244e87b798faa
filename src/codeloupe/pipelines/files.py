"""The files of one run: stored in the database with the next save, with copies for people in the run's directory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from codeloupe.store.interface import Content, RunStore
from codeloupe.store.run_copies import make_folder, write_copy

RESULT_FOLDER = "result"
RESULT_PATCH = "result.patch"


class RunPlaces:
    """The paths of one run on this machine. `checkout` is the user's own tree, if stages work in it."""

    def __init__(self, directory: Path, *, checkout: Path | None = None) -> None:
        self._directory = directory
        self.checkout = checkout
        self.result = directory / RESULT_FOLDER
        self.git_store = directory / "store.git"

    def of_stage(self, stage: str) -> Path:
        """Return the folder of a stage."""
        return self._directory / "stages" / stage

    def workspace(self, stage: str) -> Path:
        """Return the folder in which the agent of a stage works."""
        return self.checkout or self.of_stage(stage) / "work"

    def made_workspace(self, stage: str) -> Path:
        """Return the same folder after making it; a link or a file in its place is removed. Raise OSError."""
        folder = self.workspace(stage)
        if self.checkout is None:
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                folder.unlink()
            make_folder(folder)
        return folder

    def attempt(self, stage: str, number: int, file: str) -> str:
        """Return the name of a file about an attempt, below the run's directory."""
        return f"stages/{stage}/attempt-{number}/{file}"


class RunFiles(RunPlaces):
    """The files of one run. A file that is written is part of the next save."""

    def __init__(self, store: RunStore, run_id: str, directory: Path, *, checkout: Path | None = None) -> None:
        super().__init__(directory, checkout=checkout)
        self._store = store
        self._run_id = run_id
        # A file without a content is removed.
        self._unsaved: dict[str, Content | None] = {}

    @property
    def unsaved(self) -> Mapping[str, Content | None]:
        """Return the files that the next save has to store or, without a content, to remove."""
        return dict(self._unsaved)

    def forget(self, saved: Mapping[str, Content | None]) -> None:
        """Forget files that were saved, unless they have been written again."""
        for name, content in saved.items():
            if name in self._unsaved and self._unsaved[name] is content:
                del self._unsaved[name]

    def write(self, name: str, text: str) -> Path:
        """Keep a text for the next save, and return the path of its copy for people."""
        data = _encoded(text)
        self._unsaved[name] = data
        file = self._directory / name
        write_copy(file, [data])
        return file

    def write_folder(self, folder: str, texts: Mapping[str, str]) -> None:
        """Keep texts, by name in a folder, for the next save, which removes all other files of the folder."""
        for name in self._store.file_names(self._run_id):
            if name.startswith(f"{folder}/"):
                self._unsaved[name] = None
                with suppress(OSError):  # like all copies for people
                    (self._directory / name).unlink(missing_ok=True)
        for name, text in texts.items():
            self.write(f"{folder}/{name}", text)

    def attach(self, name: str, content: Content) -> None:
        """Keep a content for the next save, without a copy."""
        self._unsaved[name] = content

    def read(self, name: str) -> str:
        """Return the text of a file that was written; empty if there is none. Raise StoreError."""
        content = self._unsaved.get(name)
        if isinstance(content, bytes):
            return _decoded(content)
        return read_run_file(self._store, self._run_id, name)


def read_run_file(store: RunStore, run_id: str, name: str) -> str:
    """Return the text of a stored file of a run; empty if there is none. Raise StoreError."""
    data = store.read_file(run_id, name) if name else None
    return "" if data is None else _decoded(data)


def _encoded(text: str) -> bytes:
    # A patch has the bytes of its files, in any encoding.
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
