import os
from pathlib import Path

import pytest

from codeloupe.config.files import (
    ConfigText,
    decode_config,
    find_repository_file,
    read_config_file,
    read_repository_file,
    read_user_file,
    repository_root,
    user_file_path,
)
from codeloupe.errors import ConfigError
from tests.children import held_files
from tests.rows import each


@each("name", ["codeloupe.yaml", "codeloupe.yml"])
def test_either_spelling_of_the_repository_file_is_found_and_both_together_are_refused(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("fail_on: low\n", encoding="utf-8")
    assert read_repository_file(tmp_path) == ConfigText(name, "fail_on: low\n")
    (tmp_path / "codeloupe.yaml").touch()
    (tmp_path / "codeloupe.yml").touch()
    with pytest.raises(ConfigError, match=r"both codeloupe\.yaml and codeloupe\.yml"):
        find_repository_file(tmp_path)


def test_one_megabyte_is_read_and_one_byte_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "codeloupe.yaml"
    path.write_bytes(b"#" * 1_000_000)
    assert read_repository_file(tmp_path) == ConfigText("codeloupe.yaml", "#" * 1_000_000)
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ConfigError, match=r"codeloupe\.yaml: larger than 1,000,000 bytes"):
        read_repository_file(tmp_path)


@each("target", ["secret.yaml", "nowhere"])
def test_a_repository_file_that_is_a_symbolic_link_is_not_followed(target: str, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("base_branch: secret\n", encoding="utf-8")
    (tmp_path / "codeloupe.yaml").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=r"codeloupe\.yaml: a symbolic link, which is not followed"):
        read_repository_file(tmp_path)


@each(
    ("data", "message"),
    [
        (b"# a\n# b\nfail_on: \xff\n", r"f:3: not UTF-8 text \(byte 0xff\)"),
        ("fail_on: low\n".encode("utf-16"), r"f:1: not UTF-8 text \(byte 0xff\)"),
        (b"\xed\xa0\x80", r"f:1: not UTF-8 text \(byte 0xed\)"),
    ],
)
def test_bytes_that_are_not_utf_8_are_refused_with_their_line(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        decode_config("f", data)
    assert caught.value.hint == "save the file as UTF-8"


@each(
    ("environment", "path"),
    [
        ({"XDG_CONFIG_HOME": "/settings", "HOME": "/me"}, "/settings/codeloupe/config.yaml"),
        ({"HOME": "/me"}, "/me/.config/codeloupe/config.yaml"),
        *[({"XDG_CONFIG_HOME": odd, "HOME": "/me"}, "/me/.config/codeloupe/config.yaml") for odd in ("", "relative")],
        *[({"HOME": "relative"}, None), ({}, None)],
    ],
)
def test_the_user_file_is_where_the_environment_says(environment: dict[str, str], path: str | None) -> None:
    assert user_file_path(environment) == (None if path is None else Path(path))


@each("as_file", [False, True])
def test_the_root_is_the_nearest_directory_that_holds_git(tmp_path: Path, *, as_file: bool) -> None:
    inner = tmp_path / "outer" / "inner"
    deep = inner / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "outer" / ".git").mkdir()
    (inner / ".git").touch() if as_file else (inner / ".git").mkdir()
    assert repository_root(deep) == inner.resolve()
    assert repository_root(tmp_path) == tmp_path.resolve()


def test_a_file_that_is_not_there_is_no_error_and_the_users_own_may_be_a_link(tmp_path: Path) -> None:
    assert find_repository_file(tmp_path) is None
    assert read_repository_file(tmp_path) is None
    assert read_user_file(tmp_path / "no" / "config.yaml") is None
    (tmp_path / "dotfiles.yaml").write_text("fail_on: low\n", encoding="utf-8")
    link = tmp_path / "config.yaml"
    link.symlink_to("dotfiles.yaml")
    assert read_user_file(link) == ConfigText(str(link), "fail_on: low\n")


def test_what_is_no_regular_file_is_refused_at_once_and_leaves_no_open_file(tmp_path: Path) -> None:
    before = held_files()
    for make in (os.mkfifo, os.mkdir):
        place = tmp_path / make.__name__
        place.mkdir()
        make(place / "codeloupe.yaml")
        with pytest.raises(ConfigError, match=r"codeloupe\.yaml: not a regular file"):
            read_repository_file(place)
    assert held_files() == before


@each(
    ("path", "name", "message"),
    [
        ("mine.yaml", "mine.yaml", "mine.yaml: no such file"),
        ("file/x", "x", "x: cannot be read: not a directory"),
        ("a", "\x1b[31m", r"\x1b[31m: no such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    tmp_path: Path, path: str, name: str, message: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        read_config_file(tmp_path / path, name=name, follow_symlinks=True)
    assert caught.value.message == message
