"""`codeloupe hook`: the command for git's hooks and pre-commit. It reviews exactly what is committed or pushed."""

from __future__ import annotations

import argparse
import os
import sys

from codeloupe.cli import options
from codeloupe.cli.hook_install import install, uninstall
from codeloupe.cli.main import build_parser
from codeloupe.cli.parser import Parser, add_command, flag, option
from codeloupe.cli.review import flags_of
from codeloupe.cli.review import run as review
from codeloupe.cli.verbs import note, run_to_end, set_up_logging
from codeloupe.errors import UsageError
from codeloupe.model.scope import DefaultScope, PushedRef, ScopeRequest, StagedScope
from codeloupe.planning.commits import new_in_push
from codeloupe.planning.experts import experts_of
from codeloupe.runtime import configure as configure_settings
from codeloupe.runtime import preview

_KINDS = ("pre-commit", "pre-push")
_ABOUT = "Install git hooks that review each commit or push, remove them, or run one."
_EPILOG = """\
examples:
  codeloupe hook install pre-push --reviewer offline
  codeloupe hook install pre-commit --fail-on medium --yes
  codeloupe hook uninstall pre-push
  codeloupe hook pre-commit --reviewer offline

A hook with nothing to review passes and says so. If pre-commit passes two refs, both hooks review the changes between
them.
"""
_ABOUT_KINDS = {
    "pre-commit": "review the staged changes",
    "pre-push": "review the commits that the remote does not have yet",
}
_KIND_EPILOGS = {
    "pre-commit": """\
You can append options for `codeloupe review`, such as --fail-on medium.

examples:
  codeloupe hook pre-commit --reviewer offline
""",
    "pre-push": """\
Git passes the name and URL of the remote as arguments, and the pushed refs on standard input. Outside a push, the hook
reviews your branch and uncommitted changes. You can append options for `codeloupe review`, such as --fail-on medium.

examples:
  codeloupe hook pre-push --reviewer offline
""",
}
_INSTALL_EPILOG = """\
You can append options for `codeloupe review`; they are written to the hook. The command first shows the file and its
contents, and asks before it writes. Without a terminal it needs --yes.

The hook goes in the folder that git runs hooks from, which respects core.hooksPath. An existing shell hook is extended;
other hooks are not changed. In a repository that uses pre-commit or lefthook, the command shows the lines for their
configuration instead. The hook runs codeloupe from where it is installed now, or from the PATH. If it finds neither, it
stops the commit or push.

examples:
  codeloupe hook install pre-push --reviewer offline
  codeloupe hook install pre-commit --fail-on medium --yes
  codeloupe hook install pre-push --dry-run
"""
_UNINSTALL_EPILOG = """\
The command restores the hook as it was before `codeloupe hook install`, and deletes a file that was created then. It
does not remove lines that have been edited.

examples:
  codeloupe hook uninstall pre-push
  codeloupe hook uninstall pre-commit --yes
"""
# The worst comes first: an internal error, findings, a wrong call, then gaps.
_BY_WEIGHT = (4, 1, 2, 3)


def configure(parser: Parser) -> None:
    """Add the hooks, and the commands that install and remove them."""
    parser.description = _ABOUT
    parser.epilog = _EPILOG
    commands = parser.add_commands(dest="action")
    for kind in _KINDS:
        command = add_command(commands, kind, _ABOUT_KINDS[kind], _run_hook)
        command.set_defaults(kind=kind)
        command.epilog = _KIND_EPILOGS[kind]
        command.passes_on = True
    installing = add_command(commands, "install", "write a git hook that calls codeloupe", _install)
    installing.epilog = _INSTALL_EPILOG
    installing.passes_on = True
    removing = add_command(commands, "uninstall", "remove what `codeloupe hook install` wrote", uninstall)
    removing.epilog = _UNINSTALL_EPILOG
    for command in (installing, removing):
        option(command, "kind", "pre-commit|pre-push", "the hook", choices=_KINDS)
        flag(command, "-y --yes", "write without asking")
        flag(command, "--dry-run", "show what would change, and change nothing")
        options.add(command, "--repo")


def run(arguments: argparse.Namespace) -> int:
    """Run, install or remove a hook, and return the exit code."""
    set_up_logging()
    return int(arguments.act(arguments))


def _install(arguments: argparse.Namespace) -> int:
    """Install a hook. Raise UsageError for options that a review in the hook would refuse."""
    words = arguments.options
    if words and not words[0].startswith("-"):
        raise UsageError(
            f"{words[0]!r} is not an option of a review", hint="give one hook, then options such as --fail-on medium"
        )
    scope = "--staged" if arguments.kind == "pre-commit" else "HEAD..HEAD"
    reviewing = _review_arguments(scope, words, ())
    options.scope_of(reviewing)
    if reviewing.preview:
        raise UsageError("--preview reviews nothing, so the hook would always pass", hint="remove --preview")
    if reviewing.guessed or reviewing.paths:
        raise UsageError("a hook reviews whole commits and pushes, not paths", hint="use --include or --exclude")
    loaded = run_to_end(configure_settings(StagedScope(), repo=arguments.repo, flags=flags_of(reviewing)))
    experts_of(loaded.settings)
    return install(arguments)


def _run_hook(arguments: argparse.Namespace) -> int:
    """Review what the hook is about, and return the worst exit code."""
    words = arguments.options
    split = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    from_git, for_review = words[:split], words[split:]
    start, end = os.environ.get("PRE_COMMIT_FROM_REF"), os.environ.get("PRE_COMMIT_TO_REF")
    remote = from_git[0] if from_git else os.environ.get("PRE_COMMIT_REMOTE_NAME", "")
    # Git sets this variable for the hooks of a commit. pre-commit does not say in which stage a hook runs.
    is_commit = "GIT_INDEX_FILE" in os.environ
    # pre-commit's variables may be left from an outer hook; git's own arguments and variables are about this one.
    if start and end and not from_git and not is_commit:
        pushed = PushedRef(end, end, _object(start))
        (new,) = run_to_end(new_in_push((pushed,), remote=remote))
        return _reviewed(f"{start}...{end}", for_review, new.commits if arguments.kind == "pre-push" else ())
    if arguments.kind == "pre-commit":
        return _reviewed_if_any(StagedScope(), "--staged", for_review, nothing="nothing is staged")
    refs = _pushed_refs(is_push=bool(from_git))
    if refs is not None:
        return _reviewed_push(refs, for_review, remote=remote)
    if is_commit:
        note("nothing to review: this is a commit, and the hook reviews pushes")
        return 0
    return _reviewed_if_any(DefaultScope(), "", for_review, nothing="nothing is pushed and nothing is changed here")


def _reviewed_if_any(scope: ScopeRequest, word: str, options: list[str], *, nothing: str) -> int:
    """Review a scope, given as `word` on the command line, or say that it is empty and pass."""
    found = run_to_end(preview(scope, repo=_review_arguments(word, options, ()).repo))
    if not found.files and not found.out_of_reach:
        note(f"nothing to review: {nothing}")
        return 0
    return _reviewed(word, options)


def _reviewed_push(refs: tuple[PushedRef, ...], options: list[str], *, remote: str) -> int:
    """Review what the remote does not have yet of each ref, and return the worst exit code."""
    if not refs:
        note("nothing to review: nothing is pushed")
    repo = _review_arguments("", options, ()).repo
    pushes = run_to_end(new_in_push(refs, remote=remote, repo=repo))
    _refuse_one_report_for_several(sum(new.range is not None for new in pushes), options)
    codes = []
    for new in pushes:
        if new.range is None:
            note(f"{new.ref}: nothing to review, {new.why}")
        else:
            codes.append(_reviewed(new.range, options, new.commits))
    failed = [code for code in codes if code]
    return min(failed, key=lambda code: _BY_WEIGHT.index(code) if code in _BY_WEIGHT else -1, default=0)


def _refuse_one_report_for_several(reviews: int, options: list[str]) -> None:
    """Raise UsageError if several reviews would write the same file, or several documents to standard output."""
    outputs = _review_arguments("", options, ()).outputs
    is_one_report = any(output.path is not None or output.format not in ("text", "concise") for output in outputs)
    if reviews > 1 and is_one_report:
        raise UsageError(
            f"this push has {reviews} refs to review, but the options of the hook write one report",
            hint="push one ref at a time, or install the hook without -o and --format",
        )


def _pushed_refs(*, is_push: bool) -> tuple[PushedRef, ...] | None:
    """Return what is pushed, from git's own lines or from pre-commit; None outside a push."""
    branch = os.environ.get("PRE_COMMIT_LOCAL_BRANCH")
    if branch and not is_push:
        # The first push of a history that the remote has nothing of: pre-commit gives no commits then.
        return (PushedRef(branch, branch, None),)
    is_git = is_push or "PRE_COMMIT" not in os.environ
    lines = ""
    # Local ref, its commit, remote ref, its commit: git writes these to the standard input of a pre-push hook.
    if is_git and sys.stdin is not None and not sys.stdin.isatty():
        lines = sys.stdin.read()
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
    return review(_review_arguments(scope, options, commits))


def _review_arguments(scope: str, options: list[str], commits: tuple[str, ...]) -> argparse.Namespace:
    words = ["review", *([scope] if scope else []), *options]
    arguments = argparse.Namespace(command_line=words, pushed_commits=commits)
    return build_parser(["review"]).parse_args(words, arguments)
