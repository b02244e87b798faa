"""`codeloupe demo`: a review of a small faulty change in a real repository that is removed afterwards."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from codeloupe.cli.options import add_color_option, look_of
from codeloupe.cli.output import output_file, set_up_logging, write_result
from codeloupe.cli.progress import ProgressDisplay, choose_mode
from codeloupe.cli.running import run_to_end
from codeloupe.config.schema import Settings
from codeloupe.git.command import Place, git
from codeloupe.git.repository import private_directory
from codeloupe.model.review import Review
from codeloupe.model.scope import DefaultScope
from codeloupe.reports.text import render_text, svg
from codeloupe.runtime import review

_NEXT = """
This was a real repository with a real change, reviewed offline: nothing left this machine.
Try it on your own change:  codeloupe review
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """How to show it."""
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write the result as a picture instead")
    add_color_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the repository, review it, show the result. A verdict of FAIL is the demo's success."""
    set_up_logging(verbose=False)
    with ExitStack() as opened:
        # Before the review, as no work is done for what cannot be written.
        picture = None if arguments.svg is None else opened.enter_context(output_file(arguments.svg))
        reviewed = _review()
        if picture is not None:
            picture.append(svg(reviewed, title="codeloupe demo"))
    if arguments.svg is None:
        look = look_of(arguments.color)
        write_result(render_text(reviewed, width=look.width, color=look.color, ascii_only=look.ascii_only) + _NEXT)
    return 0 if reviewed.complete else reviewed.exit_code


def _review() -> Review:
    mode = choose_mode(quiet=False, stream=sys.stderr, environment=os.environ)
    with private_directory() as directory, ProgressDisplay(stream=sys.stderr, mode=mode) as display:
        run_to_end(make_repository(directory))
        settings = Settings(reviewer_type="offline", keep_history=False)
        return run_to_end(review(DefaultScope(), repo=directory, settings=settings, emit=display.emit))


_IDENTITY = ("user.name=Demo", "user.email=demo@example.invalid", "commit.gpgSign=false", "init.defaultBranch=main")
# Put together here, so that no file of ours looks as if it held a key.
_AWS_KEY = "AKIA" + "QX7ZP3LMN5" + "TVRW2K"


async def make_repository(root: Path) -> None:
    """A shop in four languages on `main`, and a faulty change to it on the branch `feature`, which is checked out."""
    place = Place(root / ".git", work_tree=root, settings=_IDENTITY)
    await git(place, "init", "--quiet", "--template=")
    await _commit(place, root, "before", "A small shop")
    await git(place, "checkout", "--quiet", "-b", "feature")
    await _commit(place, root, "after", "Search by customer, print invoices, save the cart")


async def _commit(place: Place, root: Path, state: str, message: str) -> None:
    for name, text in _sources(state):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    await git(place, "add", "--all")
    await git(place, "commit", "--quiet", f"--message={message}")


def _sources(state: str) -> Iterator[tuple[str, str]]:
    top = files("codeloupe.cli").joinpath("demo_files", state)
    for folder in sorted(top.iterdir(), key=_name):
        for file in sorted(folder.iterdir(), key=_name):
            text = file.read_text(encoding="utf-8").replace("@AWS_KEY@", _AWS_KEY)
            yield f"{folder.name}/{file.name.removesuffix('.txt')}", text


def _name(entry: Traversable) -> str:
    return entry.name
