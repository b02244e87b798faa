"""Finds and reads configuration files. A repository's own file is never reached through a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codeloupe.config.problems import escape
from codeloupe.config.suggestions import closest
from codeloupe.errors import ConfigError
from codeloupe.model.baseline import BASELINE_NAME

REPOSITORY_FILE_NAMES = ("codeloupe.yaml", "codeloupe.yml")
MAX_FILE_BYTES = 1_000_000
_STEMS = frozenset({"codeloupe", "codeloupe-config", "codeloupe_config", "codelouperc"})
_SUFFIXES = frozenset({"yaml", "yml", "json", "toml", "ini", "cfg", "conf", "config", "txt", "rc"})
_CLOSE = 0.8


class ConfigText(Struct, frozen=True):
    """The text of a configuration file, wherever it came from, and the name to show for it."""

    name: str
    text: str


def repository_root(start: Path) -> Path:
    """The nearest directory at or above `start` that holds `.git`, or `start` itself when there is none."""
    start = Path(os.path.realpath(start))  # unlike Path.resolve it does not raise for links that lead in a circle
    # lexists: `.git` may be a file, or lie in a directory that may not be read.
    return next((place for place in (start, *start.parents) if os.path.lexists(place / ".git")), start)


def find_repository_file(root: Path) -> Path | None:
    """The configuration file at the repository's root, or None. Raises ConfigError when there are two."""
    found = [root / name for name in REPOSITORY_FILE_NAMES if os.path.lexists(root / name)]
    if len(found) > 1:
        raise ConfigError(
            f"both {' and '.join(REPOSITORY_FILE_NAMES)} are in {escape(str(root))}",
            hint=f"keep {REPOSITORY_FILE_NAMES[0]} and remove the other",
        )
    return found[0] if found else None


def mistaken_files(root: Path, user_file: Path | None) -> tuple[str, ...]:
    """In words, the files that somebody may take for a repository's settings or their own, and that nobody reads."""
    names = [escape(name) for name in _names_in(root) if _is_mistaken(name)]
    notes = [f"{name} is not read: the settings of a repository are in {REPOSITORY_FILE_NAMES[0]}" for name in names]
    if user_file is not None:
        others = [name for name in _names_in(user_file.parent) if name != user_file.name and _is_like_user_file(name)]
        notes += [f"{escape(str(user_file.with_name(name)))} is not read: yours are in {user_file}" for name in others]
    return tuple(notes)


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted of many files
    except (OSError, ValueError):
        return []


def _is_like_user_file(name: str) -> bool:
    stem, *suffixes = name.lower().lstrip(".").split(".")
    return stem in ("config", "settings", *_STEMS) and bool(suffixes) and {*suffixes} <= _SUFFIXES


def _is_mistaken(name: str) -> bool:
    stem, *suffixes = name.lower().lstrip(".").split(".")
    if name in (*REPOSITORY_FILE_NAMES, BASELINE_NAME) or not {*suffixes} <= _SUFFIXES:
        return False
    # Only of our own name any form counts; of one that is merely like it, only the right one.
    is_ours = stem in _STEMS and (bool(suffixes) or name.startswith(".") or name.endswith("rc"))
    return is_ours or (suffixes in (["yaml"], ["yml"]) and closest(stem, ("codeloupe",), cutoff=_CLOSE) is not None)


def read_repository_file(root: Path) -> ConfigText | None:
    """The repository's configuration file from the working tree, or None. Raises ConfigError."""
    path = find_repository_file(root)
    return None if path is None else read_config_file(path, name=path.name, follow_symlinks=False)


def user_file_path(environment: Mapping[str, str]) -> Path | None:
    """Where the user's own file would be, or None when the environment names no home directory."""
    configured = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification says to ignore a relative path.
    if Path(configured).is_absolute():
        return Path(configured, "codeloupe", "config.yaml")
    home = environment.get("HOME", "")
    return Path(home, ".config", "codeloupe", "config.yaml") if Path(home).is_absolute() else None


def read_user_file(path: Path) -> ConfigText | None:
    """The user's own file, or None when there is none. Raises ConfigError when it cannot be read."""
    return read_config_file(path, name=str(path), follow_symlinks=True) if os.path.lexists(path) else None


def read_config_file(path: Path, *, name: str, follow_symlinks: bool) -> ConfigText:
    """Read a file, at most 1 MB of UTF-8. Raises ConfigError for anything else that may stand there."""
    # O_NONBLOCK: opening a named pipe would wait for a writer that never comes.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_symlinks else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
        try:
            data = _read_regular(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unreadable(name, error) from error
    if data is None:
        raise ConfigError(f"{escape(name)}: not a regular file", hint="put a plain text file in its place")
    return decode_config(name, data)


def _read_regular(descriptor: int) -> bytes | None:
    """One byte more than is allowed at most; None for what is not a regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(MAX_FILE_BYTES + 1)


def decode_config(name: str, data: bytes) -> ConfigText:
    """The text of a file's bytes. Raises ConfigError when they are too many or not UTF-8."""
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{escape(name)}: larger than {MAX_FILE_BYTES:,} bytes", hint="shorten the file")
    try:
        return ConfigText(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{escape(name)}:{line}: not UTF-8 text (byte 0x{data[error.start]:02x})",
            hint="save the file as UTF-8",
        ) from error


def _unreadable(name: str, error: OSError) -> ConfigError:
    if error.errno == errno.ELOOP:
        hint = "put the file itself in its place"
        return ConfigError(f"{escape(name)}: a symbolic link, which is not followed", hint=hint)
    if error.errno == errno.ENOENT:
        return ConfigError(
            f"{escape(name)}: no such file", hint="check the name, or write one: `codeloupe config init`"
        )
    reason = (error.strerror or "unknown error").lower()
    return ConfigError(f"{escape(name)}: cannot be read: {reason}", hint="check the file's permissions")
