"""The one parser of all commands: how help looks, and what is said about wrong words. Loaded on every start."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterable
from itertools import groupby
from typing import Any, NoReturn

from codeloupe.system.untrusted import log_line


class HelpFormatter(argparse.HelpFormatter):
    """As wide as the terminal, up to a width that can be read; options and their meanings in two columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=29, width=min(shutil.get_terminal_size().columns, 100))

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        """One line: what has to be given, what may be, and `[options]` for all that the help lists below."""
        actions = tuple(actions)
        if usage is None and any(map(_has_commands, actions)):
            usage = "%(prog)s COMMAND ..."
        elif usage is None:
            words = [self._word(action) for action in actions if not action.option_strings or action.required]
            usage = " ".join(("%(prog)s", *words, "[options]"))
        super().add_usage(usage, actions, groups, prefix)

    def _word(self, action: argparse.Action) -> str:
        if action.option_strings:
            return f"{action.option_strings[-1]} {action.metavar or action.dest.upper()}"
        word = str(action.metavar or action.dest)
        return {"?": f"[{word}]", "*": f"[{word} ...]", "+": f"{word} [{word} ...]"}.get(str(action.nargs), word)

    def _format_action(self, action: argparse.Action) -> str:
        """A line for each command, and none for the word that means them in the usage."""
        if not _has_commands(action):
            return super()._format_action(action)
        return "".join(super(HelpFormatter, self)._format_action(each) for each in action._get_subactions())  # type: ignore[attr-defined]  # noqa: SLF001 - it has no other name

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Paragraphs are wrapped; empty lines and indented ones, which are tables, stay as they are."""
        lines: list[str] = []
        for is_prose, found in groupby(text.strip("\n").splitlines(), lambda line: line[:1] not in ("", " ")):
            part = list(found)
            lines += [super()._fill_text(" ".join(part), width, indent)] if is_prose else part
        return "\n".join(lines)


def _has_commands(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - it has no other name


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong with the words, and what was probably meant."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": HelpFormatter, "allow_abbrev": False, **options})
        # Whether `words` may be anywhere, and what follows `--` are `paths`.
        self.takes_paths = False
        # Whether words that this command does not know are `options` for a command that it starts.
        self.passes_on = False
        # What to say of a command that does not exist, and that somebody has good reason to look for.
        self.elsewhere: dict[str, str] = {}
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
            # argparse takes words in one place only; they may come before and after the options.
            parsed.words = [*parsed.words, *(word for word in unknown if not word.startswith("-"))]
            parsed.paths = after
            unknown = [word for word in unknown if word.startswith("-")]
        if self.passes_on:
            parsed.options = unknown
            return parsed, []
        if unknown and not unknown[0].startswith("-"):
            self._end(f"{self._name} does not know what to do with {unknown[0]!r}")
        if unknown:
            option = unknown[0].partition("=")[0]
            known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
            near = _nearest(option, known)
            self._end(f"{self._name} has no option {option}", hint=near and f"did you mean {near}?")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and the way to the help, and exit with 2."""
        commands = [name for action in self._actions if _has_commands(action) for name in action.choices or ()]
        for pattern, words in (
            (r".* are required: COMMAND", f"{self._name} needs a command: {', '.join(commands)}"),
            (r".* are required: (.*)", rf"{self._name} needs \1"),
            (r"argument (.*?): not allowed with argument (.*)", r"\1 and \2 exclude each other"),
            (r"argument (.*?): expected one argument", r"\1 needs a value"),
            (r"argument (.*?): invalid (?:int|float) value: (.*)", r"\1: expected a number, found \2"),
            (r"argument (.*?: .*)", r"\1"),
        ):
            if found := re.fullmatch(pattern, message, re.DOTALL):
                self._end(found.expand(words))
        self._end(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse does it, but help that cannot be written is no success."""
        if file is sys.stdout:
            sys.stdout.write(message)
            sys.stdout.flush()
        else:
            super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = list(map(str, action.choices))
        near = _nearest(str(value), known)
        if _has_commands(action):
            of = f" of {self._name}" if " " in self.prog else ""
            hint = f"did you mean {near!r}?" if near else f"the commands are: {', '.join(known)}"
            self._end(f"{value!r} is not a command{of}", hint=self.elsewhere.get(value, hint))
        name = "/".join(action.option_strings) or action.metavar or action.dest
        expected = f"{', '.join(known[:-1])} or {known[-1]}"
        self._end(f"{name}: expected {expected}, found {value!r}", hint=near and f"did you mean {near}?")

    @property
    def _name(self) -> str:
        """The command as its users call it; every message begins with the name of the program already."""
        program, _, command = self.prog.partition(" ")
        return command or f"{program} itself"

    def _end(self, message: str, *, hint: str = "") -> NoReturn:
        hint = hint or f"{self.prog} --help shows what there is"
        self.exit(2, f"codeloupe: {log_line(message)}\n  hint: {log_line(hint)}\n")


def _nearest(word: str, known: list[str]) -> str:
    """The known word that was probably meant, or nothing when none is near: github is no misspelt gitlab."""
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.7)), "")


def sentence(words: str) -> str:
    """A line of a list of commands as a sentence: only its first letter changes."""
    return f"{words[:1].upper()}{words[1:]}."


def flag(to: argparse._ActionsContainer, names: str, about: str) -> None:
    """Add an option without a value, such as `-q --quiet`."""
    option(to, names, None, about, action="store_true")


def option(to: argparse._ActionsContainer, names: str, value: str | None, about: str, **more: Any) -> None:
    """Add an option with a value, or a word that is no option; `value` is what the help calls it."""
    named = more if value is None else {"metavar": value, **more}
    to.add_argument(*names.split(), help=about, **named)


def add_command(commands: argparse._SubParsersAction[Parser], name: str, about: str, act: Any) -> Parser:
    """Add a command below a verb; `arguments.act` is what does it."""
    command = commands.add_parser(name, help=about, description=sentence(about))
    command.set_defaults(act=act)
    return command
