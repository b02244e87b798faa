"""Options that several verbs share, and what they mean."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from argparse import BooleanOptionalAction
from pathlib import Path
from typing import Any

from codeloupe.cli.parser import Parser, flag, option
from codeloupe.config.files import repository_root
from codeloupe.config.kinds import either
from codeloupe.config.yaml import escape
from codeloupe.errors import UsageError
from codeloupe.model import scope
from codeloupe.model.agent import REVIEWER_NAMES
from codeloupe.reports import Look

_MAX_DIFF_BYTES = 1024**3
_FLAG: dict[str, Any] = {"action": "store_true"}
_REVIEWERS = f"{either(('auto', *REVIEWER_NAMES))}; or several: A,B"
# What the help calls the value of an option, what it is for, and how argparse takes it.
_SHARED: dict[str, tuple[str | None, str, dict[str, Any]]] = {
    "--repo": ("DIR", "work in this directory (default: here)", {"type": Path, "default": Path()}),
    "--json": (None, "print JSON", _FLAG),
    "--color": ("WHEN", "auto, always or never", {"choices": ["auto", "always", "never"], "default": "auto"}),
    "--reviewer": ("NAME", _REVIEWERS, {"action": "append"}),
    "--model": (None, "the model to use", {}),
    "--effort": ("low|medium|high", "higher effort finds more and costs more", {"choices": ["low", "medium", "high"]}),
    "--verify": (None, "verify critical and high findings before they count", {"action": BooleanOptionalAction}),
    "--concurrency": ("N", "calls at a time (default: 5)", {"type": int}),
    "--max-budget-usd": ("USD", "stop before the cost exceeds this", {"type": float}),
    "--max-tokens": ("N", "stop before using more tokens", {"type": int}),
    "--max-requests": ("N", "stop before making more calls", {"type": int}),
    "--wait-for-quota": (None, "wait for a quota to reset, within --timeout", _FLAG),
    "--fresh": (None, "ignore stored answers and ask again", _FLAG),
    "--on-workers": (None, "run it on workers, and follow it from here", _FLAG),
    "--on-incomplete": ("fail|pass", "exit 3 or 0 if something was not reviewed", {"choices": ["fail", "pass"]}),
}
# The ways to name a stored review, for help texts.
AN_ID = "an id or its first characters, `last`, or `last~1`"
ASKING = ("--reviewer", "--model", "--effort")
SPENDING = ("--concurrency", "--max-budget-usd", "--max-tokens", "--max-requests", "--wait-for-quota")


def add(to: argparse._ActionsContainer, *names: str) -> None:
    """Add options that several verbs have."""
    for name in names:
        value, about, more = _SHARED[name]
        option(to, name, value, about, **more)


def add_loudness(to: argparse._ActionsContainer, quiet: str, verbose: str = "log to stderr", debug: str = "") -> None:
    """`-v`, `-q` and perhaps `--debug`, with what they mean here."""
    loudness = to.add_mutually_exclusive_group()
    flag(loudness, "-v --verbose", verbose)
    if debug:
        flag(loudness, "--debug", debug)
    flag(loudness, "-q --quiet", quiet)


def repository_root_of(directory: Path) -> Path:
    """The root of the repository at `--repo`. Raises UsageError when there is no such directory."""
    if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises for a name that no file can have
        raise UsageError(f"{escape(str(directory))}: no such directory", hint="give an existing directory to --repo")
    return repository_root(directory)


def add_scope(parser: Parser) -> None:
    """What to review; at most one of them, and the paths of files or folders beside it."""
    parser.takes_paths = True
    group = parser.add_argument_group("what to review (default: this branch and its working tree against its base)")
    words = "A..B: B compared with A; A...B: changes on B since it branched off from A; or only these files and folders"
    option(group, "words", "A..B|PATH", words, nargs="*")
    flag(group, "--uncommitted", "uncommitted changes, including untracked files")
    flag(group, "--staged", "staged changes: what the next commit contains")
    option(group, "--base", "REF", "changes since branching from REF (--pr: its target)")
    option(group, "--commit", "SHA", "one commit against its first parent")
    option(group, "--pr", "N|URL", "a pull request (or OWNER/NAME#N), never trusted")
    option(group, "--diff-file", "FILE", "a diff made elsewhere; - is standard input")
    option(group, "--include", "GLOB", "only files that match (may be repeated)", action="append")
    option(group, "--exclude", "GLOB", "skip files that match (may be repeated)", action="append")


def scope_of(arguments: argparse.Namespace) -> scope.ScopeRequest:
    """Return the scope that the options name; put words that name files in `arguments.guessed`. Raise UsageError."""
    if "-" in arguments.words:
        raise UsageError("'-' is not a path", hint="--diff-file - reads a diff from standard input")
    # Two dots that are no step to the folder above, and no file has that name.
    dots = re.compile(r"(?<![/.])\.\.|\.\.(?![/.]|$)")
    ranges = [word for word in arguments.words if dots.search(word) and not os.path.lexists(arguments.repo / word)]
    if len(ranges) > 1:
        raise UsageError(f"{ranges[0]} and {ranges[1]} are two ranges", hint="give one of them")
    arguments.guessed = [word for word in arguments.words if word not in ranges]
    base, request, commit, diff = arguments.base, arguments.pr, arguments.commit, arguments.diff_file
    scopes: dict[str, scope.ScopeRequest | None] = {
        "A..B": scope.RangeScope(ranges[0], getattr(arguments, "pushed_commits", ())) if ranges else None,
        "--uncommitted": scope.UncommittedScope() if arguments.uncommitted else None,
        "--staged": scope.StagedScope() if arguments.staged else None,
        "--pr": None if request is None else scope.PullRequestScope(request, base),
        "--base": None if base is None or request is not None else scope.BaseScope(base),
        "--commit": None if commit is None else scope.CommitScope(commit),
        "--diff-file": None if diff is None else scope.DiffScope(diff, b""),
    }
    asked = {name: found for name, found in scopes.items() if found is not None}
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} exclude each other", hint="give one of them")
    if diff is None:
        return next(iter(asked.values()), scope.DefaultScope())
    shown = "from standard input" if diff == "-" else diff
    return scope.DiffScope(shown, _read(diff, f"the diff {shown}", _MAX_DIFF_BYTES))


def _read(name: Path | str, what: str, most: int) -> bytes:
    """What is in a file, or in standard input for `-`. Raises UsageError."""
    try:
        # One byte more than may be, so that a larger file is not taken for a shorter one.
        if name == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(name).open("rb") as stream:
                data = stream.read(most + 1)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UsageError(f"cannot read {what}: {reason}", hint="give a file that can be read, or -") from error
    if len(data) > most:
        raise UsageError(f"{what} is larger than {most:,} bytes", hint="give less at once")
    return data


def read_text(name: Path | str, what: str, most: int) -> str:
    """The text of a file, or of standard input for `-`. Raises UsageError."""
    try:
        return _read(name, what, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8 text (byte {error.start})", hint="convert it to UTF-8") from error


def look_of(color: str, *, to_file: bool = False) -> Look:
    """How to show text on stdout, or in a file; NO_COLOR and FORCE_COLOR count where nothing was chosen."""
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    wanted = terminal if os.environ.get("FORCE_COLOR") in (None, "", "0") else True
    colored = color == "always" if color != "auto" else wanted and not os.environ.get("NO_COLOR")
    return Look(width=output_width(), color=not to_file and colored, ascii_only=not to_file and is_ascii_only())


def output_width() -> int:
    """The terminal's width, or COLUMNS, or 100 where nobody knows."""
    return shutil.get_terminal_size((100, 24)).columns or 100


def wrapped(text: str, first: str, *, hang: int | None = None) -> list[str]:
    """The text after its first words, and below them where it is too long for a line. Long words stay whole."""
    import textwrap

    below = " " * (len(first) if hang is None else hang)
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    width = max(output_width(), len(below) + 20)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=below, **whole)


def is_ascii_only() -> bool:
    """Whether stdout's encoding cannot show what we draw with."""
    try:
        "✔─│…".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False
