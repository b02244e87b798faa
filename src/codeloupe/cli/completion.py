"""`codeloupe completion`: a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse

import shtab

from codeloupe.cli import main


def configure(parser: argparse.ArgumentParser) -> None:
    """The shell to complete for."""
    parser.add_argument(
        "shell",
        metavar="SHELL",
        choices=["bash", "zsh", "tcsh"],
        help='bash, zsh or tcsh; for bash: eval "$(codeloupe completion bash)"',
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    parser = main.build_parser(list(main.VERBS))
    print(shtab.complete(parser, shell=arguments.shell))
    return 0
