"""`codeloupe hook`: what git's hooks and pre-commit start. Reviews exactly what is committed or pushed."""

from __future__ import annotations

import argparse
import os
import sys

from codeloupe.cli.main import build_parser
from codeloupe.cli.parser import Parser, option
from codeloupe.cli.review import run as review
from codeloupe.cli.verbs import note, run_to_end
from codeloupe.engine.prepare import new_in_push
from codeloupe.errors import UsageError
from codeloupe.model.scope import DefaultScope, PushedRef, StagedScope
from codeloupe.runtime import preview

_ABOUT = """\
Review what a commit or a push adds, from a git hook or from pre-commit. Options of `codeloupe review` may follow.

  pre-commit   what is staged
  pre-push     what the remote does not have yet of each pushed ref

A git hook is one line: exec codeloupe hook pre-push "$@". When pre-commit passes two refs, the
changes between them are reviewed, whichever hook is run. Nothing to review is not a pass, except in a real push.
"""
# The worst comes first: an internal error, findings, a wrong call, then gaps.
_BY_WEIGHT = (4, 1, 2, 3)


def configure(parser: Parser) -> None:
    """Add the kind of the hook, and whatever follows."""
    parser.description = _ABOUT
    kinds = ("pre-commit", "pre-push")
    option(parser, "kind", "|".join(kinds), "which hook", choices=kinds)
    option(parser, "words", "...", "what git adds, and options of review", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    """Review what the hook is about, and return the worst exit code. Raises UsageError when that is nothing."""
    split = next((at for at, word in enumerate(arguments.words) if word.startswith("-")), len(arguments.words))
    from_git, options = arguments.words[:split], arguments.words[split:]
    start, end = os.environ.get("PRE_COMMIT_FROM_REF"), os.environ.get("PRE_COMMIT_TO_REF")
    remote = from_git[0] if from_git else os.environ.get("PRE_COMMIT_REMOTE_NAME", "")
    if start and end:
        pushed = PushedRef(end, end, _object(start))
        (new,) = run_to_end(new_in_push((pushed,), remote=remote))
        return _reviewed(f"{start}...{end}", options, new.commits if arguments.kind == "pre-push" else ())
    if arguments.kind == "pre-commit":
        if not run_to_end(preview(StagedScope())).files:
            raise UsageError("nothing is staged, so nothing was reviewed", hint="stage a change, or give both refs")
        return _reviewed("--staged", options)
    refs = _pushed_refs()
    if refs is None:
        if not run_to_end(preview(DefaultScope())).files:
            raise UsageError(
                "nothing is pushed and nothing is changed here, so nothing was reviewed",
                hint="give both refs: pre-commit run codeloupe --from-ref origin/main --to-ref HEAD",
            )
        return _reviewed("", options)
    codes = []
    for new in run_to_end(new_in_push(refs, remote=remote)):
        if new.range is None:
            note(f"{new.ref}: nothing to review, {new.why}")
        else:
            codes.append(_reviewed(new.range, options, new.commits))
    failed = [code for code in codes if code]
    return min(failed, key=lambda code: _BY_WEIGHT.index(code) if code in _BY_WEIGHT else -1, default=0)


def _pushed_refs() -> tuple[PushedRef, ...] | None:
    """What is pushed, from git's own lines or from pre-commit; None when this is no push."""
    if branch := os.environ.get("PRE_COMMIT_LOCAL_BRANCH"):
        # The first push of a history that the remote has nothing of: pre-commit names no commits then.
        return (PushedRef(branch, branch, None),)
    is_git = "PRE_COMMIT" not in os.environ and sys.stdin is not None and not sys.stdin.isatty()
    # Local ref, its commit, remote ref, its commit: what git writes to the standard input of a pre-push hook.
    lines = sys.stdin.read() if is_git else ""
    rows = [line.split(" ") for line in lines.splitlines()]
    if not lines.strip():
        return None
    if any(len(row) != 4 for row in rows):
        raise UsageError("standard input is not what git gives to a pre-push hook", hint="let git start the hook")
    return tuple(PushedRef(name, _object(local), _object(remote), ref) for name, local, ref, remote in rows)


def _object(name: str) -> str | None:
    return name if name.strip("0") else None


def _reviewed(scope: str, options: list[str], commits: tuple[str, ...] = ()) -> int:
    words = ["review", *([scope] if scope else []), "--quiet", *options]
    arguments = argparse.Namespace(command_line=words, pushed_commits=commits)
    return review(build_parser(["review"]).parse_args(words, arguments))
