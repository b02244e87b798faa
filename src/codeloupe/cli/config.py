"""`codeloupe config`: write, show, check and describe the configuration."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
from pathlib import Path

from codeloupe.config.files import (
    REPOSITORY_FILE_NAMES,
    find_repository_file,
    read_config_file,
    read_repository_file,
    repository_root,
    user_file_path,
)
from codeloupe.config.json_schema import json_schema
from codeloupe.config.loading import load_settings, load_settings_from_disk
from codeloupe.config.problems import escape
from codeloupe.config.provenance import LoadedSettings
from codeloupe.config.template import initial_text
from codeloupe.config.values import plain_values, value_text
from codeloupe.errors import OutputError, UsageError

_WIDEST_VALUE = 56
_FILE_NAME = REPOSITORY_FILE_NAMES[0]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the four verbs below `config` to its parser."""
    parser.description = "Write, show, check and describe the configuration."
    verbs = parser.add_subparsers(dest="config_verb", metavar="init|show|validate|schema", required=True)

    init = verbs.add_parser("init", help=f"write a commented {_FILE_NAME}")
    init.add_argument("--force", action="store_true", help=f"replace {_FILE_NAME} if there is one")
    show = verbs.add_parser("show", help="show every setting and where it comes from")
    show.add_argument("--json", action="store_true", help="print JSON")
    validate = verbs.add_parser("validate", help="check the configuration files")
    validate.add_argument("file", nargs="?", type=Path, metavar="FILE", help="check this file only")
    verbs.add_parser("schema", help="print the JSON Schema of the configuration file")
    for verb in (init, show, validate):
        verb.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: here)")


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen verb and return its exit code. Raises ConfigError, OutputError or UsageError."""
    match arguments.config_verb:
        case "init":
            return _init(_root(arguments.repo), force=arguments.force)
        case "show":
            return _show(_root(arguments.repo), as_json=arguments.json)
        case "validate":
            return _validate(_root(arguments.repo), arguments.file)
        case _:
            print(json.dumps(json_schema(), indent=2))
            return 0


def _root(directory: Path) -> Path:
    if not directory.is_dir():
        raise UsageError(f"{escape(str(directory))}: no such directory", hint="give an existing directory to --repo")
    return repository_root(directory)


def _init(root: Path, *, force: bool) -> int:
    target = root / _FILE_NAME
    existing = find_repository_file(root)
    if existing is not None and existing != target:
        raise OutputError(
            f"{existing.name} already exists in {escape(str(root))}", hint=f"rename it to {_FILE_NAME}, or remove it"
        )
    if existing is not None and not force:
        raise OutputError(f"{escape(str(target))} already exists", hint="add --force to replace it")
    _write_atomically(target, initial_text())
    print(f"wrote {escape(str(target))}")
    return 0


def _write_atomically(target: Path, text: str) -> None:
    """Write beside the target, then rename: a rename replaces a symbolic link and never follows it."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(text)
            temporary.replace(target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise OutputError(
            f"{escape(str(target))}: cannot be written: {reason}", hint="check the directory and its permissions"
        ) from error


def _show(root: Path, *, as_json: bool) -> int:
    loaded = load_settings_from_disk(root, environment=os.environ, flags={})
    print(_as_json(loaded) if as_json else _as_table(loaded))
    return 0


def _as_json(loaded: LoadedSettings) -> str:
    values = plain_values(loaded.settings)
    settings = {
        key: {"value": values[key], "origin": {"kind": origin.kind, "where": origin.where or None, "line": origin.line}}
        for key, origin in loaded.origins.items()
    }
    return json.dumps({"schema_version": 1, "settings": settings}, indent=2)


def _as_table(loaded: LoadedSettings) -> str:
    values = plain_values(loaded.settings)
    rows = [("KEY", "VALUE", "FROM")]
    rows += [(key, _cut(value_text(values[key])), escape(str(origin))) for key, origin in loaded.origins.items()]
    key_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{key:<{key_width}}  {value:<{value_width}}  {origin}" for key, value, origin in rows)


def _cut(text: str) -> str:
    """A long value would push the column behind it off the screen; `--json` has it whole."""
    return text if len(text) <= _WIDEST_VALUE else text[: _WIDEST_VALUE - 1] + "…"


def _validate(root: Path, file: Path | None) -> int:
    user_file = user_file_path(os.environ) if file is None else None
    if file is None:
        source = read_repository_file(root)
    else:
        source = read_config_file(file, name=str(file), follow_symlinks=True)
    load_settings(repository_file=source, user_file=user_file, environment={}, flags={})
    checked = [] if source is None else [source.name]
    if user_file is not None and os.path.lexists(user_file):
        checked.append(str(user_file))
    print("\n".join(f"{escape(name)}: valid" for name in checked) or "no configuration file: defaults apply")
    return 0
