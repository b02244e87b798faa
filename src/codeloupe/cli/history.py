"""`codeloupe history`: saved reviews, shown, judged anew, compared and counted; no agent is asked and nothing is spent.

Its options stand in `history_options`, and what each verb below it does in a module of its own.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from codeloupe.cli.log_lines import set_up_logging
from codeloupe.engine.history import opened_history


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for and return the exit code. Raises UsageError and StoreError."""
    set_up_logging(verbose=False)
    # Only the one that is asked for is loaded: to list must not wait for what compares.
    verb = import_module(f"codeloupe.cli.history_{arguments.action}")
    with opened_history() as history:
        exit_code: int = verb.run(history, arguments)
    return exit_code
