"""`codeloupe config`: write, show, check and describe the configuration."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_command, add_examples, flag, option
from codeloupe.cli.verbs import note, output_file, run_to_end
from codeloupe.config import files
from codeloupe.config.loading import load_settings, load_settings_from_disk
from codeloupe.config.schema import initial_text, json_schema, plain_values, value_text
from codeloupe.config.yaml import escape
from codeloupe.errors import OutputError
from codeloupe.store import without_password
from codeloupe.system.untrusted import without_log_commands

_FILE_NAME = files.REPOSITORY_FILE_NAMES[0]
_EXAMPLES = {
    "": ("codeloupe config init", "codeloupe config show"),
    "init": ("codeloupe config init",),
    "show": ("codeloupe config show", "codeloupe config show --json"),
    "validate": ("codeloupe config validate", "codeloupe config validate codeloupe.yaml"),
    "schema": ("codeloupe config schema > codeloupe.schema.json",),
}


def configure(parser: Parser) -> None:
    """Add the four verbs below `config` to its parser."""
    parser.description = "Write, show and check settings."
    verbs = parser.add_commands(dest="config_verb")
    about = f"write a {_FILE_NAME} with every setting commented out"
    init = add_command(verbs, "init", about, _init)
    flag(init, "--force", f"replace {_FILE_NAME} if there is one")
    show = add_command(verbs, "show", "show every setting and where it comes from", _show)
    options.add(show, "--json")
    validate = add_command(verbs, "validate", "check the settings files", _validate)
    option(validate, "file", "FILE", "check this file only", nargs="?", type=Path)
    add_command(verbs, "schema", "print the JSON Schema of the settings file", _schema)
    for verb in (init, show, validate):
        options.add(verb, "--repo")
    add_examples(parser, _EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen verb and return its exit code. Raises ConfigError, OutputError or UsageError."""
    return int(arguments.act(arguments))


def _schema(_arguments: argparse.Namespace) -> int:
    print(json.dumps(json_schema(), indent=2))
    return 0


def _init(arguments: argparse.Namespace) -> int:
    root = options.repository_root_of(arguments.repo)
    target = root / _FILE_NAME
    shown = escape(str(target))
    existing = files.find_repository_file(root)
    if existing is not None and existing != target:
        hint = f"rename it to {_FILE_NAME}, or remove it"
        raise OutputError(f"{existing.name} already exists in {escape(str(root))}", hint=hint)
    if existing is not None and not arguments.force:
        raise OutputError(f"{shown} already exists", hint="add --force to replace it")
    # It is renamed into place, which replaces a symbolic link and never follows it.
    with output_file(target) as pieces:
        pieces.append(initial_text())
    print(f"wrote {shown}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    root = options.repository_root_of(arguments.repo)
    loaded = load_settings_from_disk(root, environment=os.environ, flags={})
    _note_mistaken(root)
    values = plain_values(loaded.settings)
    values["database"] = values["database"] and without_password(values["database"])
    if arguments.json:
        settings = {
            key: {"value": values[key], "origin": {"kind": one.kind, "where": one.where or None, "line": one.line}}
            for key, one in loaded.origins.items()
        }
        print(json.dumps({"schema_version": 1, "settings": settings}, indent=2))
        return 0
    rows = [("KEY", "VALUE", "FROM")]
    rows += [(key, value_text(values[key]), escape(str(origin))) for key, origin in loaded.origins.items()]
    keys, longest, origins = (max(len(row[column]) for row in rows) for column in range(3))
    # A long value would push the column after it off the screen, so it is cut, and `--json` has it whole; but one long
    # path is no reason to cut every value.
    room = min(longest, max(16, min(56, options.output_width() - keys - min(origins, 20) - 4)))
    cut = ((key, value if len(value) <= room else f"{value[: room - 1]}…", origin) for key, value, origin in rows)
    print(without_log_commands("\n".join(f"{key:<{keys}}  {value:<{room}}  {origin}" for key, value, origin in cut)))
    return 0


def _note_mistaken(root: Path) -> None:
    for text in files.mistaken_files(root, files.user_file_path(os.environ)):
        note(text)


def _validate(arguments: argparse.Namespace) -> int:
    from codeloupe.doctor import check_settings

    root, file = options.repository_root_of(arguments.repo), arguments.file
    user_file = files.user_file_path(os.environ) if file is None else None
    # A file by itself is checked as it is, whatever the variables of this process say.
    environment = dict(os.environ) if file is None else {}
    if file is None:
        source = files.read_repository_file(root)
    else:
        source = files.read_config_file(file, name=str(file), follow_symlinks=True)
    loaded = load_settings(repository_file=source, user_file=user_file, environment=environment, flags={})
    _note_mistaken(root)
    # As a run would: an expert that nobody knows is no mistake of form.
    run_to_end(check_settings(loaded.settings, repo=None if file is not None else root))
    checked = [] if source is None else [source.name]
    if user_file is not None and os.path.lexists(user_file):
        checked.append(str(user_file))
    print("\n".join(f"{escape(name)}: valid" for name in checked) or "no configuration file: defaults apply")
    return 0
