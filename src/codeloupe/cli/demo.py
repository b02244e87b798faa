"""`codeloupe demo`: a review of a small faulty change in a real repository that is removed afterwards."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, examples, option
from codeloupe.cli.progress import ProgressDisplay, choose_mode
from codeloupe.cli.verbs import Made, Output, deliver, run_to_end, set_up_logging
from codeloupe.config.schema import Settings
from codeloupe.git.command import Place, git
from codeloupe.git.repository import private_directory
from codeloupe.model.scope import DefaultScope
from codeloupe.reports import Layout
from codeloupe.reports.text import render_text, svg
from codeloupe.runtime import review

_NEXT = """
This was a real repository with a real change, reviewed offline: nothing left this machine.
Try it on your own change:  codeloupe review
"""
_IDENTITY = ("user.name=Demo", "user.email=demo@example.invalid", "commit.gpgSign=false", "init.defaultBranch=main")
# Put together here, so that no file of ours looks as if it held a key.
_AWS_KEY = "AKIA" + "QX7ZP3LMN5" + "TVRW2K"


def configure(parser: Parser) -> None:
    """Add the options of `demo`."""
    option(parser, "--svg", "FILE", "write the first finding and the verdict as a picture", type=Path)
    options.add(parser, "--color")
    examples(parser, "codeloupe demo", "codeloupe demo --svg demo.svg")


def run(arguments: argparse.Namespace) -> int:
    """Make the repository, review it, show the result. A verdict of FAIL is the demo's success."""
    set_up_logging()

    def make() -> Made:
        with private_directory() as directory, ProgressDisplay(mode=choose_mode()) as display:
            run_to_end(make_repository(directory))
            settings = Settings(reviewer_type="offline", keep_history=False)
            reviewed = run_to_end(review(DefaultScope(), repo=directory, settings=settings, emit=display.emit))
        exit_code = 0 if reviewed.complete else reviewed.exit_code
        if arguments.svg is not None:
            return exit_code, lambda _output: svg(reviewed, title="codeloupe demo")
        return exit_code, lambda _output: render_text(reviewed, Layout(**options.look_of(arguments.color))) + _NEXT

    return deliver((Output("text", arguments.svg),), make, quiet=True)


async def make_repository(root: Path) -> None:
    """A shop in four languages on `main`, and a faulty change to it on the branch `feature`, which is checked out."""
    place = Place(root / ".git", work_tree=root, settings=_IDENTITY)
    await git(place, "init", "--quiet", "--template=")
    await _commit(place, root, "before", "A small shop")
    await git(place, "checkout", "--quiet", "-b", "feature")
    await _commit(place, root, "after", "Search by customer, print invoices, save the cart")


async def _commit(place: Place, root: Path, state: str, message: str) -> None:
    for folder in files("codeloupe.cli").joinpath("demo_files", state).iterdir():
        (root / folder.name).mkdir(exist_ok=True)
        for file in folder.iterdir():
            text = file.read_text(encoding="utf-8").replace("@AWS_KEY@", _AWS_KEY)
            (root / folder.name / file.name.removesuffix(".txt")).write_text(text, encoding="utf-8")
    await git(place, "add", "--all")
    await git(place, "commit", "--quiet", f"--message={message}")
