"""The programming language of a file, by its name or by its `#!` line; `rules/languages.toml` has the tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from codeloupe.config.files import read_regular_file
from codeloupe.system.regex import regex

_TABLES = tomllib.loads((Path(__file__).parent / "rules" / "languages.toml").read_text(encoding="utf-8"))
# Longer than any `#!` line that a kernel reads.
_START_BYTES = 256
# The name of a program without its version, as in `python3.12` and `ts-node`.
_PROGRAM = regex(r"[a-z]+(?:-[a-z]+)?")


def _languages_by_word(table: str) -> Mapping[str, str]:
    languages: dict[str, str] = {}
    for language, words in _TABLES[table].items():
        languages.update(dict.fromkeys(words.split(), language))
    return languages


# The directories of rules, each with its languages in the spelling of ast-grep.
FOLDERS: Mapping[str, list[str]] = {folder: languages.split() for folder, languages in _TABLES["folders"].items()}
# The suffix by which ast-grep knows each language.
EXTENSIONS: Mapping[str, str] = {language: suffixes.split()[0] for language, suffixes in _TABLES["suffixes"].items()}
_BY_SUFFIX = _languages_by_word("suffixes")
_BY_NAME = _languages_by_word("names")
_BY_PROGRAM = _languages_by_word("programs")


def language_of(path: str, start: bytes = b"") -> str | None:
    """Return the language of a file that begins with `start`, or None if the analysers have no rules for it.

    The language of a file is that of its name or, if its name has no known suffix, that of its `#!` line.
    """
    name = PurePosixPath(path).name.lower()
    named = _BY_NAME.get(name) or _BY_SUFFIX.get(PurePosixPath(name).suffix)
    if named is not None:
        return named
    return _BY_PROGRAM.get(_interpreter(start))


def read_start(path: Path) -> bytes:
    """Return the beginning of a regular file, which holds its `#!` line; empty if the file cannot be read."""
    try:
        return read_regular_file(path, most=_START_BYTES)
    except OSError:
        return b""


def _interpreter(start: bytes) -> str:
    """Return the name of the program that a `#!` line starts, without directory and version; empty without one."""
    if not start.startswith(b"#!"):
        return ""
    line = start[2:_START_BYTES].split(b"\n", 1)[0]
    for word in line.decode("ascii", "replace").split():
        # `env` may have options and variables before the program; the program may be joined to `-S`.
        name = PurePosixPath(word.removeprefix("-S")).name
        if name in ("", "env") or name.startswith("-") or "=" in name:
            continue
        program = _PROGRAM.match(name)
        return "" if program is None else program[0]
    return ""
