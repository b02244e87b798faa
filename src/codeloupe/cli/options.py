"""Options that several verbs share, and what they mean for the app."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codeloupe.cli.parser import Parser
from codeloupe.errors import UsageError
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    DiffScope,
    PullRequestScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)

_PLAIN_WIDTH = 100
_NARROWEST = 20
_MAX_DIFF_BYTES = 1024**3


def add_repo_option(parser: argparse.ArgumentParser) -> None:
    """`--repo DIR`."""
    parser.add_argument(
        "--repo", metavar="DIR", type=Path, default=Path(), help="work in this directory (default: here)"
    )


def add_json_option(parser: argparse.ArgumentParser, about: str = "for programs") -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help=about)


def add_color_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """`--color WHEN`."""
    parser.add_argument(
        "--color", metavar="WHEN", choices=["auto", "always", "never"], default="auto", help="auto, always or never"
    )


def add_scope_options(parser: Parser) -> None:
    """What to review; at most one of them, and the paths of files or folders beside it."""
    parser.takes_paths = True
    group = parser.add_argument_group("what to review (default: this branch and its working tree against its base)")
    group.add_argument(
        "words",
        nargs="*",
        metavar="A..B|PATH",
        help="compare A to B; A...B: changes on B since the merge base; or review only these files",
    )
    group.add_argument("--uncommitted", action="store_true", help="uncommitted changes, including untracked files")
    group.add_argument("--staged", action="store_true", help="staged changes: what the next commit would contain")
    group.add_argument(
        "--base", metavar="REF", help="compare with the merge base with REF; with --pr: its target branch"
    )
    group.add_argument("--commit", metavar="SHA", help="one commit against its first parent")
    group.add_argument("--pr", metavar="N|URL", help="a pull request, or OWNER/NAME#N: fetched, never trusted")
    group.add_argument("--diff-file", metavar="FILE", help="a diff made elsewhere; - is standard input")
    group.add_argument("--include", metavar="GLOB", action="append", help="only files that match (may be repeated)")
    group.add_argument("--exclude", metavar="GLOB", action="append", help="skip files that match (may be repeated)")


def scope_of(arguments: argparse.Namespace) -> ScopeRequest:
    """The scope the options name; words that are no range, and so name files, are left in `arguments.paths`.

    Raises UsageError for two scopes at once or a diff that cannot be read.
    """
    asked: dict[str, ScopeRequest] = {}
    ranges = [word for word in arguments.words if _is_range(word, arguments.repo)]
    if len(ranges) > 1:
        raise UsageError(f"{ranges[0]} and {ranges[1]} are two ranges", hint="give one of them")
    if ranges:
        asked["A..B"] = RangeScope(ranges[0], getattr(arguments, "pushed_commits", ()))
    arguments.guessed = [word for word in arguments.words if word not in ranges]
    if arguments.uncommitted:
        asked["--uncommitted"] = UncommittedScope()
    if arguments.staged:
        asked["--staged"] = StagedScope()
    if arguments.pr is not None:
        asked["--pr"] = PullRequestScope(arguments.pr, arguments.base)
    elif arguments.base is not None:
        asked["--base"] = BaseScope(arguments.base)
    if arguments.commit is not None:
        asked["--commit"] = CommitScope(arguments.commit)
    if arguments.diff_file is not None:
        asked["--diff-file"] = _read_diff(arguments.diff_file)
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} exclude each other", hint="give one of them")
    return next(iter(asked.values()), DefaultScope())


def _is_range(word: str, repo: Path) -> bool:
    """Whether a word has two dots that are no step to the folder above, and no file has that name."""
    return re.search(r"(?<![/.])\.\.|\.\.(?![/.]|$)", word) is not None and not os.path.lexists(repo / word)


def _read_diff(name: str) -> DiffScope:
    shown = "from standard input" if name == "-" else name
    try:
        data = _read_bytes(name)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UsageError(
            f"cannot read the diff {shown}: {reason}", hint="give --diff-file a readable file, or -"
        ) from error
    if len(data) > _MAX_DIFF_BYTES:
        raise UsageError(
            f"the diff {shown} is larger than {_MAX_DIFF_BYTES:,} bytes",
            hint="make smaller diffs, such as one for each folder",
        )
    return DiffScope(shown, data)


def _read_bytes(name: str) -> bytes:
    """One byte more than may be, so that a larger diff is not taken for a shorter one."""
    if name == "-":
        return sys.stdin.buffer.read(_MAX_DIFF_BYTES + 1)
    with Path(name).open("rb") as stream:
        return stream.read(_MAX_DIFF_BYTES + 1)


class Look(Struct, frozen=True):
    """How text is shown."""

    width: int
    color: bool
    ascii_only: bool


def look_of(color: str, *, to_file: bool = False) -> Look:
    """How to show text on stdout, or in a file, where there is neither colour nor a poor encoding."""
    if to_file:
        return Look(output_width(), color=False, ascii_only=False)
    return Look(output_width(), color=wants_color(color), ascii_only=is_ascii_only())


def output_width() -> int:
    """The terminal's width, or COLUMNS, or 100 where nobody knows."""
    return shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns or _PLAIN_WIDTH


def wrapped(text: str, first: str, *, hang: int | None = None) -> list[str]:
    """The text behind its first words, and below them where it is too long for a line. Long words stay whole."""
    import textwrap

    below = " " * (len(first) if hang is None else hang)
    return textwrap.wrap(
        text,
        max(output_width(), len(below) + _NARROWEST),
        initial_indent=first,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )


def wants_color(choice: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour stdout: as asked, else by NO_COLOR, FORCE_COLOR and whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR") not in (None, "", "0"):
        return True
    return sys.stdout.isatty() and environment.get("TERM") != "dumb"


def is_ascii_only() -> bool:
    """Whether stdout's encoding cannot show what we draw with."""
    try:
        "✔─│…".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False
