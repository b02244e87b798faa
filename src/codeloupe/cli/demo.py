"""`codeloupe demo`: a review of a small faulty change in a real repository that is removed afterwards."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from codeloupe import app
from codeloupe.cli.options import look_of
from codeloupe.cli.progress import ProgressDisplay, choose_mode
from codeloupe.cli.running import run_to_end, set_up_logging
from codeloupe.cli.writing import output_file, write_result
from codeloupe.config.schema import Settings
from codeloupe.model.review import Review
from codeloupe.report.svg import svg
from codeloupe.report.text import render_text

_NEXT = """
This was a real repository with a real change, reviewed offline: nothing left this machine.
Try it on your own change:  codeloupe review
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """How to show it."""
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write the result as a picture instead")
    parser.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="colour the text")


def run(arguments: argparse.Namespace) -> int:
    """Make the repository, review it, show the result. A verdict of FAIL is the demo's success."""
    set_up_logging(verbose=False)
    mode = choose_mode(quiet=False, stream=sys.stderr, environment=os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="codeloupe-demo-") as directory,
        ProgressDisplay(stream=sys.stderr, mode=mode) as display,
    ):
        settings = Settings(reviewer_type="offline")
        review = run_to_end(app.demo(Path(directory), settings=settings, emit=display.emit))
    _show(review, arguments)
    return 0 if review.complete else review.exit_code


def _show(review: Review, arguments: argparse.Namespace) -> None:
    if arguments.svg is not None:
        with output_file(arguments.svg) as pieces:
            pieces.append(svg(review, title="codeloupe demo"))
        return
    look = look_of(arguments.color)
    write_result(render_text(review, width=look.width, color=look.color, ascii_only=look.ascii_only) + _NEXT)
