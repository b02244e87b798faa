"""`codeloupe version`."""

from __future__ import annotations

import argparse

from codeloupe import __version__


def configure(_parser: argparse.ArgumentParser) -> None:
    """There is nothing to configure."""


def run(_arguments: argparse.Namespace) -> int:
    """Print the version."""
    print(f"codeloupe {__version__}")
    return 0
