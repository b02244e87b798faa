"""`codeloupe config`: write, show, check and describe the configuration."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import sys
from pathlib import Path

from codeloupe.cli.options import add_json_option, add_repo_option, output_width
from codeloupe.cli.parser import Parser, sentence
from codeloupe.cli.running import run_to_end
from codeloupe.config.files import (
    REPOSITORY_FILE_NAMES,
    find_repository_file,
    mistaken_files,
    read_config_file,
    read_repository_file,
    repository_root,
    user_file_path,
)
from codeloupe.config.loading import LoadedSettings, load_settings, load_settings_from_disk
from codeloupe.config.schema import initial_text, json_schema, plain_values, value_text
from codeloupe.config.yaml import escape
from codeloupe.errors import OutputError, UsageError
from codeloupe.runtime import check_settings
from codeloupe.system.untrusted import log_line, without_log_commands

_WIDEST_VALUE = 56
_NARROWEST_VALUE = 16
_USUAL_ORIGIN = 20
_FILE_NAME = REPOSITORY_FILE_NAMES[0]
_VERBS = {
    "init": f"write a {_FILE_NAME} with the keys of a repository, all as comments",
    "show": "show every setting and where it comes from",
    "validate": "check the configuration files",
    "schema": "print the JSON Schema of the configuration file",
}


def configure(parser: Parser) -> None:
    """Add the four verbs below `config` to its parser."""
    parser.description = "Write, show, check and describe the configuration."
    verbs = parser.add_commands(dest="config_verb")
    init, show, validate, _ = (
        verbs.add_parser(name, help=about, description=sentence(about)) for name, about in _VERBS.items()
    )
    init.add_argument("--force", action="store_true", help=f"replace {_FILE_NAME} if there is one")
    add_json_option(show)
    validate.add_argument("file", nargs="?", type=Path, metavar="FILE", help="check this file only")
    for verb in (init, show, validate):
        add_repo_option(verb)


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
    if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises for a name that no file can have
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
    _tell_mistaken(root)
    print(_as_json(loaded) if as_json else without_log_commands(_as_table(loaded, width=output_width())))
    return 0


def _as_json(loaded: LoadedSettings) -> str:
    values = plain_values(loaded.settings)
    settings = {
        key: {"value": values[key], "origin": {"kind": origin.kind, "where": origin.where or None, "line": origin.line}}
        for key, origin in loaded.origins.items()
    }
    return json.dumps({"schema_version": 1, "settings": settings}, indent=2)


def _as_table(loaded: LoadedSettings, *, width: int) -> str:
    """A long value would push the column behind it off the screen, so it is cut; `--json` has it whole."""
    values = plain_values(loaded.settings)
    rows = [("KEY", "VALUE", "FROM")]
    rows += [(key, value_text(values[key]), escape(str(origin))) for key, origin in loaded.origins.items()]
    keys, longest, origins = (max(len(row[column]) for row in rows) for column in range(3))
    # One long path is no reason to cut every value.
    left = width - keys - min(origins, _USUAL_ORIGIN) - 4
    room = min(longest, max(_NARROWEST_VALUE, min(_WIDEST_VALUE, left)))
    return "\n".join(f"{key:<{keys}}  {_cut(value, room):<{room}}  {origin}" for key, value, origin in rows)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _tell_mistaken(root: Path) -> None:
    for note in mistaken_files(root, user_file_path(os.environ)):
        print(f"codeloupe: {log_line(note)}", file=sys.stderr)


def _check(loaded: LoadedSettings, root: Path | None) -> None:
    """As a run would: an expert that nobody knows is no mistake of form. Raises ConfigError."""
    run_to_end(check_settings(loaded.settings, repo=root))


def _validate(root: Path, file: Path | None) -> int:
    user_file = user_file_path(os.environ) if file is None else None
    if file is None:
        source = read_repository_file(root)
    else:
        source = read_config_file(file, name=str(file), follow_symlinks=True)
        # A file by itself is checked as it is, whatever the variables of this process say.
    environment = {} if file is not None else os.environ
    loaded = load_settings(repository_file=source, user_file=user_file, environment=environment, flags={})
    _tell_mistaken(root)
    _check(loaded, None if file is not None else root)
    checked = [] if source is None else [source.name]
    if user_file is not None and os.path.lexists(user_file):
        checked.append(str(user_file))
    print("\n".join(f"{escape(name)}: valid" for name in checked) or "no configuration file: defaults apply")
    return 0
