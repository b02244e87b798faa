"""`codeloupe store`: show where ledger, history and runs are, and copy them from one database to another."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from codeloupe.cli.parser import Parser, add_command, add_examples, flag, option
from codeloupe.cli.progress import Display, choose_mode
from codeloupe.cli.verbs import note, set_up_logging, size_of, write_result
from codeloupe.config.loading import database_url
from codeloupe.errors import UsageError
from codeloupe.reports.wording import counted
from codeloupe.store import is_postgres, open_database, open_run_store
from codeloupe.store.interface import Database, RunStore
from codeloupe.store.migration import Migrated, counts_of, migrate
from codeloupe.store.runs import RUNS_DIRECTORY
from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase, state_directory
from codeloupe.system.untrusted import terminal

_PLACE = "FILE_OR_URL"
_NOT_VERIFIED = 3
_MOST_NAMED = 10
_EPILOG = """\
Entries that the target already has are not changed, unless --replace is given. After an interruption, run the same
command again to continue. Claims on running calls are not copied.

Pipeline runs are stored in the folder `pipelines` next to a SQLite file, or in the database of a server. A run that a
process is working on is not copied; copy again when it has stopped. On a server, any machine can continue a run, if the
files of the pipeline are in place and unchanged when it is copied. A run with `workspace: checkout` continues only on
this machine.
"""
_TO_SERVER = "codeloupe store migrate --to postgresql://ada@db.example/reviews --dry-run"
_EXAMPLES = {
    "": ("codeloupe store show", _TO_SERVER),
    "show": ("codeloupe store show",),
    "migrate": (_TO_SERVER,),
}


def configure(parser: Parser) -> None:
    """Add the verbs below `store` to its parser."""
    parser.description = "Show where data is stored, or copy it to another database."
    verbs = parser.add_commands(dest="action")
    show = add_command(verbs, "show", "show where data is stored, and how much", _show)
    option(show, "place", _PLACE, "a database (default: the one in use)", nargs="?")
    about = "copy ledger, history and pipeline runs, and compare both sides"
    copy = add_command(verbs, "migrate", about, _migrate)
    copy.epilog = _EPILOG
    option(copy, "--from", _PLACE, "the source (default: the SQLite file)", dest="source")
    option(copy, "--to", _PLACE, "the target (default: the database of the settings)", dest="target")
    flag(copy, "--replace", "replace entries of the target that differ")
    flag(copy, "--dry-run", "show what would be copied, and change nothing")
    flag(copy, "-q --quiet", "print only the result")
    add_examples(parser, _EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for and return the exit code. Raises UsageError and StoreError."""
    set_up_logging()
    return int(arguments.act(arguments))


def _show(arguments: argparse.Namespace) -> int:
    word = arguments.place or database_url(os.environ) or str(state_directory(os.environ))
    with _opened(word, must_be_there=arguments.place is not None) as database:
        rows = [("place", terminal(database.name))]
        if database.is_made():
            rows += [("schema", str(database.schema())), ("size", size_of(database.size_bytes()))]
            rows += [(table, f"{number:,}") for table, number in counts_of(database).items()]
        else:
            rows.append(("size", "nothing is stored yet"))
        if database.is_made() or not database.is_shared:
            rows.append(("runs", f"{len(_runs_of(database).matching('')):,}"))
    write_result("".join(f"{name:<13}  {value}\n" for name, value in rows))
    return 0


def _opened(word: str, *, must_be_there: bool) -> Database:
    """Return the database at a path or URL. Raise UsageError if there is none."""
    if is_postgres(word):
        database = open_database(word, Path())
        if must_be_there and not database.is_made():
            hint = "check the URL; `codeloupe store show` without a URL shows the configured database"
            raise UsageError(f"{terminal(database.name)}: this database contains no data of codeloupe", hint=hint)
        return database
    if "://" in word:
        # What was given is not shown: it may hold a password.
        hint = "give the path of a file, or postgresql://USER@HOST/NAME"
        raise UsageError("this URL is not supported: a database is a file or a Postgres server", hint=hint)
    path = Path(word)
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that no file can have
        path /= DATABASE_NAME
    # SQLite would make a new database of what is missing or empty. Runs may be there without one.
    has_runs = path.name == DATABASE_NAME and os.path.isdir(path.parent / RUNS_DIRECTORY)  # noqa: PTH112 - as above
    if must_be_there and not has_runs and (not os.path.isfile(path) or not path.stat().st_size):  # noqa: PTH113 - as above
        hint = f"give the path of a {DATABASE_NAME}, or postgresql://USER@HOST/NAME"
        raise UsageError(f"{terminal(str(path))}: no such database", hint=hint)
    return SqliteDatabase(path)


def _migrate(arguments: argparse.Namespace) -> int:
    words = arguments.source or str(state_directory(os.environ)), arguments.target or database_url(os.environ)
    if words[1] is None:
        raise UsageError("no target to copy to", hint="give --to, or set `database` or CODELOUPE_DATABASE")
    mode = choose_mode(quiet=arguments.quiet)
    with (
        _opened(words[0], must_be_there=True) as source,
        _opened(words[1], must_be_there=False) as target,
        _Counter(mode=mode) as display,
    ):
        _refuse_one_place(source, target)
        try:
            how = {"replace": arguments.replace, "dry_run": arguments.dry_run}
            done = Migrated({}, {}, {})
            if source.is_made():
                done = migrate(source, target, tell=display.count, **how)
        except KeyboardInterrupt:
            kept = "copied entries are kept; run the same command again to continue"
            raise KeyboardInterrupt(kept) from None
        places = f"from  {terminal(source.name)}\nto    {terminal(target.name)}\n"
    write_result(f"{places}{_as_text(done, dry_run=arguments.dry_run)}")
    if arguments.dry_run or done.is_verified:
        return 0
    _note_differences(done)
    return _NOT_VERIFIED


def _runs_of(database: Database) -> RunStore:
    """The runs that belong to a database: beside a file, or on a server, with copies of their files on this machine."""
    beside = database.path.parent if isinstance(database, SqliteDatabase) else state_directory(os.environ)
    return open_run_store(database, beside)


def _refuse_one_place(source: Database, target: Database) -> None:
    if isinstance(source, SqliteDatabase) and isinstance(target, SqliteDatabase):
        is_same = os.path.exists(target.path) and os.path.samefile(source.path, target.path)  # noqa: PTH110, PTH121 - as above
    else:
        is_same = source.name == target.name
    if is_same:
        raise UsageError(f"{terminal(source.name)} is both source and target", hint="give two different databases")


class _Counter(Display):
    """How many entries, and then how many runs, are copied and compared."""

    _now = ""
    _told = ("", "", -1)

    def status(self) -> str:
        """The last count."""
        return self._now

    def count(self, what: str, done: int, total: int, noun: tuple[str, str] = ("entry", "entries")) -> None:
        """Show that so many are done; on a plain stream at every tenth part."""
        self._now = f"{done:,} of {counted(total, *noun)} {what}"
        tenth = noun[0], what, 10 * done // max(total, 1)
        if tenth != self._told:
            self._told = tenth
            self.tell(self._now)


def _as_text(done: Migrated, *, dry_run: bool) -> str:
    lines = [f"{'Would copy' if dry_run else 'Copied'}: {_listed(done.copied)}."]
    if any(done.replaced.values()):
        lines.append(f"{'Would replace' if dry_run else 'Replaced'}: {_listed(done.replaced)}.")
    if any(done.there.values()):
        lines.append(f"Already in the target: {_listed(done.there)}.")
    lines += (terminal(f"{said}.") for said in (*(f"Not copied: {why}" for why in done.left), *done.remarks))
    if dry_run:
        return "\n".join((*lines, "Nothing was changed.\n"))
    lines += ["", f"{'table':<13}  {'rows':>9}  SHA-256 of all rows"]
    for check in done.checks:
        sides = [
            (check.source_rows, check.source_digest, ""),
            (check.target_rows, check.target_digest, "  in the target"),
        ]
        for rows, digest, where in sides[:1] if check.is_equal else sides:
            lines.append(f"{check.table:<13}  {rows:>9,}  {digest}{where}")
    if done.is_verified:
        lines += ["", "Verified: the target has identical copies of all of this."]
    return "\n".join(lines) + "\n"


def _listed(counts: Mapping[str, int]) -> str:
    found = [counted(number, table.rstrip("s")) for table, number in counts.items() if number]
    return ", ".join(found).replace("result", "finished call") or "nothing"


def _note_differences(done: Migrated) -> None:
    if done.left:
        note(f"not verified: {counted(len(done.left), 'run was', 'runs were')} not copied")
    if not done.different:
        return
    names = ", ".join(done.different[:_MOST_NAMED])
    more = f" and {len(done.different) - _MOST_NAMED:,} more" if len(done.different) > _MOST_NAMED else ""
    what = counted(len(done.different), "entry is", "entries are")
    note(f"not verified: {what} different in the target: {names}{more}")
    note("replace them with --replace; entries that changed during the copy differ, too")
