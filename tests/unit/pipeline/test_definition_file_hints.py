"""What a person is told to do about a pipeline's file that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.errors import ConfigError
from codeloupe.pipeline.definition import load_pipeline


def test_a_file_in_another_encoding_is_to_be_saved_as_utf_8(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes("name: café\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        load_pipeline(tmp_path / "p.yaml")
    assert caught.value.hint == "save the file as UTF-8"


def test_a_file_that_is_not_there_is_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file") as caught:
        load_pipeline(tmp_path / "p.yaml")
    assert caught.value.hint == "name a pipeline's file, such as pipeline.yaml"
