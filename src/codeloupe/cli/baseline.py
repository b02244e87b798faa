"""`codeloupe baseline`: the list of findings that are known and do not count. Its options are in `baseline_options`."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, date, datetime
from pathlib import Path

from codeloupe.cli.history import here
from codeloupe.cli.options import add_color_option, add_json_option, add_repo_option, is_ascii_only, look_of
from codeloupe.cli.output import set_up_logging, write_result
from codeloupe.cli.parser import Parser, sentence
from codeloupe.config.files import repository_root
from codeloupe.engine.history import LAST, SHORT_ID, find_entry, find_review, opened_history, review_of
from codeloupe.errors import StoreError, UsageError
from codeloupe.model.finding import Finding
from codeloupe.model.history import EntryKind, ReviewRecord
from codeloupe.reports.baseline_text import list_json, pruned_json, render_added, render_list, render_pruned
from codeloupe.store.baseline import LONGEST_TEXT, parse_date, parse_reason, read_working_file, write_working_file
from codeloupe.store.baseline_editing import edited
from codeloupe.store.baseline_findings import (
    Acceptance,
    ReviewedFindings,
    all_open,
    chosen,
    entry_for,
    findings_of,
    findings_of_sweep,
    read_report,
    standings,
    to_prune,
)
from codeloupe.system.untrusted import log_line


def reviewed_by(arguments: argparse.Namespace) -> ReviewedFindings:
    """What the review or the sweep that is asked for found, or the newest. Raises UsageError and StoreError."""
    if arguments.report is not None:
        return read_report(arguments.report)
    with opened_history() as history:
        entry = find_entry(history, arguments.review or LAST, here=here(history, arguments))
        swept = history.get_sweep(entry.entry_id) if entry.kind is EntryKind.SWEEP else None
        if swept is not None:
            return findings_of_sweep(swept.sweep, name=f"sweep {entry.entry_id[:SHORT_ID]}")
        return _of_review(review_of(history, entry))


def reviewed_if_any(arguments: argparse.Namespace) -> tuple[ReviewedFindings | None, str]:
    """What the review that is asked for found, or the last; and why there is none. Raises for one that is named.

    Not a sweep: in commits of the past nothing shows that an entry is not needed any more.
    """
    if arguments.report is not None:
        return read_report(arguments.report), ""
    try:
        with opened_history() as history:
            return _of_review(find_review(history, arguments.review or LAST, here=here(history, arguments))), ""
    except (UsageError, StoreError) as error:
        if arguments.review is not None:
            raise
        return None, error.message


def _of_review(record: ReviewRecord) -> ReviewedFindings:
    return findings_of(record.review, name=f"review {record.review.review_id[:SHORT_ID]}")


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


def _terms(arguments: argparse.Namespace) -> Acceptance:
    reason, owner = (" ".join(text.split()) for text in (arguments.reason, arguments.owner))
    try:
        parse_reason(reason)
    except ValueError as error:
        hint = f"say in a few words why these findings do not count, in at most {LONGEST_TEXT:,} characters"
        raise UsageError("--reason is empty or too long", hint=hint) from error
    if len(owner) > LONGEST_TEXT:
        raise UsageError("--owner is too long", hint="give a name")
    return Acceptance(reason=reason, owner=owner, expires=_expires(arguments.expires))


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


_EPILOG = """\
The baseline is the file codeloupe-baseline.yaml at the root of the repository; commit it. A finding listed in it is
still shown, as suppressed, but does not count. For an untrusted change the base branch's file is used.

A comment in the code does the same for one place, on the line or above it, and needs a reason too:
  # codeloupe: ignore[security] the table's name is a constant
"""


def configure(parser: Parser) -> None:
    """Add the verbs below `baseline` to its parser."""
    parser.description = "Maintain the list of known findings that do not count."
    parser.epilog = _EPILOG
    verbs = parser.add_commands(dest="action")
    for name, (add_options, about) in _VERBS.items():
        add_options(verbs.add_parser(name, help=about, description=sentence(about)))


def _add_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "fingerprint",
        nargs="*",
        metavar="FINGERPRINT",
        help="a finding, by 6 or more characters of its fingerprint, or by its place (a.py:12)",
    )
    parser.add_argument("--all", action="store_true", help="every finding of the review that counts")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why they do not count")
    parser.add_argument("--owner", metavar="NAME", default="", help="who answers for it")
    parser.add_argument("--expires", metavar="DATE", help="the last day on which it holds, as YYYY-MM-DD")
    _add_where(parser, what="a saved review or sweep")


def _add_list(parser: argparse.ArgumentParser) -> None:
    _add_where(parser)
    add_json_option(parser)
    add_color_option(parser)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _add_where(parser)
    add_json_option(parser)


def _add_where(parser: argparse.ArgumentParser, *, what: str = "a saved review") -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--review", metavar="ID", help=f"{what}, as `codeloupe history list` has it (default: the last)"
    )
    source.add_argument("--from", metavar="FILE", dest="report", type=Path, help="a JSON report instead; - is stdin")
    add_repo_option(parser)


_VERBS = {
    "add": (_add_add, "add findings of a review to the baseline"),
    "list": (_add_list, "show the entries, with the expired and unused ones marked"),
    "prune": (_add_prune, "remove the entries that have expired or are unused"),
}
