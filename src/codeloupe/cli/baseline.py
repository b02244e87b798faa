"""`codeloupe baseline`: the list of findings that are known and do not count."""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime
from pathlib import Path

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_command, add_examples, flag, option
from codeloupe.cli.verbs import note, set_up_logging, write_result
from codeloupe.errors import StoreError, UsageError
from codeloupe.history import LAST, SHORT_ID, find_entry, find_review, locate, opened_history, review_of
from codeloupe.model.history import EntryKind
from codeloupe.reports import baseline_text as report
from codeloupe.store import baseline as findings
from codeloupe.store.baseline import (
    LONGEST_TEXT,
    edited,
    parse_date,
    parse_reason,
    read_working_file,
    write_working_file,
)

_EPILOG = """\
The baseline is the file codeloupe-baseline.yaml at the root of the repository; commit it. A finding listed in it is
still shown, as suppressed, but does not count. For an untrusted change the base branch's file is used.

A comment in the code does the same for one place, on the line or above it, and needs a reason too:
  # codeloupe: ignore[security] the table's name is a constant
"""
_EXAMPLES = {
    "": ("codeloupe baseline add --all --reason 'old code' --expires 2030-01-31", "codeloupe baseline list"),
    "add": (
        "codeloupe baseline add src/app.py:12 --reason 'checked by Ada'",
        "codeloupe baseline add --all --reason 'old code' --expires 2030-01-31",
    ),
    "list": ("codeloupe baseline list", "codeloupe baseline list --json"),
    "prune": ("codeloupe baseline prune --dry-run",),
}


def configure(parser: Parser) -> None:
    """Add the verbs below `baseline` to its parser."""
    parser.description = "List, add and remove findings that are accepted and do not count."
    parser.epilog = _EPILOG
    verbs = parser.add_commands(dest="action")
    add = add_command(verbs, "add", "add findings of a review to the baseline", _add)
    about = "a finding: 6 or more characters of its fingerprint, or its place (a.py:12)"
    option(add, "fingerprint", "FINGERPRINT", about, nargs="*")
    flag(add, "--all", "every open finding of the review")
    option(add, "--reason", "TEXT", "why they are accepted", required=True)
    option(add, "--owner", "NAME", "who is responsible for the entry", default="")
    option(add, "--expires", "DATE", "the last day of the entry, as YYYY-MM-DD")
    listed = add_command(verbs, "list", "list the entries, and mark expired and unused ones", _list)
    prune = add_command(verbs, "prune", "remove entries that are expired or unused", _prune)
    flag(prune, "--dry-run", "show what would be removed, and change nothing")
    for verb in (add, listed, prune):
        source = verb.add_mutually_exclusive_group()
        what = "a stored review or sweep" if verb is add else "a stored review"
        option(source, "--review", "ID", f"{what}: {options.AN_ID} (default: last)")
        option(source, "--from", "FILE", "a JSON report instead; - is standard input", dest="report", type=Path)
        options.add(verb, "--repo")
    options.add(listed, "--json", "--color")
    options.add(prune, "--json")
    add_examples(parser, _EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for and return the exit code. Raises UsageError, ConfigError, OutputError and StoreError."""
    set_up_logging()
    return int(arguments.act(options.repository_root_of(arguments.repo), arguments))


def _reviewed_by(arguments: argparse.Namespace, *, sweeps: bool = True) -> findings.ReviewedFindings:
    """Return the findings of the named review or sweep, by default the last one. Raise UsageError and StoreError."""
    if arguments.report is not None:
        return findings.read_report(arguments.report)
    with opened_history() as history:
        word = arguments.review or LAST
        place = locate(history, arguments.repo)
        entry = find_entry(history, word, here=place) if sweeps else None
        swept = history.get_sweep(entry.entry_id) if entry and entry.kind is EntryKind.SWEEP else None
        if swept is not None:
            return findings.findings_of_sweep(swept.sweep, name=f"sweep {swept.sweep.sweep_id[:SHORT_ID]}")
        record = review_of(history, entry) if entry else find_review(history, word, here=place)
        return findings.findings_of(record.review, name=f"review {record.review.review_id[:SHORT_ID]}")


def _reviewed_if_any(arguments: argparse.Namespace) -> tuple[findings.ReviewedFindings | None, str]:
    """What the review that is asked for found, or the last; and why there is none. Raises for one that is named."""
    try:
        # Not a sweep: in commits of the past nothing shows that an entry is not needed any more.
        return _reviewed_by(arguments, sweeps=False), ""
    except (UsageError, StoreError) as error:
        if arguments.review is not None or arguments.report is not None:
            raise
        return None, error.message


def _add(root: Path, arguments: argparse.Namespace) -> int:
    if arguments.all == bool(arguments.fingerprint):
        what = "exclude each other" if arguments.all else "are both missing"
        raise UsageError(f"fingerprints and --all {what}", hint="name findings by their fingerprints, or give --all")
    acceptance = _acceptance(arguments)
    file = read_working_file(root)
    reviewed = _reviewed_by(arguments)
    known = {entry.key: entry for entry in file.baseline.entries}
    meant = findings.all_open(reviewed) if arguments.all else findings.chosen(reviewed, arguments.fingerprint)
    entries = [findings.entry_for(finding, acceptance) for finding in meant]
    if arguments.all:
        # Somebody gave those that hold a reason of their own.
        entries = [entry for entry in entries if entry.key not in known or known[entry.key].is_expired(_today())]
    if entries:
        write_working_file(root, edited(file.text, file.baseline, put=entries))
    added = [entry for entry in entries if entry.key not in known]
    renewed = [entry for entry in entries if entry.key in known]
    write_result(report.render_added(added, renewed, ascii_only=options.is_ascii_only()))
    if arguments.all and not reviewed.complete:
        note(f"{reviewed.name} was not complete: findings in code that it did not review are not in the baseline")
    return 0


def _acceptance(arguments: argparse.Namespace) -> findings.Acceptance:
    reason, owner = (" ".join(text.split()) for text in (arguments.reason, arguments.owner))
    try:
        parse_reason(reason)
    except ValueError as error:
        hint = f"say in a few words why these findings do not count, in at most {LONGEST_TEXT:,} characters"
        raise UsageError("--reason is empty or too long", hint=hint) from error
    if len(owner) > LONGEST_TEXT:
        raise UsageError("--owner is too long", hint="give a name")
    expires = None
    if (word := arguments.expires) is not None:
        try:
            expires = parse_date(word.strip())
        except ValueError as error:
            raise UsageError(f"--expires: {word!r} is not a date", hint="write it as YYYY-MM-DD") from error
        if expires < _today():
            raise UsageError(f"--expires: {expires} is in the past", hint="give today or a later day")
    return findings.Acceptance(reason=reason, owner=owner, expires=expires)


def _list(root: Path, arguments: argparse.Namespace) -> int:
    baseline = read_working_file(root).baseline
    reviewed, problem = _reviewed_if_any(arguments)
    entries = findings.standings(baseline, reviewed, today=_today())
    name = None if reviewed is None else reviewed.name
    if arguments.json:
        write_result(report.list_json(entries, review=name))
    else:
        write_result(report.render_list(entries, review=name, **options.look_of(arguments.color)))
    if problem and entries:
        note(f"cannot determine which entries are used: {problem}")
    return 0


def _prune(root: Path, arguments: argparse.Namespace) -> int:
    file = read_working_file(root)
    reviewed, problem = _reviewed_if_any(arguments)
    gone = findings.to_prune(findings.standings(file.baseline, reviewed, today=_today()))
    if gone and not arguments.dry_run:
        write_working_file(root, edited(file.text, file.baseline, remove=[each.entry.key for each in gone]))
    if arguments.json:
        write_result(report.pruned_json(gone, dry_run=arguments.dry_run))
    else:
        write_result(report.render_pruned(gone, dry_run=arguments.dry_run, ascii_only=options.is_ascii_only()))
    if problem and file.baseline.entries:
        note(f"only expired entries were checked: {problem}")
    return 0


def _today() -> date:
    return datetime.now(UTC).date()
