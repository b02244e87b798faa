"""The one parser of all commands: how help looks, and what is said about wrong words.

It is loaded on every start, so the standard library's heavier modules load only when there is trouble.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable
from itertools import groupby
from typing import Any, NoReturn

from codeloupe.system.untrusted import log_line

_WIDEST = 100
_HELP_COLUMN = 29
_MISSING = "the following arguments are required: "


class HelpFormatter(argparse.HelpFormatter):
    """As wide as the terminal, up to a width that can be read; options and their meanings in two columns."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        super().__init__(prog, max_help_position=_HELP_COLUMN, width=width)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """One line: what has to be given, what may be, and `[options]` for all that the help lists below."""
        told = tuple(actions)
        if usage is None:
            words = [self._word(action) for action in told if not action.option_strings or action.required]
            usage = " ".join(("%(prog)s", *words, "[options]")) if not _leads_on(told) else "%(prog)s COMMAND ..."
        super().add_usage(usage, told, groups, prefix)

    def _word(self, action: argparse.Action) -> str:
        if action.option_strings:
            return f"{action.option_strings[-1]} {action.metavar or action.dest.upper()}"
        word = str(action.metavar or action.dest)
        return {"?": f"[{word}]", "*": f"[{word} ...]", "+": f"{word} [{word} ...]"}.get(str(action.nargs), word)

    def _format_action(self, action: argparse.Action) -> str:
        """A line for each command, and none for the word that stands for them in the usage."""
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
            return super()._format_action(action)
        return self._join_parts(super(HelpFormatter, self)._format_action(each) for each in action._get_subactions())  # noqa: SLF001 - as above

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Paragraphs are wrapped; empty lines and indented ones, which are tables, stay as they are."""
        lines: list[str] = []
        for is_prose, found in groupby(text.strip("\n").splitlines(), lambda line: line[:1] not in ("", " ")):
            part = list(found)
            lines += [super()._fill_text(" ".join(part), width, indent)] if is_prose else part
        return "\n".join(lines)


def _leads_on(actions: Iterable[argparse.Action]) -> bool:
    return any(isinstance(action, argparse._SubParsersAction) for action in actions)  # noqa: SLF001 - it has no other name


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong with the words, and what was probably meant."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        options.setdefault("allow_abbrev", False)
        # Whether `words` may stand anywhere, and what follows `--` are `paths`.
        self.takes_paths = False
        # What to say of a command that does not exist, and that somebody has good reason to look for.
        self.elsewhere: dict[str, str] = {}
        super().__init__(*arguments, **options)
        self._positionals.title = "arguments"

    def add_commands(self, *, dest: str, required: bool = True) -> argparse._SubParsersAction[Parser]:
        """A place for the commands below this one."""
        return self.add_subparsers(title="commands", metavar="COMMAND", dest=dest, required=required, prog=self.prog)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse. Words that nobody knows end the program here, where it is known which command they were for."""
        after: list[str] = []
        if self.takes_paths and args is not None and "--" in args:
            place = list(args).index("--")
            args, after = args[:place], list(args[place + 1 :])
        parsed, unknown = super().parse_known_args(args, namespace)
        if self.takes_paths:
            # argparse takes words in one place only; they may stand before and behind the options.
            parsed.words = [*parsed.words, *(word for word in unknown if not word.startswith("-"))]
            parsed.paths = after
            unknown = [word for word in unknown if word.startswith("-")]
        if unknown:
            self._refuse(unknown[0])
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and the way to the help, and exit with 2."""
        if message.startswith(_MISSING):
            missing = message.removeprefix(_MISSING)
            if missing == "COMMAND":
                self._end(f"{self._name} needs a command: {', '.join(self._commands())}")
            message = f"{self._name} needs {missing}"
        self._end(_in_our_words(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse does it, but help that cannot be written is no success."""
        if file is sys.stdout:
            sys.stdout.write(message)
            sys.stdout.flush()
        else:
            super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:  # noqa: SLF001 - as above
            known = list(action.choices)
            hint = self.elsewhere.get(value) or _meant(value, known) or f"the commands are: {', '.join(known)}"
            self._end(f"{value!r} is not a command of {self._name}", hint=hint)
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            name = "/".join(action.option_strings) or action.metavar or action.dest
            expected = f"{', '.join(known[:-1])} or {known[-1]}"
            self._end(f"{name}: expected {expected}, found {value!r}", hint=_meant(str(value), known))

    @property
    def _name(self) -> str:
        """The command as its users call it; every message begins with the name of the program already."""
        program, _, command = self.prog.partition(" ")
        return command or f"{program} itself"

    def _commands(self) -> list[str]:
        return [
            name
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - as above
            for name in action.choices
        ]

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self._end(f"{self._name} does not know what to do with {word!r}")
        option = word.partition("=")[0]
        known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        self._end(f"{self._name} has no option {option}", hint=_meant(option, known))

    def _end(self, message: str, *, hint: str = "") -> NoReturn:
        hint = hint or f"{self.prog} --help shows what there is"
        self.exit(2, f"codeloupe: {log_line(message)}\n  hint: {log_line(hint)}\n")


def _in_our_words(message: str) -> str:
    """What argparse says of an option, as the rest of the program says such things."""
    about, colon, what = message.removeprefix("argument ").partition(": ")
    if not colon or not message.startswith("argument "):
        return message
    if what.startswith("not allowed with argument "):
        return f"{about} and {what.removeprefix('not allowed with argument ')} exclude each other"
    if what == "expected one argument":
        return f"{about} needs a value"
    if what.startswith(("invalid int value: ", "invalid float value: ")):
        return f"{about}: expected a number, found {what.partition(': ')[2]}"
    return f"{about}: {what}"


def _meant(word: str, known: list[str]) -> str:
    """A question for the one of the known words that is nearest; nothing when none is near."""
    import difflib

    # github is no misspelt gitlab.
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
    return f"did you mean {close[0]}?" if close else ""


def sentence(words: str) -> str:
    """A line of a list of commands as a sentence: only its first letter changes."""
    return f"{words[:1].upper()}{words[1:]}."
