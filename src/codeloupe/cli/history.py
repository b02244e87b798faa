"""`codeloupe history`: show, judge anew, compare and count saved reviews; no agent is asked and nothing is spent."""

from __future__ import annotations

import argparse
import getpass
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from codeloupe.cli.options import Look, add_color_option, add_json_option, add_repo_option, look_of
from codeloupe.cli.output import output_file, set_up_logging, write_result
from codeloupe.cli.parser import Parser, sentence
from codeloupe.engine.history import (
    LAST,
    SHORT_ID,
    Here,
    changed_policy,
    find_entry,
    find_review,
    judged,
    judged_sweep,
    opened_history,
    review_of,
)
from codeloupe.engine.lifecycle import compare_reviews
from codeloupe.errors import UsageError
from codeloupe.git.identity import find_identity_now
from codeloupe.model.finding import Severity
from codeloupe.model.history import (
    Dismissal,
    EntryKind,
    HistoryQuery,
    Listing,
    PruneRule,
    Removed,
    RepositoryIdentity,
    ReviewRecord,
    SweepRecord,
    TrendKey,
    Trends,
)
from codeloupe.model.review import Policy
from codeloupe.model.sweep import CommitSweep
from codeloupe.reports import FORMATS, SWEEP_FORMATS, Layout, render, render_sweep
from codeloupe.reports.history import (
    comparison_json,
    list_json,
    moment,
    removed_json,
    render_comparison,
    render_list,
    render_outline,
    render_trends,
    trends_json,
)
from codeloupe.reports.wording import counted
from codeloupe.store.history import SqliteHistory
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import terminal, without_log_commands


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for and return the exit code. Raises UsageError and StoreError."""
    set_up_logging(verbose=False)
    with opened_history() as history:
        return _ACTIONS[arguments.action](history, arguments)


_FIRST_STEP = "`codeloupe review` makes the first entry"


def here(history: SqliteHistory, arguments: argparse.Namespace) -> Here:
    """The repository of `--repo`, found out when it is asked for the first time: that takes git."""

    @cache
    def found() -> RepositoryIdentity:
        return find_identity_now(arguments.repo, history)

    return found


def identity_of(history: SqliteHistory, arguments: argparse.Namespace) -> RepositoryIdentity | None:
    """The repository of `--repo`, or None for all of them."""
    return None if arguments.all_repositories else here(history, arguments)()


def at_least(number: int, least: int, option: str) -> int:
    """The number. Raises UsageError when it is less."""
    if number < least:
        raise UsageError(f"{option} is {number}, and must be at least {least}", hint="see codeloupe history --help")
    return number


def tell_problems(record: ReviewRecord | SweepRecord) -> None:
    """Say on stderr what of a record cannot be read."""
    for problem in record.problems:
        print(f"codeloupe: {terminal(problem)}", file=sys.stderr)


def nothing_yet(identity: RepositoryIdentity | None, branch: str | None = None) -> str:
    """What to say of a history without entries, and how to make the first."""
    where = "" if identity is None else f" of {terminal(identity.label) or 'this directory'}"
    on = "" if branch is None else f" on branch {terminal(branch)}"
    return f"No review{where}{on} is saved yet; {_FIRST_STEP}.\n"


def laid_out(look: Look) -> dict[str, Any]:
    """How to lay out, as the reports take it."""
    return {"width": look.width, "color": look.color, "ascii_only": look.ascii_only}


def _compare(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Show what became of the findings."""
    place = here(history, arguments)
    earlier = find_review(history, arguments.earlier, here=place)
    later = find_review(history, arguments.later, here=place)
    if earlier.review.review_id == later.review.review_id:
        print("codeloupe: both are the same review; `codeloupe history list` shows earlier ones", file=sys.stderr)
    comparison = compare_reviews(history, earlier, later)
    if arguments.json:
        write_result(comparison_json(comparison, earlier, later))
    else:
        write_result(render_comparison(comparison, earlier, later, **laid_out(look_of(arguments.color))))
    return 0


_SHORTEST_PREFIX = 6
_LONGEST_REASON = 1_000
_MOST_LISTED = 8
_FINGERPRINT = re.compile(r"[0-9a-f]{1,64}")
_WHERE = "`codeloupe history show -v` has the fingerprint of each finding"


def _dismiss(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Dismiss, take back, or list. Raises UsageError for a finding that nobody saw, and without a reason."""
    identity = here(history, arguments)()
    if arguments.fingerprint is None and (arguments.undo or arguments.reason is not None):
        raise UsageError("no finding was named", hint=_WHERE)
    if arguments.fingerprint is None:
        write_result(_listed(history, identity))
    elif arguments.undo:
        write_result(_taken_back(history, identity, arguments.fingerprint))
    else:
        write_result(_dismissed(history, identity, arguments.fingerprint, arguments.reason))
    return 0


def _dismissed(history: SqliteHistory, identity: RepositoryIdentity, word: str, reason: str | None) -> str:
    why = " ".join((reason or "").split())
    if not why or len(why) > _LONGEST_REASON:
        what = "a reason is required" if not why else f"the reason is longer than {_LONGEST_REASON:,}"
        raise UsageError(what, hint='add --reason "what makes it no defect"')
    prefix = _prefix(word)
    found = history.fingerprints(prefix, repositories=identity.names, limit=_MOST_LISTED + 1)
    if not found:
        raise UsageError(f"no saved finding of {identity.label or 'this directory'} is {word!r}", hint=_WHERE)
    fingerprint = _only(word, found)
    # Kept for good and shown to others, so no secret may get into it by mistake.
    dismissal = Dismissal(
        fingerprint=fingerprint,
        repository=identity.names[0],
        reason=redact(why),
        who=_who(),
        at=datetime.now(UTC),
        finding=history.finding(fingerprint, repositories=identity.names),
    )
    history.dismiss(dismissal)
    where = history.findings_of([fingerprint], repositories=identity.names)[-1]
    place = terminal(f"{fingerprint[:SHORT_ID]} in {where.file}")
    undo = f"`codeloupe history dismiss {fingerprint[:SHORT_ID]} --undo` takes it back"
    return f"Dismissed {place}: the next review does not count it.\n{undo}.\n"


def _taken_back(history: SqliteHistory, identity: RepositoryIdentity, word: str) -> str:
    prefix = _prefix(word)
    found = [one.fingerprint for one in history.dismissals(identity.names) if one.fingerprint.startswith(prefix)]
    if not found:
        raise UsageError(f"{word!r} is not dismissed", hint="`codeloupe history dismiss` lists what is")
    fingerprint = _only(word, found)
    history.take_back(fingerprint, repositories=identity.names)
    return f"Taken back: {fingerprint[:SHORT_ID]} counts again in the next review.\n"


def _listed(history: SqliteHistory, identity: RepositoryIdentity) -> str:
    rows = [
        terminal(f"{one.fingerprint[:SHORT_ID]}  {moment(one.at)}  {one.who or 'somebody'}: {one.reason}")
        for one in history.dismissals(identity.names)
    ]
    return "".join(f"{row}\n" for row in rows) or f"Nothing is dismissed in {terminal(identity.label)}.\n"


def _prefix(word: str) -> str:
    prefix = word.strip().lower()
    if not _FINGERPRINT.fullmatch(prefix) or len(prefix) < _SHORTEST_PREFIX:
        what = f"{word!r} is not a fingerprint: it needs at least {_SHORTEST_PREFIX} digits and letters a to f"
        raise UsageError(what, hint=_WHERE)
    return prefix


def _only(word: str, found: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(found))
    if len(distinct) > 1:
        raise UsageError(f"{word!r} matches several: {', '.join(distinct)}", hint="give more digits")
    return distinct[0]


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user that the system does not know
        return ""


def _list(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Show the list; a history without entries is no error."""
    limit = at_least(arguments.limit, 1, "--limit")
    identity = identity_of(history, arguments)
    names = None if identity is None else identity.names
    # One more than is shown tells whether there are more.
    found = history.list(HistoryQuery(repositories=names, branch=arguments.branch, limit=limit + 1))
    shown = Listing(found.entries[:limit], found.problems)
    if arguments.json:
        write_result(list_json(shown))
    elif not shown.entries and not shown.problems:
        write_result(nothing_yet(identity, arguments.branch))
    else:
        write_result(render_list(shown, **laid_out(look_of(arguments.color)), with_repository=identity is None))
        if len(found.entries) > limit:
            print(f"codeloupe: there are older ones; --limit {limit * 2} shows more", file=sys.stderr)
    return 0


_ID = "an id, the beginning of one (4 characters or more), or `last`"


def configure(parser: Parser) -> None:
    """Add the verbs below `history` to its parser."""
    parser.description = "Show, compare and re-judge saved reviews; see trends."
    verbs = parser.add_commands(dest="action")
    for name, (add_options, about) in _VERBS.items():
        add_options(verbs.add_parser(name, help=about, description=sentence(about)))


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (default: 20)")
    parser.add_argument("--branch", metavar="NAME", help="only reviews made on this branch")
    _add_where(parser)
    add_json_option(parser)
    add_color_option(parser)


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", default="last", help=f"{_ID} (default: last)")
    parser.add_argument("--raw", action="store_true", help="what the agents printed, unit by unit")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every skipped file and fingerprint")
    add_repo_option(parser)
    add_color_option(parser)


def _add_render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help=_ID)
    # The formats are known to the verb alone: to ask for them here would load what renders them.
    parser.add_argument(
        "--format",
        default="text",
        metavar="FORMAT",
        help="text, json, sarif, markdown, html and others; a wrong one names them all",
    )
    parser.add_argument("--fail-on", metavar="SEVERITY", help="exit 1 from this severity on (default: as reviewed)")
    parser.add_argument("--min-severity", metavar="SEVERITY", help="show from this severity on (default: as reviewed)")
    parser.add_argument(
        "--on-incomplete",
        metavar="fail|pass",
        choices=["fail", "pass"],
        help="exit 3 or 0 if something was not reviewed (default: as reviewed)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the result to a file")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every skipped file and fingerprint")
    add_repo_option(parser)
    add_color_option(parser)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("earlier", metavar="A", help=f"the earlier review: {_ID}")
    parser.add_argument("later", metavar="B", nargs="?", default="last", help="the later one (default: last)")
    add_repo_option(parser)
    add_json_option(parser)
    add_color_option(parser)


def _add_trends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        metavar="WHAT",
        choices=["week", "expert", "reviewer"],
        action="append",
        help="week, expert or reviewer (default: all three)",
    )
    parser.add_argument("--weeks", metavar="N", type=int, default=12, help="the last N weeks (default: 12)")
    _add_where(parser)
    add_json_option(parser)
    add_color_option(parser)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", metavar="AGE", help="what is older than this: 90d, 12w, 6m, 1y")
    parser.add_argument("--keep", metavar="N", type=int, help="never the newest N; alone: all but the newest N")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _add_where(parser)
    add_json_option(parser)


def _add_dismiss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "fingerprint", metavar="FINGERPRINT", nargs="?", help="the finding's, or its beginning (default: list them)"
    )
    parser.add_argument("--reason", metavar="TEXT", help="why it is no defect; must be given")
    parser.add_argument("--undo", action="store_true", help="let it count again")
    add_repo_option(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    add_repo_option(parser)
    parser.add_argument("--all-repositories", action="store_true", help="of every repository, not of this one alone")


_VERBS = {
    "list": (_add_list, "what is saved, the newest first"),
    "show": (_add_show, "one saved review, or the commits of a sweep"),
    "render": (_add_render, "a saved review in any format, judged by another policy if asked"),
    "compare": (_add_compare, "what is new, still open, fixed or back between two reviews"),
    "trends": (_add_trends, "findings, share fixed, cost and time, as a table and a plot"),
    "dismiss": (_add_dismiss, "dismiss a finding so that it no longer counts, or list dismissed ones"),
    "prune": (_add_prune, "remove old entries"),
}


_AGE = re.compile(r"([0-9]{1,5}) {0,3}([dwmy]?)", re.IGNORECASE)
_DAYS = {"": 1, "d": 1, "w": 7, "m": 30, "y": 365}


def _prune(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Remove what the options name."""
    if arguments.older_than is None and arguments.keep is None:
        raise UsageError("nothing says what to remove", hint="give --older-than 90d, --keep 100, or both")
    older_than = None if arguments.older_than is None else _before(arguments.older_than, datetime.now(UTC))
    keep_last = None if arguments.keep is None else at_least(arguments.keep, 0, "--keep")
    identity = identity_of(history, arguments)
    rule = PruneRule(
        older_than=older_than,
        keep_last=keep_last,
        repositories=None if identity is None else identity.names,
    )
    before = history.file_bytes()
    removed = history.prune(rule, dry_run=arguments.dry_run)
    freed = max(before - history.file_bytes(), 0)
    if arguments.json:
        write_result(removed_json(removed, dry_run=arguments.dry_run, freed_bytes=freed))
    else:
        write_result(_in_words(removed, dry_run=arguments.dry_run, freed_bytes=freed))
    return 0


def _before(word: str, now: datetime) -> datetime:
    found = _AGE.fullmatch(word.strip())
    try:
        if found is not None:
            return now - timedelta(days=int(found[1]) * _DAYS[found[2].lower()])
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
    raise UsageError(f"--older-than: {word!r} is no age", hint="give days, weeks, months or years: 90d, 12w, 6m, 1y")


def _in_words(removed: Removed, *, dry_run: bool, freed_bytes: int) -> str:
    if not removed.reviews and not removed.sweeps:
        return "Nothing to remove.\n"
    what = counted(removed.reviews, "review", "reviews")
    sweeps = f" ({counted(removed.sweeps, 'sweep', 'sweeps')} among them)" if removed.sweeps else ""
    findings = counted(removed.findings, "finding", "findings")
    if dry_run:
        return f"Would remove {what}{sweeps} with {findings}, about {_size(removed.size_bytes)}. Nothing was changed.\n"
    return f"Removed {what}{sweeps} with {findings}; the database is {_size(freed_bytes)} smaller.\n"


def _size(size_bytes: int) -> str:
    if size_bytes < 1000:
        return counted(size_bytes, "byte", "bytes")
    return f"{size_bytes / 1000:,.0f} kB" if size_bytes < 1_000_000 else f"{size_bytes / 1_000_000:,.1f} MB"


def _render(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Render the review, or the sweep, where it belongs; the exit code is that of the policy it is judged by."""
    entry = None if arguments.id == LAST else find_entry(history, arguments.id, here=here(history, arguments))
    if entry is not None and entry.kind is EntryKind.SWEEP:
        return _render_sweep(history, entry.entry_id, arguments)
    if arguments.format not in FORMATS:
        raise UsageError(f"{arguments.format!r} is not a format", hint=f"the formats are {', '.join(FORMATS)}")
    record = find_review(history, arguments.id, here=here(history, arguments))
    review = judged(record, _policy(record, arguments))
    tell_problems(record)
    look = look_of(arguments.color, to_file=arguments.output is not None)
    layout = Layout(width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose)
    _write(lambda: render(review, arguments.format, layout), arguments)
    if not review.complete and review.passed:
        print("codeloupe: not everything was reviewed; on_incomplete lets it pass", file=sys.stderr)
    return review.exit_code


def _render_sweep(history: SqliteHistory, sweep_id: str, arguments: argparse.Namespace) -> int:
    if arguments.format not in SWEEP_FORMATS:
        raise UsageError(
            f"{sweep_id[:SHORT_ID]} is a sweep, and {arguments.format!r} is not a format for one",
            hint=f"the formats are {', '.join(SWEEP_FORMATS)}; a review of one of its commits has all others",
        )
    fail_on = _severity(arguments.fail_on, "--fail-on")
    if fail_on not in (None, Severity.HIGH) or arguments.min_severity is not None:
        raise UsageError(
            f"{sweep_id[:SHORT_ID]} is a sweep, which is judged by --fail-on high, or not at all",
            hint="name the review of one of its commits: `codeloupe history show` has them",
        )
    record = history.get_sweep(sweep_id)
    if record is None:
        raise UsageError(f"the sweep {sweep_id} was removed just now", hint="`codeloupe history list` shows the others")
    tell_problems(record)
    passes = None if arguments.on_incomplete is None else arguments.on_incomplete == "pass"
    sweep = judged_sweep(record, strict=fail_on is not None, pass_when_incomplete=passes)
    _write(lambda: _sweep_text(sweep, arguments), arguments)
    return sweep.exit_code


def _sweep_text(sweep: CommitSweep, arguments: argparse.Namespace) -> str:
    look = look_of(arguments.color, to_file=arguments.output is not None)
    layout = Layout(width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose)
    return render_sweep(sweep, arguments.format, layout)


def _write(render: Callable[[], str], arguments: argparse.Namespace) -> None:
    """To the file that is named, which is opened first, or to standard output."""
    with ExitStack() as opened:
        pieces = opened.enter_context(output_file(arguments.output)) if arguments.output else []
        text = render()
        pieces.append(text)
    if arguments.output is None:
        write_result(text, holds_commands=arguments.format == "github")
    else:
        print(f"wrote {arguments.output}", file=sys.stderr)


def _policy(record: ReviewRecord, arguments: argparse.Namespace) -> Policy:
    return changed_policy(
        record.review.policy,
        fail_on=_severity(arguments.fail_on, "--fail-on"),
        min_severity=_severity(arguments.min_severity, "--min-severity"),
        pass_when_incomplete=None if arguments.on_incomplete is None else arguments.on_incomplete == "pass",
    )


def _severity(word: str | None, option: str) -> Severity | None:
    if word is None:
        return None
    try:
        return Severity.parse(word)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint="use critical, high, medium, low or P0 to P3") from error


def _show(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Show what the id names; the exit code says nothing about the verdict."""
    entry = find_entry(history, arguments.id, here=here(history, arguments))
    if entry.kind is EntryKind.SWEEP:
        return _show_sweep(history, entry.entry_id, arguments)
    if arguments.raw:
        write_result(_raw(history, entry.entry_id))
        return 0
    record = review_of(history, entry)
    tell_problems(record)
    look = look_of(arguments.color)
    layout = Layout(width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose)
    # By its own policy: what cannot be read of it makes it incomplete.
    write_result(_about(record) + render(judged(record, record.review.policy), "text", layout))
    return 0


def _show_sweep(history: SqliteHistory, sweep_id: str, arguments: argparse.Namespace) -> int:
    if arguments.raw:
        raise UsageError(
            f"{sweep_id[:SHORT_ID]} is a sweep, and raw output belongs to a review", hint="name the review of a commit"
        )
    outline = history.outline(sweep_id)
    if outline is None:
        raise UsageError(
            f"the sweep {sweep_id} was removed just now", hint="`codeloupe history list` shows what is left"
        )
    write_result(render_outline(outline, **laid_out(look_of(arguments.color))))
    return 0


def _about(record: ReviewRecord) -> str:
    parts = [
        f"Review {record.review.review_id}",
        f"saved {moment(record.saved_at)}",
        f"on branch {record.branch}" if record.branch else "",
        f"by codeloupe {record.tool_version}" if record.tool_version else "",
        f"part of sweep {record.sweep_id[:SHORT_ID]}" if record.sweep_id else "",
    ]
    return terminal(", ".join(part for part in parts if part)) + "\n"


def _raw(history: SqliteHistory, review_id: str) -> str:
    outputs = history.raw_outputs(review_id)
    if not outputs:
        return "No raw output was saved with this review.\n"
    sections = (f"=== {terminal(unit)}\n{terminal(text, keep_newlines=True)}\n" for unit, text in outputs.items())
    return without_log_commands("\n".join(sections))


def _trends(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Show the trends; a history without entries is no error."""
    weeks = at_least(arguments.weeks, 1, "--weeks")
    identity = identity_of(history, arguments)
    keys = [TrendKey(word) for word in dict.fromkeys(arguments.by)] if arguments.by else list(TrendKey)
    names = None if identity is None else identity.names
    told = [_last_weeks(trends, weeks) for trends in history.trends(keys, repositories=names)]
    shown = [trends for trends in told if trends.rows]
    if arguments.json:
        write_result(trends_json(told))
    elif shown:
        write_result(render_trends(shown, **laid_out(look_of(arguments.color))))
    else:
        write_result(nothing_yet(identity))
    return 0


def _last_weeks(trends: Trends, weeks: int) -> Trends:
    return trends if trends.by is not TrendKey.WEEK else Trends(trends.by, trends.rows[-weeks:], trends.problems)


_ACTIONS = {
    "list": _list,
    "show": _show,
    "render": _render,
    "compare": _compare,
    "trends": _trends,
    "prune": _prune,
    "dismiss": _dismiss,
}
