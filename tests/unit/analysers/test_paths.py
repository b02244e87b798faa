from __future__ import annotations

import os
from pathlib import Path

import pytest

from codeloupe.analysers.interface import is_prose_file, is_test_file, read_regular_file
from tests.rows import each


@each(
    "path", ["tests/a.py", "src/Test/a.py", "test_a.py", "a_test.go", "a.spec.ts", "web/__tests__/a.js", "conftest.py"]
)
def test_a_test_is_known_by_its_directory_or_name(path: str) -> None:
    assert is_test_file(path)


@each("path", ["src/a.py", "contest.py", "latest/a.py", "attestation.go", "src/testify.py", "test"])
def test_other_files_are_no_tests(path: str) -> None:
    assert not is_test_file(path)


@each("path", ["README.md", "docs/conf.py", "examples/a.py", ".env.example", "locales/de.json"])
def test_prose_is_known_by_its_directory_or_suffix(path: str) -> None:
    assert is_prose_file(path)


@each("path", ["src/a.py", "docker/a.yaml", "md", "document.py"])
def test_other_files_are_no_prose(path: str) -> None:
    assert not is_prose_file(path)


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    regular, link, pipe = tmp_path / "regular", tmp_path / "link", tmp_path / "pipe"
    regular.write_bytes(b"content")
    link.symlink_to(regular)
    os.mkfifo(pipe)

    assert read_regular_file(regular) == b"content"
    for other in (link, pipe, tmp_path, tmp_path / "missing"):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - which of its kinds depends on the system
            read_regular_file(other)
        assert caught.value.strerror
