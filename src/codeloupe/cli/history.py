"""`codeloupe history`: show, judge again, compare and count stored reviews; no agent is called, nothing is spent."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from codeloupe import history as saved
from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_command, add_examples, flag, option
from codeloupe.cli.verbs import (
    STANDARD_OUTPUT,
    Output,
    deliver,
    note,
    output_path,
    set_up_logging,
    size_of,
    write_result,
)
from codeloupe.errors import UsageError
from codeloupe.findings.compare import compare_reviews
from codeloupe.git.identity import find_identity
from codeloupe.model import history as model
from codeloupe.model.finding import Severity
from codeloupe.reports import FORMATS, SWEEP_FORMATS, Layout, render, render_sweep
from codeloupe.reports import history as report
from codeloupe.reports.wording import counted
from codeloupe.store.history import DatabaseHistory
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import terminal, without_log_commands

_BEFORE_LAST = f"{saved.LAST}~1"
_EPILOG = """\
These commands are about the reviews of this working tree; each linked worktree has its own. `last` is the newest
review, and `last~1` the one before it. An id works from anywhere, even after its clone was moved or deleted.
"""
_WHERE = "`codeloupe history show -v` has the fingerprint of each finding"
_LIST = "`codeloupe history list` shows the others"
_EXAMPLES = {
    "": ("codeloupe history list", "codeloupe history show last"),
    "list": ("codeloupe history list", "codeloupe history list --branch main --limit 5 --json"),
    "show": ("codeloupe history show", "codeloupe history show last --verbose"),
    "render": (
        "codeloupe history render last --format html -o review.html",
        "codeloupe history render last --fail-on medium",
    ),
    "compare": ("codeloupe history compare", "codeloupe history compare last~3 last"),
    "trends": ("codeloupe history trends", "codeloupe history trends --by week --weeks 4"),
    "dismiss": (
        "codeloupe history dismiss",
        "codeloupe history dismiss 1a2b3c --reason 'the input is a constant'",
        "codeloupe history dismiss 1a2b3c --undo",
    ),
    "prune": ("codeloupe history prune --older-than 90d --dry-run", "codeloupe history prune --keep 100"),
}


def configure(parser: Parser) -> None:
    """Add the verbs below `history` to its parser."""
    parser.description = "Show, compare and re-evaluate stored reviews."
    verbs = parser.add_commands(dest="action")
    parser.epilog = _EPILOG
    listed = add_command(verbs, "list", "list stored reviews and sweeps, the newest first", _list)
    option(listed, "--limit", "N", "show at most N (default: 20)", type=int, default=20)
    option(listed, "--branch", "NAME", "only reviews made on this branch")

    show = add_command(verbs, "show", "show a stored review, or the commits of a sweep", _show)
    option(show, "id", "ID", f"{options.AN_ID} (default: last)", nargs="?", default=saved.LAST)
    flag(show, "--raw", "what the agents printed, unit by unit")

    about = "write a stored review in any format, or re-evaluate it"
    rendered = add_command(verbs, "render", about, _render)
    option(rendered, "id", "ID", f"{options.AN_ID} (default: last)", nargs="?", default=saved.LAST)
    about = "text, json, sarif, html or another one of `review`"
    option(rendered, "--format", "FORMAT", about, default="text")
    option(rendered, "--fail-on", "SEVERITY", "exit 1 at or above this (default: as reviewed)")
    option(rendered, "--min-severity", "SEVERITY", "show only findings at or above this severity")
    about = "exit 3 or 0 if incomplete (default: as reviewed)"
    option(rendered, "--on-incomplete", "fail|pass", about, choices=["fail", "pass"])
    option(rendered, "-o --output", "FILE", "write the result to a file", type=output_path)

    compare = add_command(verbs, "compare", "show what is new, open, fixed or back between two reviews", _compare)
    about = f"the earlier review: {options.AN_ID} (default: last~1)"
    option(compare, "earlier", "EARLIER", about, nargs="?", default=_BEFORE_LAST)
    option(compare, "later", "LATER", "the later one (default: last)", nargs="?", default=saved.LAST)

    trends = add_command(verbs, "trends", "show findings, share fixed, cost and time, with a plot", _trends)
    about = "week, expert or reviewer (default: all three)"
    option(trends, "--by", "WHAT", about, choices=["week", "expert", "reviewer"], action="append")
    option(trends, "--weeks", "N", "the last N weeks (default: 12)", type=int, default=12)

    about = "dismiss a finding, or list the dismissed ones"
    dismiss = add_command(verbs, "dismiss", about, _dismiss)
    about = "the finding to dismiss: 6 or more characters of its fingerprint (default: list all)"
    option(dismiss, "fingerprint", "FINGERPRINT", about, nargs="?")
    option(dismiss, "--reason", "TEXT", "why it is not a defect; required to dismiss")
    flag(dismiss, "--undo", "let it count again")

    prune = add_command(verbs, "prune", "remove old reviews and sweeps", _prune)
    option(prune, "--older-than", "AGE", "remove those older than 90d, 12w, 6m or 1y")
    option(prune, "--keep", "N", "keep the newest N", type=int)
    flag(prune, "--dry-run", "show what would be removed, and change nothing")
    for each in (listed, trends, prune):
        options.add(each, "--repo")
        which = each.add_mutually_exclusive_group()
        flag(which, "--all-clones", "include other clones and worktrees of this repository")
        flag(which, "--all", "include all repositories")
    options.add(dismiss, "--repo")
    options.add(prune, "--json")
    for each in (listed, trends):
        options.add(each, "--json", "--color")
    options.add(compare, "--repo", "--json", "--color")
    for each in (show, rendered):
        flag(each, "-v --verbose", "name every skipped file and fingerprint")
        options.add(each, "--repo", "--color")
    add_examples(parser, _EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for and return the exit code. Raises UsageError and StoreError."""
    set_up_logging()
    with saved.opened_history() as history:
        done: str | int = arguments.act(history, arguments)
    if isinstance(done, int):
        return done
    write_result(done)
    return 0


def _here(history: DatabaseHistory, arguments: argparse.Namespace) -> model.Here:
    """Return the work tree of `--repo`. Raise UsageError if there is no such directory."""
    return saved.locate(history, options.repository_root_of(arguments.repo))


def _identity(history: DatabaseHistory, arguments: argparse.Namespace) -> model.RepositoryIdentity:
    """Return the repository of `--repo`."""
    return asyncio.run(find_identity(arguments.repo, history))


class _Reach(NamedTuple):
    """The entries that a command is about: of a work tree, of a repository, or all; `where` says so in words."""

    work_tree: str | None
    repositories: tuple[str, ...] | None
    where: str


def _reach(history: DatabaseHistory, arguments: argparse.Namespace) -> _Reach:
    """Return the entries that `--all`, `--all-clones` or neither of them means."""
    here = _here(history, arguments)
    if arguments.all:
        return _Reach(None, None, "")
    label = terminal(here.label) or "this directory"
    if arguments.all_clones:
        return _Reach(None, _identity(history, arguments).names, f" of any clone of {label}")
    return _Reach(here.work_tree, None, f" made in {label}")


def _nothing(history: DatabaseHistory, reach: _Reach, branch: str | None = None) -> str:
    """Return the sentence for a list without entries, with the next thing to do."""
    on = "" if branch is None else f" on branch {terminal(branch)}"
    step = "`codeloupe review` creates the first entry"
    if history.list(model.HistoryQuery(limit=1)).entries:
        step = "`codeloupe history list --all` lists the others"
    return f"No review{reach.where}{on} is stored; {step}.\n"


def _check_at_least(least: int, number: int, option: str) -> None:
    if number < least:
        raise UsageError(f"{option} is {number}, and must be at least {least}", hint="see codeloupe history --help")


def _note_problems(record: model.ReviewRecord | model.SweepRecord) -> None:
    for problem in record.problems:
        note(problem)


def _compare(history: DatabaseHistory, arguments: argparse.Namespace) -> str:
    """Compare two reviews, by default the last one with the one before it. Raise UsageError."""
    here = _here(history, arguments)
    later = saved.find_review(history, arguments.later, here=here)
    earlier = saved.find_review(history, arguments.earlier, here=here)
    if earlier.review.review_id == later.review.review_id:
        note("both are the same review; `codeloupe history list` lists earlier ones")
    comparison = compare_reviews(history, earlier, later)
    if arguments.json:
        return report.comparison_json(comparison, earlier, later)
    return report.render_comparison(comparison, earlier, later, **options.look_of(arguments.color))


def _dismiss(history: DatabaseHistory, arguments: argparse.Namespace) -> str:
    """Dismiss a finding, undo that, or list them. Raise UsageError for an unknown finding and a missing reason."""
    identity = _identity(history, arguments)
    dismissals = history.dismissals(identity.names)
    word = arguments.fingerprint
    if word is None:
        if arguments.undo or arguments.reason is not None:
            raise UsageError("no finding was named", hint=_WHERE)
        rows = ((one.fingerprint[: saved.SHORT_ID], report.moment(one.at), one) for one in dismissals)
        lines = (terminal(f"{name}  {at}  {one.who or 'unknown'}: {one.reason}") for name, at, one in rows)
        return "".join(f"{line}\n" for line in lines) or f"Nothing is dismissed in {terminal(identity.label)}.\n"
    prefix = word.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{6,64}", prefix):
        what = f"{word!r} is not a fingerprint: it needs at least 6 digits and letters a to f"
        raise UsageError(what, hint=_WHERE)
    if not arguments.undo:
        return _dismissed(history, identity, prefix, " ".join((arguments.reason or "").split()))
    found = (one.fingerprint for one in dismissals if one.fingerprint.startswith(prefix))
    fingerprint = _only(found, word, f"{word!r} is not dismissed", "`codeloupe history dismiss` lists what is")
    history.take_back(fingerprint, repositories=identity.names)
    return f"Restored: {fingerprint[: saved.SHORT_ID]} counts again in the next review.\n"


def _dismissed(history: DatabaseHistory, identity: model.RepositoryIdentity, word: str, reason: str) -> str:
    if not reason or len(reason) > 1_000:
        what = "a reason is required" if not reason else "the reason is longer than 1,000"
        raise UsageError(what, hint='add --reason "why it is not a defect"')
    found = history.fingerprints(word, repositories=identity.names, limit=9)
    missing = f"no saved finding of {identity.label or 'this directory'} is {word!r}"
    fingerprint = _only(found, word, missing, _WHERE)
    who = ""
    with suppress(KeyError, OSError, ImportError):  # a user that the system does not know
        who = getpass.getuser()
    dismissal = model.Dismissal(
        fingerprint=fingerprint,
        repository=identity.names[0],
        reason=redact(reason),  # kept for good and shown to others, so no secret may get into it by mistake
        who=who,
        at=datetime.now(UTC),
        finding=history.finding(fingerprint, repositories=identity.names),
    )
    history.dismiss(dismissal)
    where = history.findings_of([fingerprint], repositories=identity.names)[-1]
    short = fingerprint[: saved.SHORT_ID]
    done = f"Dismissed {terminal(f'{short} in {where.file}')}: the next review does not count it."
    return f"{done}\n`codeloupe history dismiss {short} --undo` restores it.\n"


def _only(found: Iterable[str], word: str, missing: str, hint: str) -> str:
    """The one fingerprint that a word names. Raises UsageError, with `missing` where none is."""
    distinct = list(dict.fromkeys(found))
    if not distinct:
        raise UsageError(missing, hint=hint)
    if len(distinct) > 1:
        raise UsageError(f"{word!r} matches several: {', '.join(distinct)}", hint="give more digits")
    return distinct[0]


def _list(history: DatabaseHistory, arguments: argparse.Namespace) -> str:
    limit = arguments.limit
    _check_at_least(1, limit, "--limit")
    reach = _reach(history, arguments)
    # One more than is shown tells whether there are more.
    query = model.HistoryQuery(
        repositories=reach.repositories, work_tree=reach.work_tree, branch=arguments.branch, limit=limit + 1
    )
    found = history.list(query)
    shown = model.Listing(found.entries[:limit], found.problems)
    if arguments.json:
        return report.list_json(shown)
    if not shown.entries and not shown.problems:
        return _nothing(history, reach, arguments.branch)
    if len(found.entries) > limit:
        note(f"there are older ones; --limit {limit * 2} shows more")
    return report.render_list(shown, **options.look_of(arguments.color), with_repository=reach.work_tree is None)


def _prune(history: DatabaseHistory, arguments: argparse.Namespace) -> str:
    if arguments.older_than is None and arguments.keep is None:
        raise UsageError("no reviews are selected for removal", hint="give --older-than 90d, --keep 100, or both")
    older_than = None if arguments.older_than is None else _before(arguments.older_than)
    if arguments.keep is not None:
        _check_at_least(0, arguments.keep, "--keep")
    reach = _reach(history, arguments)
    before = history.file_bytes()
    rule = model.PruneRule(
        older_than=older_than, keep_last=arguments.keep, repositories=reach.repositories, work_tree=reach.work_tree
    )
    removed = history.prune(rule, dry_run=arguments.dry_run)
    freed = max(before - history.file_bytes(), 0)
    if arguments.json:
        return report.removed_json(removed, dry_run=arguments.dry_run, freed_bytes=freed)
    if not removed.reviews and not removed.sweeps:
        return "Nothing to remove.\n"
    sweeps = f" ({counted(removed.sweeps, 'sweep')} among them)" if removed.sweeps else ""
    findings = counted(removed.findings, "finding")
    what = f"{counted(removed.reviews, 'review')}{sweeps} with {findings}"
    if arguments.dry_run:
        return f"Would remove {what}, about {size_of(removed.size_bytes)}. Nothing was changed.\n"
    return f"Removed {what}; the database is {size_of(freed)} smaller.\n"


def _before(word: str) -> datetime:
    found = re.fullmatch(r"([0-9]{1,5}) {0,3}([dwmy]?)", word.strip(), re.IGNORECASE)
    if found is None:
        hint = "give days, weeks, months or years: 90d, 12w, 6m, 1y"
        raise UsageError(f"--older-than: {word!r} is not an age", hint=hint)
    days = int(found[1]) * {"": 1, "d": 1, "w": 7, "m": 30, "y": 365}[found[2].lower()]
    # Not before the calendar begins.
    return datetime.now(UTC) - timedelta(days=min(days, 700_000))


def _render(history: DatabaseHistory, arguments: argparse.Namespace) -> int:
    """Render a review or a sweep, and return the exit code of the policy it is judged by.

    Without an id it is the last review, since a sweep has other formats.
    """
    passes = None if arguments.on_incomplete is None else arguments.on_incomplete == "pass"
    here = _here(history, arguments)
    if model.steps_back(arguments.id) is None:
        entry = saved.find_entry(history, arguments.id, here=here)
        if entry.kind is model.EntryKind.SWEEP:
            return _render_sweep(history, entry.entry_id, arguments, passes=passes)
    if arguments.format not in FORMATS:
        raise UsageError(f"{arguments.format!r} is not a format", hint=f"the formats are {', '.join(FORMATS)}")
    record = saved.find_review(history, arguments.id, here=here)
    policy = saved.changed_policy(
        record.review.policy,
        fail_on=_severity(arguments.fail_on, "--fail-on"),
        min_severity=_severity(arguments.min_severity, "--min-severity"),
        pass_when_incomplete=passes,
    )
    review = saved.judged(record, policy)
    _note_problems(record)
    _write(lambda layout: render(review, arguments.format, layout), arguments)
    if not review.complete and review.passed:
        note("not everything was reviewed; on_incomplete lets it pass")
    return review.exit_code


def _render_sweep(
    history: DatabaseHistory, sweep_id: str, arguments: argparse.Namespace, *, passes: bool | None
) -> int:
    name = sweep_id[: saved.SHORT_ID]
    if arguments.format not in SWEEP_FORMATS:
        formats = f"the formats are {', '.join(SWEEP_FORMATS)}; a review of one of its commits has all others"
        raise UsageError(f"{name} is a sweep, and {arguments.format!r} is not a format for one", hint=formats)
    fail_on = _severity(arguments.fail_on, "--fail-on")
    if fail_on not in (None, Severity.HIGH) or arguments.min_severity is not None:
        hint = "name the review of one of its commits: `codeloupe history show` has them"
        raise UsageError(f"{name} is a sweep, which supports only --fail-on high", hint=hint)
    record = history.get_sweep(sweep_id)
    if record is None:
        raise UsageError(f"the sweep {sweep_id} was removed just now", hint=_LIST)
    _note_problems(record)
    sweep = saved.judged_sweep(record, strict=fail_on is not None, pass_when_incomplete=passes)
    _write(lambda layout: render_sweep(sweep, arguments.format, layout), arguments)
    return sweep.exit_code


def _write(show: Callable[[Layout], str], arguments: argparse.Namespace) -> None:
    file = None if arguments.output == STANDARD_OUTPUT else arguments.output
    look = options.look_of(arguments.color, to_file=file is not None)
    layout = Layout(**look, verbose=arguments.verbose)
    deliver((Output(arguments.format, file),), lambda: (0, lambda _output: show(layout)))


def _severity(word: str | None, option: str) -> Severity | None:
    try:
        return None if word is None else Severity.parse(word)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint="use critical, high, medium, low or P0 to P3") from error


def _show(history: DatabaseHistory, arguments: argparse.Namespace) -> str:
    """Show what the id names; the exit code says nothing about the verdict."""
    entry = saved.find_entry(history, arguments.id, here=_here(history, arguments))
    look = options.look_of(arguments.color)
    if entry.kind is model.EntryKind.SWEEP:
        if arguments.raw:
            what = f"{entry.entry_id[: saved.SHORT_ID]} is a sweep, and raw output belongs to a review"
            raise UsageError(what, hint="name the review of a commit")
        outline = history.outline(entry.entry_id)
        if outline is None:
            raise UsageError(f"the sweep {entry.entry_id} was removed just now", hint=_LIST)
        return report.render_outline(outline, **look)
    if arguments.raw:
        outputs = history.raw_outputs(entry.entry_id)
        raw = (f"=== {terminal(unit)}\n{terminal(text, keep_newlines=True)}\n" for unit, text in outputs.items())
        return without_log_commands("\n".join(raw)) or "No raw output was saved with this review.\n"
    record = saved.review_of(history, entry)
    _note_problems(record)
    parts = [f"Review {record.review.review_id}", f"saved {report.moment(record.saved_at)}"]
    parts += [f"on branch {record.branch}"] if record.branch else []
    parts += [f"by codeloupe {record.tool_version}"] if record.tool_version else []
    parts += [f"part of sweep {record.sweep_id[: saved.SHORT_ID]}"] if record.sweep_id else []
    # By its own policy: what cannot be read of it makes it incomplete.
    review = saved.judged(record, record.review.policy)
    text = render(review, "text", Layout(**look, verbose=arguments.verbose))
    return f"{terminal(', '.join(parts))}\n{text}"


def _trends(history: DatabaseHistory, arguments: argparse.Namespace) -> str:
    _check_at_least(1, arguments.weeks, "--weeks")
    reach = _reach(history, arguments)
    keys = [model.TrendKey(word) for word in dict.fromkeys(arguments.by)] if arguments.by else list(model.TrendKey)
    found = [
        model.Trends(one.by, one.rows[-arguments.weeks :], one.problems) if one.by is model.TrendKey.WEEK else one
        for one in history.trends(keys, repositories=reach.repositories, work_tree=reach.work_tree)
    ]
    if arguments.json:
        return report.trends_json(found)
    shown = [trends for trends in found if trends.rows]
    if not shown:
        return _nothing(history, reach)
    return report.render_trends(shown, **options.look_of(arguments.color))
