"""The file of a baseline at the root of a repository: never reached through a symbolic link, and replaced whole."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from msgspec import Struct

from codeloupe.config.problems import escape
from codeloupe.errors import ConfigError, OutputError
from codeloupe.model.baseline import BASELINE_NAME, Baseline
from codeloupe.store.baseline.reading import parse_baseline

MAX_FILE_BYTES = 16_000_000
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_HINT = "put a plain text file in its place, or remove it"


class BaselineFile(Struct, frozen=True):
    """A baseline with the text it was read from; the text of one that is not there is empty."""

    baseline: Baseline = Baseline()
    text: str = ""


def read_working_file(root: Path) -> BaselineFile:
    """The baseline in a working tree; an empty one when there is no file. Raises ConfigError."""
    try:
        descriptor = os.open(root / BASELINE_NAME, _READ)
    except FileNotFoundError:
        return BaselineFile()
    except OSError as error:
        raise _unreadable(error) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{BASELINE_NAME}: not a regular file", hint=_HINT)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(error) from error
    finally:
        os.close(descriptor)
    return decode_baseline(BASELINE_NAME, data)


def decode_baseline(name: str, data: bytes) -> BaselineFile:
    """The baseline in a file's bytes; `name` is for messages. Raises ConfigError."""
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{escape(name)}: larger than {MAX_FILE_BYTES:,} bytes", hint="fix some of the findings")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = f"not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise ConfigError(f"{escape(name)}:{line}: {wrong}", hint="save the file as UTF-8") from error
    return BaselineFile(parse_baseline(name, text), text)


def write_working_file(root: Path, text: str) -> None:
    """Put a text in the place of the baseline's file, whole or not at all, with the mode it had. Raises OutputError.

    It is written beside the file and renamed: a rename replaces a symbolic link and never follows it.
    """
    target = root / BASELINE_NAME
    temporary = root / f".{BASELINE_NAME}.{secrets.token_hex(8)}"
    try:
        try:
            with os.fdopen(os.open(temporary, _NEW_FILE, 0o666), "wb") as file:
                _keep_mode(file.fileno(), target)
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        hint = "check the directory and its permissions"
        raise OutputError(f"{escape(str(target))}: cannot be written: {reason}", hint=hint) from error


def _keep_mode(descriptor: int, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = target.lstat()
        if stat.S_ISREG(status.st_mode):
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)


def _unreadable(error: OSError) -> ConfigError:
    if error.errno == errno.ELOOP:
        return ConfigError(f"{BASELINE_NAME}: a symbolic link, which is not followed", hint=_HINT)
    reason = (error.strerror or "unknown error").lower()
    return ConfigError(f"{BASELINE_NAME}: cannot be read: {reason}", hint="check the file's permissions")
