from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from codeloupe.errors import ConfigError, OutputError
from codeloupe.model.baseline import BASELINE_NAME, Baseline
from codeloupe.store import baseline as file
from codeloupe.store.baseline import decode_baseline, read_working_file, write_working_file
from tests.unit.store.baseline.baseline_samples import ONE, TEXT, TWO


def test_without_a_file_there_is_an_empty_baseline(tmp_path: Path) -> None:
    found = read_working_file(tmp_path)
    assert (found.baseline, found.text) == (Baseline(), "")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_working_file(tmp_path, TEXT)
    found = read_working_file(tmp_path)
    assert found.text == TEXT
    assert [entry.fingerprint for entry in found.baseline.entries] == [ONE, TWO]
    assert [each.name for each in tmp_path.iterdir()] == [BASELINE_NAME]


def test_a_symbolic_link_is_not_followed_when_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(TEXT)
    (tmp_path / BASELINE_NAME).symlink_to("elsewhere")
    with pytest.raises(ConfigError, match="a symbolic link, which is not followed"):
        read_working_file(tmp_path)


def test_a_symbolic_link_is_replaced_and_its_target_left_alone_when_written(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    (tmp_path / BASELINE_NAME).symlink_to(target)
    write_working_file(tmp_path, TEXT)
    assert target.read_text() == "precious"
    assert not (tmp_path / BASELINE_NAME).is_symlink()


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / BASELINE_NAME)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_working_file(tmp_path)
    (tmp_path / BASELINE_NAME).unlink()
    (tmp_path / BASELINE_NAME).mkdir()
    with pytest.raises(ConfigError, match="not a regular file"):
        read_working_file(tmp_path)
    with pytest.raises(OutputError, match="cannot be written"):
        write_working_file(tmp_path, TEXT)
    assert [each.name for each in tmp_path.iterdir()] == [BASELINE_NAME]


def test_the_mode_of_the_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / BASELINE_NAME).write_text("")
    (tmp_path / BASELINE_NAME).chmod(0o640)
    write_working_file(tmp_path, TEXT)
    assert stat.S_IMODE((tmp_path / BASELINE_NAME).stat().st_mode) == 0o640


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no such file or directory"):
        write_working_file(tmp_path / "gone", TEXT)


def test_bytes_that_are_no_text_are_told_with_their_line() -> None:
    with pytest.raises(ConfigError, match=r"base:known:2: not UTF-8 text \(byte 0xff\)"):
        decode_baseline("base:known", b"version: 1\n\xff")


def test_a_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MAX_FILE_BYTES", 10)
    (tmp_path / BASELINE_NAME).write_text("#" * 11)
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        read_working_file(tmp_path)
