"""`codeloupe demo`: a review of a small faulty change in a real repository that is removed afterwards."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from codeloupe import runtime
from codeloupe.cli.demo_repository import make_repository
from codeloupe.cli.options import add_color_option, look_of
from codeloupe.cli.progress import ProgressDisplay, choose_mode
from codeloupe.cli.running import run_to_end, set_up_logging
from codeloupe.cli.writing import output_file, write_result
from codeloupe.config.schema import Settings
from codeloupe.git.engine import private_directory
from codeloupe.model.review import Review
from codeloupe.reports.svg import svg
from codeloupe.reports.text import render_text

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
        review = _review()
        if picture is not None:
            picture.append(svg(review, title="codeloupe demo"))
    if arguments.svg is None:
        look = look_of(arguments.color)
        write_result(render_text(review, width=look.width, color=look.color, ascii_only=look.ascii_only) + _NEXT)
    return 0 if review.complete else review.exit_code


def _review() -> Review:
    mode = choose_mode(quiet=False, stream=sys.stderr, environment=os.environ)
    with private_directory() as directory, ProgressDisplay(stream=sys.stderr, mode=mode) as display:
        run_to_end(make_repository(directory))
        settings = Settings(reviewer_type="offline", keep_history=False)
        return run_to_end(runtime.review(repo=directory, settings=settings, emit=display.emit))
