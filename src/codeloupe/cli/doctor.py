"""`codeloupe doctor`: what is here, what is missing, and who would review."""

from __future__ import annotations

import argparse
import json

from msgspec import to_builtins
from msgspec.structs import replace

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, examples
from codeloupe.cli.verbs import loaded_by, run_to_end, set_up_logging, write_result
from codeloupe.config.schema import Settings
from codeloupe.doctor import check_settings
from codeloupe.errors import ConfigError
from codeloupe.model.review import Check, Diagnosis
from codeloupe.planning.settings import configure as settings_for
from codeloupe.runtime import Runtime
from codeloupe.system.untrusted import terminal

_GROUPS = ("codeloupe", "git", "analysers", "agents", "publishing")


def configure(parser: Parser) -> None:
    """Add the options of `doctor`."""
    options.add(parser, "--repo", "--json")
    examples(parser, "codeloupe doctor", "codeloupe doctor --json")


def run(arguments: argparse.Namespace) -> int:
    """Look at everything; exit 0 when a review can run, 3 when something it needs is missing."""
    set_up_logging()
    # Where the settings cannot be read, the defaults are in force.
    settings, wrong = Settings(), []
    try:
        settings = loaded_by(settings_for(repo=arguments.repo)).settings
        run_to_end(check_settings(settings, repo=arguments.repo))
    except ConfigError as error:
        wrong = [Check("codeloupe", "settings", ok=False, detail=error.message, hint=error.hint)]
    diagnosis = run_to_end(Runtime(settings).doctor(repo=arguments.repo))
    diagnosis = replace(diagnosis, checks=(*diagnosis.checks, *wrong))
    if arguments.json:
        write_result(json.dumps({"healthy": diagnosis.healthy, **to_builtins(diagnosis)}, indent=2) + "\n")
    else:
        write_result(_as_text(diagnosis))
    return 0 if diagnosis.healthy else 3


def _as_text(diagnosis: Diagnosis) -> str:
    lines: list[str] = []
    group = ""
    good, bad, absent = ("+", "!", "-") if options.is_ascii_only() else ("✔", "✘", "·")
    width = max(len(check.name) for check in diagnosis.checks)
    for check in sorted(diagnosis.checks, key=lambda check: _GROUPS.index(check.group)):
        if check.group != group:
            group = check.group
            lines += ["", group] if lines else [group]
        mark = good if check.ok else bad if check.needed else absent
        lines += options.wrapped(terminal(check.detail), f"  {mark} {check.name.ljust(width)}  ")
        if check.hint:
            use = "to fix" if check.needed else "to use"
            lines += options.wrapped(terminal(check.hint), f"    {' ' * width}  {use} it: ")
    reviewer = diagnosis.reviewer
    lines += ["", *options.wrapped(f"{reviewer.type} ({terminal(reviewer.why)}).", "A review here would be: ", hang=2)]
    if not diagnosis.healthy:
        lines.append("Something that a review needs is missing; see above.")
    return "\n".join(lines) + "\n"
