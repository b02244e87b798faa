"""`codeloupe baseline`: the list of findings that are known and do not count. Its options are in `baseline_options`."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, date, datetime
from pathlib import Path

from codeloupe.cli.baseline_review import reviewed_by, reviewed_if_any
from codeloupe.cli.log_lines import set_up_logging
from codeloupe.cli.options import is_ascii_only, look_of
from codeloupe.cli.writing import write_result
from codeloupe.config.files import repository_root
from codeloupe.errors import UsageError
from codeloupe.model.finding import Finding
from codeloupe.reports.baseline_text import list_json, pruned_json, render_added, render_list, render_pruned
from codeloupe.store.baseline.adopting import Terms, all_open, chosen, entry_for
from codeloupe.store.baseline.editing import edited
from codeloupe.store.baseline.entry_fields import LONGEST_TEXT, parse_date, parse_reason
from codeloupe.store.baseline.file import read_working_file, write_working_file
from codeloupe.store.baseline.reviewed import ReviewedFindings
from codeloupe.store.baseline.standing import standings, to_prune
from codeloupe.system.untrusted import log_line


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for and return the exit code. Raises UsageError, ConfigError, OutputError and StoreError."""
    set_up_logging(verbose=False)
    root = _root(arguments.repo)
    match arguments.action:
        case "add":
            return _add(root, arguments)
        case "list":
            return _list(root, arguments)
        case _:
            return _prune(root, arguments)


def _add(root: Path, arguments: argparse.Namespace) -> int:
    if arguments.all == bool(arguments.fingerprint):
        what = "exclude each other" if arguments.all else "are both missing"
        raise UsageError(f"fingerprints and --all {what}", hint="name findings by their fingerprints, or give --all")
    terms = _terms(arguments)
    file = read_working_file(root)
    reviewed = reviewed_by(arguments)
    known = {entry.key: entry for entry in file.baseline.entries}
    entries = [entry_for(finding, terms) for finding in _findings(reviewed, arguments)]
    if arguments.all:
        # Somebody gave those that hold a reason of their own.
        entries = [entry for entry in entries if entry.key not in known or known[entry.key].is_expired(_today())]
    if entries:
        write_working_file(root, edited(file.text, file.baseline, put=entries))
    added = [entry for entry in entries if entry.key not in known]
    renewed = [entry for entry in entries if entry.key in known]
    write_result(render_added(added, renewed, ascii_only=is_ascii_only()))
    if arguments.all and not reviewed.complete:
        _note(f"{reviewed.name} was not complete: what it did not look at is not in the baseline")
    return 0


def _findings(reviewed: ReviewedFindings, arguments: argparse.Namespace) -> list[Finding]:
    return all_open(reviewed) if arguments.all else chosen(reviewed, arguments.fingerprint)


def _terms(arguments: argparse.Namespace) -> Terms:
    reason, owner = (" ".join(text.split()) for text in (arguments.reason, arguments.owner))
    try:
        parse_reason(reason)
    except ValueError as error:
        hint = f"say in a few words why these findings do not count, in at most {LONGEST_TEXT:,} characters"
        raise UsageError("--reason is empty or too long", hint=hint) from error
    if len(owner) > LONGEST_TEXT:
        raise UsageError("--owner is too long", hint="give a name")
    return Terms(reason=reason, owner=owner, expires=_expires(arguments.expires))


def _expires(word: str | None) -> date | None:
    if word is None:
        return None
    try:
        day = parse_date(word.strip())
    except ValueError as error:
        raise UsageError(f"--expires: {word!r} is not a date", hint="write it as YYYY-MM-DD") from error
    if day < _today():
        raise UsageError(f"--expires: {day} is in the past", hint="give today or a later day")
    return day


def _list(root: Path, arguments: argparse.Namespace) -> int:
    baseline = read_working_file(root).baseline
    reviewed, problem = reviewed_if_any(arguments)
    standing = standings(baseline, reviewed, today=_today())
    name = None if reviewed is None else reviewed.name
    if arguments.json:
        write_result(list_json(standing, review=name))
    else:
        look = look_of(arguments.color)
        write_result(render_list(standing, review=name, width=look.width, color=look.color, ascii_only=look.ascii_only))
    if problem and standing:
        _note(f"which entries are used is not known: {problem}")
    return 0


def _prune(root: Path, arguments: argparse.Namespace) -> int:
    file = read_working_file(root)
    reviewed, problem = reviewed_if_any(arguments)
    gone = to_prune(standings(file.baseline, reviewed, today=_today()))
    if gone and not arguments.dry_run:
        write_working_file(root, edited(file.text, file.baseline, remove=[each.entry.key for each in gone]))
    if arguments.json:
        write_result(pruned_json(gone, dry_run=arguments.dry_run))
    else:
        write_result(render_pruned(gone, dry_run=arguments.dry_run, ascii_only=is_ascii_only()))
    if problem and file.baseline.entries:
        _note(f"only expired entries were looked for: {problem}")
    return 0


def _root(directory: Path) -> Path:
    if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises for a name that no file can have
        raise UsageError(f"{directory}: no such directory", hint="give an existing directory to --repo")
    return repository_root(directory)


def _today() -> date:
    return datetime.now(UTC).date()


def _note(text: str) -> None:
    print(f"codeloupe: {log_line(text)}", file=sys.stderr)
