"""`codeloupe doctor`: what is here, what is missing, and who would review."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from msgspec import to_builtins
from msgspec.structs import replace

from codeloupe.cli.options import add_json_option, add_repo_option, is_ascii_only, wrapped
from codeloupe.cli.output import set_up_logging, write_result
from codeloupe.cli.running import run_to_end, tell_notes
from codeloupe.config.schema import Settings
from codeloupe.engine.settings import configure as settings_for
from codeloupe.errors import ConfigError
from codeloupe.model.review import Check, Diagnosis
from codeloupe.runtime import Runtime, check_settings
from codeloupe.system.untrusted import terminal

_NOT_HEALTHY = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to look, and how to show it."""
    add_repo_option(parser)
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look at everything; exit 0 when a review can run, 3 when something it needs is missing."""
    set_up_logging(verbose=False)
    settings, wrong = _settings(arguments.repo)
    diagnosis = run_to_end(Runtime(settings).doctor(repo=arguments.repo))
    diagnosis = replace(diagnosis, checks=(*diagnosis.checks, *wrong))
    write_result(_as_json(diagnosis) if arguments.json else _as_text(diagnosis))
    return 0 if diagnosis.healthy else _NOT_HEALTHY


def _settings(repo: Path) -> tuple[Settings, tuple[Check, ...]]:
    """The settings in force, and what is wrong with them: where they cannot be read, the defaults are in force."""
    settings = Settings()
    try:
        settings = tell_notes(run_to_end(settings_for(repo=repo)), quiet=False).settings
        run_to_end(check_settings(settings, repo=repo))
    except ConfigError as error:
        return settings, (Check("codeloupe", "settings", ok=False, detail=error.message, hint=error.hint),)
    return settings, ()


def _as_text(diagnosis: Diagnosis) -> str:
    lines: list[str] = []
    group = ""
    width = max(len(check.name) for check in diagnosis.checks)
    for check in sorted(diagnosis.checks, key=lambda check: _GROUPS.index(check.group)):
        if check.group != group:
            group = check.group
            lines += ["", group] if lines else [group]
        lines += wrapped(terminal(check.detail), f"  {_mark(check)} {check.name.ljust(width)}  ")
        if check.hint:
            lines += wrapped(terminal(check.hint), f"    {' ' * width}  {'to mend' if check.needed else 'to use'} it: ")
    reviewer = diagnosis.reviewer
    lines += ["", *wrapped(f"{reviewer.type} ({terminal(reviewer.why)}).", "A review here would be: ", hang=2)]
    if not diagnosis.healthy:
        lines.append("Something that a review needs is missing; see above.")
    return "\n".join(lines) + "\n"


_GROUPS = ("codeloupe", "git", "analysers", "agents", "publishing")


def _mark(check: Check) -> str:
    good, bad, absent = ("+", "!", "-") if is_ascii_only() else ("✔", "✘", "·")
    return good if check.ok else bad if check.needed else absent


def _as_json(diagnosis: Diagnosis) -> str:
    document = {"healthy": diagnosis.healthy, **to_builtins(diagnosis)}
    return json.dumps(document, indent=2) + "\n"
