"""`codeloupe hook`: the command for git's hooks and pre-commit. It reviews exactly what is committed or pushed."""

from __future__ import annotations

import argparse
import os
import sys

from codeloupe.cli.main import build_parser
from codeloupe.cli.parser import Parser, examples, option
from codeloupe.cli.review import run as review
from codeloupe.cli.verbs import note, run_to_end
from codeloupe.errors import UsageError
from codeloupe.model.scope import DefaultScope, PushedRef, ScopeRequest, StagedScope
from codeloupe.planning.commits import new_in_push
from codeloupe.runtime import preview

_ABOUT = """\
Review what a commit or a push adds, from a git hook or from pre-commit. Options of `codeloupe review` may follow.

  pre-commit   what is staged
  pre-push     what the remote does not have yet of each pushed ref;
               outside a push, the branch and its working tree

A git hook is one line: exec codeloupe hook pre-push "$@". When pre-commit passes two refs, both hooks review the
changes between them. A hook with nothing to review passes and says so.
"""
# The worst comes first: an internal error, findings, a wrong call, then gaps.
_BY_WEIGHT = (4, 1, 2, 3)


def configure(parser: Parser) -> None:
    """Add the kind of the hook, and the words after it."""
    parser.description = _ABOUT
    kinds = ("pre-commit", "pre-push")
    option(parser, "kind", "|".join(kinds), "which hook", choices=kinds)
    option(parser, "words", "...", "arguments from git, and options of `review`", nargs=argparse.REMAINDER)
    examples(parser, "codeloupe hook pre-commit", 'exec codeloupe hook pre-push "$@" --fail-on critical')


def run(arguments: argparse.Namespace) -> int:
    """Review what the hook is about, and return the worst exit code."""
    split = next((at for at, word in enumerate(arguments.words) if word.startswith("-")), len(arguments.words))
    from_git, options = arguments.words[:split], arguments.words[split:]
    start, end = os.environ.get("PRE_COMMIT_FROM_REF"), os.environ.get("PRE_COMMIT_TO_REF")
    remote = from_git[0] if from_git else os.environ.get("PRE_COMMIT_REMOTE_NAME", "")
    if start and end:
        pushed = PushedRef(end, end, _object(start))
        (new,) = run_to_end(new_in_push((pushed,), remote=remote))
        return _reviewed(f"{start}...{end}", options, new.commits if arguments.kind == "pre-push" else ())
    if arguments.kind == "pre-commit":
        return _reviewed_if_any(StagedScope(), "--staged", options, nothing="nothing is staged")
    refs = _pushed_refs(is_push=bool(from_git))
    if refs is not None:
        return _reviewed_push(refs, options, remote=remote)
    # Git sets this variable for the hooks of a commit. pre-commit does not tell a hook in which stage it runs.
    if "GIT_INDEX_FILE" in os.environ:
        note("nothing to review: this is a commit, and the hook reviews pushes")
        return 0
    return _reviewed_if_any(DefaultScope(), "", options, nothing="nothing is pushed and nothing is changed here")


def _reviewed_if_any(scope: ScopeRequest, word: str, options: list[str], *, nothing: str) -> int:
    """Review a scope, given as `word` on the command line, or say that it is empty and pass."""
    found = run_to_end(preview(scope))
    if not found.files and not found.out_of_reach:
        note(f"nothing to review: {nothing}")
        return 0
    return _reviewed(word, options)


def _reviewed_push(refs: tuple[PushedRef, ...], options: list[str], *, remote: str) -> int:
    """Review what the remote does not have yet of each ref, and return the worst exit code."""
    if not refs:
        note("nothing to review: nothing is pushed")
    codes = []
    for new in run_to_end(new_in_push(refs, remote=remote)):
        if new.range is None:
            note(f"{new.ref}: nothing to review, {new.why}")
        else:
            codes.append(_reviewed(new.range, options, new.commits))
    failed = [code for code in codes if code]
    return min(failed, key=lambda code: _BY_WEIGHT.index(code) if code in _BY_WEIGHT else -1, default=0)


def _pushed_refs(*, is_push: bool) -> tuple[PushedRef, ...] | None:
    """Return what is pushed, from git's own lines or from pre-commit; None outside a push."""
    if branch := os.environ.get("PRE_COMMIT_LOCAL_BRANCH"):
        # The first push of a history that the remote has nothing of: pre-commit names no commits then.
        return (PushedRef(branch, branch, None),)
    is_git = "PRE_COMMIT" not in os.environ and sys.stdin is not None and not sys.stdin.isatty()
    # Local ref, its commit, remote ref, its commit: what git writes to the standard input of a pre-push hook.
    lines = sys.stdin.read() if is_git else ""
    rows = [line.split(" ") for line in lines.splitlines()]
    if not lines.strip():
        # Git runs the hook of a push that is up to date too, without a line.
        return () if is_push else None
    if any(len(row) != 4 for row in rows):
        raise UsageError("standard input is not what git gives to a pre-push hook", hint="let git start the hook")
    return tuple(PushedRef(name, _object(local), _object(remote), ref) for name, local, ref, remote in rows)


def _object(name: str) -> str | None:
    return name if name.strip("0") else None


def _reviewed(scope: str, options: list[str], commits: tuple[str, ...] = ()) -> int:
    words = ["review", *([scope] if scope else []), "--quiet", *options]
    arguments = argparse.Namespace(command_line=words, pushed_commits=commits)
    return review(build_parser(["review"]).parse_args(words, arguments))
