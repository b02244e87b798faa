"""The files that a pipeline's file names: each read once, and part of the pipeline's digest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from msgspec import Struct

from codeloupe.config.files import read_config_file
from codeloupe.config.yaml import escape
from codeloupe.errors import ConfigError
from codeloupe.pipeline.definition_schemas import SchemaRefused, check_schema, parse_schema


class FileRefused(Exception):
    """A named file cannot be used; the message names it and says why."""


class _Read(Struct, frozen=True):
    """What is known of a file: a digest of its content and, when it was read as one, the schema in it; or a refusal."""

    digest: str = ""
    schema: dict[str, Any] | None = None
    refusal: str = ""


class NamedFiles:
    """Files by the path that was written, which is seen from the pipeline's folder. It may lead out of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[tuple[str, bool], _Read] = {}

    def path(self, written: str) -> Path:
        """Where a file is."""
        return self._folder / written

    def check_text(self, written: str) -> None:
        """Raises FileRefused unless this is a readable text file with something in it, of at most 1 MB of UTF-8."""
        self._once(written, as_schema=False)

    def schema(self, written: str) -> dict[str, Any]:
        """The schema in a file, which is valid. Raises FileRefused."""
        return self._once(written, as_schema=True).schema or {}

    def content(self, written: str) -> str:
        """A name for the content of a text file that was checked. Raises FileRefused."""
        return self._once(written, as_schema=False).digest

    def digest(self, text: str) -> str:
        """A name for the content of the pipeline's own text and of every file that was read."""
        whole = hashlib.sha256(text.encode())
        for written, read in sorted({(written, read.digest) for (written, _), read in self._read.items()}):
            whole.update(f"\0{written}\0{read}".encode())
        return whole.hexdigest()

    def _once(self, written: str, *, as_schema: bool) -> _Read:
        key = (written, as_schema)
        if key not in self._read:
            self._read[key] = self._fresh(written, as_schema=as_schema)
        if self._read[key].refusal:
            raise FileRefused(self._read[key].refusal)
        return self._read[key]

    def _fresh(self, written: str, *, as_schema: bool) -> _Read:
        if self.path(written).is_dir():
            return _Read(refusal=f"{escape(written)}: a folder, where a file is expected")
        try:
            text = read_config_file(self.path(written), name=written, follow_symlinks=True).text
        except ConfigError as error:
            return _Read(refusal=error.message)
        if not text.strip("\ufeff \t\r\n"):
            return _Read(refusal=f"{escape(written)}: the file is empty")
        if "\0" in text:
            return _Read(refusal=f"{escape(written)}: not a text file, it holds a NUL byte")
        digest = hashlib.sha256(text.encode()).hexdigest()
        if not as_schema:
            return _Read(digest)
        try:
            schema = parse_schema(written, text)
            check_schema(schema)
        except SchemaRefused as refused:
            return _Read(refusal=f"{escape(written)}: {refused}")
        return _Read(digest, schema)
