"""`codeloupe pipeline`: run stages of agents, and look at runs, answer them, go on with them and remove them.

Its options stand in `pipeline_options`, and what each verb below it does in a module of its own.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from codeloupe.cli.output import set_up_logging
from codeloupe.cli.pipeline_options import configure

_MODULES = {"reject": "approve"}


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for and return the exit code. Raises a CodeloupeError."""
    set_up_logging(verbose=getattr(arguments, "verbose", False) and arguments.action in ("run", "resume"))
    # Only the one that is asked for is loaded: to list must not wait for what runs.
    name = _MODULES.get(arguments.action, arguments.action)
    exit_code: int = import_module(f"codeloupe.cli.pipeline_{name}").run(arguments)
    return exit_code


__all__ = ["configure", "run"]
