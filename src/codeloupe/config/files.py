"""Finds and reads configuration files. A repository's own file is never reached through a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from msgspec import Struct

from codeloupe.config.yaml import closest, escape
from codeloupe.errors import ConfigError
from codeloupe.model.baseline import BASELINE_NAME

REPOSITORY_FILE_NAMES = ("codeloupe.yaml", "codeloupe.yml")
MAX_FILE_BYTES = 1_000_000
_STEMS = frozenset({"codeloupe", "codeloupe-config", "codeloupe_config", "codelouperc"})
_SUFFIXES = frozenset({"yaml", "yml", "json", "toml", "ini", "cfg", "conf", "config", "txt", "rc"})
_SHORTEN = "shorten the file"


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
    """Return notes on files that look like settings of the repository or the user, but are not read."""
    notes = [
        f"{escape(name)} is ignored: the settings of a repository are in {REPOSITORY_FILE_NAMES[0]}"
        for name in _names_in(root)
        if name not in (*REPOSITORY_FILE_NAMES, BASELINE_NAME) and _is_mistaken(name, _STEMS)
    ]
    if user_file is not None:
        notes += [
            f"{escape(str(user_file.with_name(name)))} is ignored: your own settings are in {user_file}"
            for name in _names_in(user_file.parent)
            if name != user_file.name and _is_mistaken(name, _STEMS | {"config", "settings"})
        ]
    return tuple(notes)


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted of many files
    except (OSError, ValueError):
        return []


def _is_mistaken(name: str, stems: AbstractSet[str]) -> bool:
    stem, *suffixes = name.lower().lstrip(".").split(".")
    # Only of our own name any form counts; of one that is merely like it, only the right one.
    is_ours = stem in stems and (bool(suffixes) or name.startswith(".") or name.endswith("rc"))
    is_alike = suffixes in (["yaml"], ["yml"]) and closest(stem, ("codeloupe",), cutoff=0.8) is not None
    return {*suffixes} <= _SUFFIXES and (is_ours or is_alike)


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


def read_regular_file(path: Path, *, follow_symlinks: bool = False, most: int = -1) -> bytes:
    """The content of a regular file, at most so many bytes. Raises OSError with a `strerror` for what else is there."""
    # O_NONBLOCK: opening a named pipe would wait for a writer that never comes.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_symlinks else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(None, "it is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def read_config_file(
    path: Path,
    *,
    name: str,
    follow_symlinks: bool,
    max_bytes: int = MAX_FILE_BYTES,
    too_large: str = _SHORTEN,
) -> ConfigText:
    """Read a file of UTF-8 text, up to a size. Raises ConfigError for anything else that may be there."""
    shown = escape(name)
    try:
        data = read_regular_file(path, follow_symlinks=follow_symlinks, most=max_bytes + 1)
    except OSError as error:
        what, hint = {
            None: ("not a regular file", "replace it with a plain text file"),
            errno.ELOOP: ("a symbolic link, which is not followed", "replace it with the file itself"),
            errno.ENOENT: ("no such file", "check the name, or create one: `codeloupe config init`"),
        }.get(
            error.errno,
            (f"cannot be read: {(error.strerror or 'unknown error').lower()}", "check the file's permissions"),
        )
        raise ConfigError(f"{shown}: {what}", hint=hint) from error
    return decode_config(name, data, max_bytes=max_bytes, too_large=too_large)


def decode_config(name: str, data: bytes, *, max_bytes: int = MAX_FILE_BYTES, too_large: str = _SHORTEN) -> ConfigText:
    """The text of a file's bytes. Raises ConfigError when they are too many or not UTF-8."""
    if len(data) > max_bytes:
        raise ConfigError(f"{escape(name)}: larger than {max_bytes:,} bytes", hint=too_large)
    try:
        return ConfigText(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = f"not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise ConfigError(f"{escape(name)}:{line}: {wrong}", hint="save the file as UTF-8") from error
