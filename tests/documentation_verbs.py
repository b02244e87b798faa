"""The verbs of the program and their options, as its own parsers have them."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence

from codeloupe.cli.main import VERBS, build_parser

Options = Mapping[str, frozenset[str]]


def verbs() -> Options:
    """Return the long options of each command by its whole name (`history list`), without groups of commands."""
    root = build_parser(list(VERBS))
    options = dict(_leaves("", root))
    for group, parser in root.commands().items():
        for name, command in parser.commands().items():
            if command.passes_on:
                options[f"{group} {name}"] |= options["review"]
    return options


def _leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, frozenset[str]]]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for word, child in action.choices.items():
            yield from _leaves(f"{name} {word}".strip(), child)
    if not below:
        words = (word for action in parser._actions for word in action.option_strings)
        yield name, frozenset(word for word in words if word.startswith("--"))


def calls(line: str) -> Iterator[list[str]]:
    """Yield the words after each `codeloupe` in a line of a shell, up to a pipe or the like.

    The name without a word behind it is not a call: it can be a folder, as in `cd codeloupe`.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    call: list[str] | None = None
    for word in (*lexer, ";"):
        if set(word) <= set("();<>|&"):
            if call:
                yield call
            call = None
        elif call is not None:
            call.append(word)
        elif word == "codeloupe":
            call = []


def verb_of(words: Sequence[str], known: Options) -> str | None:
    """The verb that is called, or None when there is none of that name."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in known:
            return name
    return None


def long_options(words: Sequence[str]) -> set[str]:
    """The long options among words, without their values."""
    return {word.partition("=")[0] for word in words if word.startswith("--") and len(word) > 2}
