"""`codeloupe hook`: what git's hooks and pre-commit start. Reviews exactly what is committed or pushed."""

from __future__ import annotations

import argparse
import os
import sys

from codeloupe.cli.main import build_parser
from codeloupe.cli.parser import Parser
from codeloupe.cli.review import run as review
from codeloupe.cli.running import run_to_end
from codeloupe.engine.prepare import new_in_push
from codeloupe.errors import UsageError
from codeloupe.model.scope import DefaultScope, PushedRange, PushedRef, StagedScope
from codeloupe.runtime import preview
from codeloupe.system.untrusted import terminal

_ABOUT = """\
Review what a commit or a push adds, from a git hook or from pre-commit. Options of `codeloupe review` may follow.

  pre-commit   what is staged
  pre-push     what the remote does not have yet of each pushed ref

A git hook is one line: exec codeloupe hook pre-push "$@". When pre-commit passes two refs, the
changes between them are reviewed, whichever hook is run. Nothing to review is not a pass, except in a real push.
"""
# The gravest comes first: findings, then gaps, then a wrong call.
_FIELDS_OF_A_LINE = 4
_BY_WEIGHT = (4, 1, 2, 3)


def configure(parser: Parser) -> None:
    """Add the kind of the hook, and whatever follows."""
    parser.description = _ABOUT
    parser.add_argument("kind", metavar="pre-commit|pre-push", choices=("pre-commit", "pre-push"), help="which hook")
    parser.add_argument("words", metavar="...", nargs=argparse.REMAINDER, help="what git adds, and options of review")


def run(arguments: argparse.Namespace) -> int:
    """Review what the hook is about, and return the gravest exit code. Raises UsageError when that is nothing."""
    split = next((at for at, word in enumerate(arguments.words) if word.startswith("-")), len(arguments.words))
    from_git, options = arguments.words[:split], arguments.words[split:]
    start, end = os.environ.get("PRE_COMMIT_FROM_REF"), os.environ.get("PRE_COMMIT_TO_REF")
    remote = from_git[0] if from_git else os.environ.get("PRE_COMMIT_REMOTE_NAME", "")
    if start and end:
        pushed = PushedRef(end, end, start if start.strip("0") else None)
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
    return _review_push(refs, remote=remote, options=options)


def _pushed_refs() -> tuple[PushedRef, ...] | None:
    """What is pushed, from git's own lines or from pre-commit; None when this is no push."""
    branch = os.environ.get("PRE_COMMIT_LOCAL_BRANCH")
    if branch:  # the first push of a history that the remote has nothing of: pre-commit names no commits then
        return (PushedRef(branch, branch, None),)
    lines = "" if "PRE_COMMIT" in os.environ or sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    return _parsed(lines) if lines.strip() else None


def _parsed(lines: str) -> tuple[PushedRef, ...]:
    """What git writes to the standard input of a pre-push hook: local ref, its commit, remote ref, its commit."""
    rows = [line.split(" ") for line in lines.splitlines()]
    if any(len(row) != _FIELDS_OF_A_LINE for row in rows):
        raise UsageError("standard input is not what git gives to a pre-push hook", hint="let git start the hook")
    return tuple(PushedRef(name, _object(local), _object(remote), ref) for name, local, ref, remote in rows)


def _object(name: str) -> str | None:
    return name if name.strip("0") else None


def _review_push(refs: tuple[PushedRef, ...], *, remote: str, options: list[str]) -> int:
    codes = [_review_ref(one, options) for one in run_to_end(new_in_push(refs, remote=remote))]
    return min(
        (code for code in codes if code),
        key=lambda code: _BY_WEIGHT.index(code) if code in _BY_WEIGHT else -1,
        default=0,
    )


def _review_ref(pushed: PushedRange, options: list[str]) -> int:
    if pushed.range is None:
        print(f"codeloupe: {terminal(pushed.ref)}: nothing to review, {pushed.why}", file=sys.stderr)
        return 0
    return _reviewed(pushed.range, options, pushed.commits)


def _reviewed(scope: str, options: list[str], commits: tuple[str, ...] = ()) -> int:
    words = ["review", *([scope] if scope else []), "--quiet", *options]
    arguments = argparse.Namespace(command_line=words, pushed_commits=commits)
    return review(build_parser(["review"]).parse_args(words, arguments))
