"""The parser of all commands: how help looks, and the messages about wrong words. Loaded on every start."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NoReturn

from codeloupe.cli import habits
from codeloupe.system.spelling import nearest
from codeloupe.system.untrusted import log_line

# More options that begin with the same letters are too many to choose from in one hint.
_MOST_MEANT = 3


class HelpFormatter(argparse.HelpFormatter):
    """As wide as the terminal, up to a width that can be read; options and their meanings in two columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=29, width=min(shutil.get_terminal_size().columns, 100))

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        """Write the usage as one line: required and optional arguments, and `[options]` for the rest."""
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
        """Write a line for each command, and none for the word COMMAND."""
        if not _has_commands(action):
            return super()._format_action(action)
        return "".join(super(HelpFormatter, self)._format_action(each) for each in action._get_subactions())  # type: ignore[attr-defined]  # noqa: SLF001 - it has no other name

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap paragraphs; empty lines and indented ones, which are tables, stay as they are."""
        lines: list[str] = []
        for is_prose, found in groupby(text.strip("\n").splitlines(), lambda line: line[:1] not in ("", " ")):
            part = list(found)
            if is_prose:
                part = self._split_lines(" ".join(part), width)
            lines += part
        return "\n".join(f"{indent}{line}".rstrip() for line in lines)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Wrap a text. Words with a hyphen, such as options, stay whole."""
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _has_commands(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - it has no other name


class Parser(argparse.ArgumentParser):
    """A parser that understands habits from other programs, and says what was probably meant by a wrong word."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": HelpFormatter, "allow_abbrev": False, **options})
        # Whether `words` may be anywhere, and what follows `--` are `paths`.
        self.takes_paths = False
        # Whether words that this command does not know are `options` for a command that it starts.
        self.passes_on = False
        # Return a hint for a word that is not a command, and one for an option that is not ours; or an empty text.
        self.command_hint: Callable[[str], str] = lambda _word: ""
        self.option_hint: Callable[[str], str] = lambda _option: ""
        self._positionals.title = "arguments"

    @property
    def command(self) -> str:
        """The command without the name of the program, such as `history list`."""
        return self.prog.partition(" ")[2]

    def add_commands(self, *, dest: str, required: bool = True) -> argparse._SubParsersAction[Parser]:
        """Add a place for the commands below this one."""
        return self.add_subparsers(title="commands", metavar="COMMAND", dest=dest, required=required, prog=self.prog)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse. Unknown words end the program here, where it is known which command they were for."""
        words = list(sys.argv[1:] if args is None else args)
        after: list[str] = []
        if self.takes_paths and "--" in words:
            place = words.index("--")
            words, after = words[:place], words[place + 1 :]
        parsed, unknown = super().parse_known_args(self._without_habits(words), namespace)
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
            self._refuse_option(unknown[0].partition("=")[0])
        return parsed, unknown

    def _without_habits(self, words: list[str]) -> list[str]:
        """Return the words with our own in the place of habits from other programs."""
        known = self._option_string_actions
        commands = self.commands()
        if not commands:
            return with_our_options(words, known, end=self._end)
        words = with_our_command(words, commands, self.command)
        # Words after the command belong to that command.
        first = _place_of_command(words)
        own = with_our_options(words[:first], known, end=self._end)
        for word in own:
            # Otherwise argparse takes the value of this option for a command.
            if word.partition("=")[0] not in known:
                self._refuse_option(word.partition("=")[0])
        return own + words[first:]

    def commands(self) -> dict[str, Parser]:
        """Return the parsers of the commands below this one, by their names."""
        found: dict[str, Parser] = {}
        for action in self._actions:
            if _has_commands(action):
                found.update(action.choices)  # type: ignore[arg-type]  # parsers by their names
        return found

    def understands(self, name: str) -> bool:
        """Tell whether this command has an option of this name, or one that it is a habit for."""
        return name in self._option_string_actions or bool(_alias(name, self._option_string_actions))

    def _refuse_option(self, option: str) -> NoReturn:
        known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        hint = habits.option_pointer(self.command, option) or self.option_hint(option) or _meant_option(option, known)
        self._end(f"{self._name} has no option {option}", hint=hint)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and the way to the help, and exit with 2."""
        commands = self.commands()
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
        """Print as argparse does, but fail if the help cannot be written."""
        if file is sys.stdout:
            sys.stdout.write(message)
            sys.stdout.flush()
        else:
            super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = list(map(str, action.choices))
        near = nearest(str(value), known)
        if _has_commands(action):
            of = f" of {self._name}" if self.command else ""
            pointer = habits.COMMAND_POINTERS.get(self.command, {}).get(value) or self.command_hint(value)
            if not pointer:
                pointer = f"did you mean {near!r}?" if near else f"the commands are: {', '.join(known)}"
            self._end(f"{value!r} is not a command{of}", hint=pointer)
        name = "/".join(action.option_strings) or action.metavar or action.dest
        self._end(f"{name}: expected {either(known)}, found {value!r}", hint=f"did you mean {near}?" if near else "")

    @property
    def _name(self) -> str:
        """The command as its users call it; every message begins with the name of the program already."""
        return self.command or f"{self.prog} itself"

    def _end(self, message: str, *, hint: str = "") -> NoReturn:
        hint = hint or f"{self.prog} --help shows what there is"
        self.exit(2, f"codeloupe: {log_line(message)}\n  hint: {log_line(hint)}\n")


def with_our_command(words: list[str], commands: Container[str], group: str) -> list[str]:
    """Return the words with one of the `commands` of a group in the place of a habit; `help X` is `X --help`."""
    first = _place_of_command(words)
    if first == len(words) or words[first] in commands:
        return words
    before, name, rest = words[:first], words[first], words[first + 1 :]
    if name == "help":
        return with_our_command([*before, *rest, "--help"], commands, group)
    meant = habits.COMMANDS.get(group, {}).get(name) or habits.COMMANDS["*"].get(name, name)
    if meant.split()[0] not in commands:
        return words
    return [*before, *meant.split(), *rest]


def _place_of_command(words: list[str]) -> int:
    for place, word in enumerate(words):
        if not word.startswith("-"):
            return place
    return len(words)


def with_our_options(words: list[str], known: Container[str], *, end: Callable[..., NoReturn]) -> list[str]:
    """Return the words of a command that has the `known` options, with our own in the place of habits.

    Call `end` with a message and a hint for a value that another program would understand.
    """
    ours: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            # The words after it are not options.
            return [*ours, word, *waiting]
        option, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            ours.append(word)
        elif equals:
            names, left = _our_words(option, value, known, end=end)
            if left is None:
                ours += names
            elif len(names) == 1:
                ours.append(f"{names[0]}={left}")
            else:
                ours.append(word)
        elif waiting and not waiting[0].startswith("-"):
            # The next word is the value of this option, or an argument.
            names, left = _our_words(option, waiting.pop(0), known, end=end)
            ours += names if left is None else [*names, left]
        elif option in known:
            ours.append(option)
        else:
            ours += _alias(option, known) or [option]
    return ours


def _our_words(
    option: str, value: str, known: Container[str], *, end: Callable[..., NoReturn]
) -> tuple[list[str], str | None]:
    """Return our words for an option, and for the word after it; None if both together are one habit."""
    if option in known:
        return [option], _our_value(option, value, end=end)
    exact = _alias(f"{option} {value}", known)
    if exact:
        return exact, None
    names = _alias(option, known) or [option]
    if len(names) > 1:
        return names, value
    return names, _our_value(names[0], value, end=end)


def _alias(habit: str, known: Container[str]) -> list[str]:
    """Return our words for a habit in a command with the known options, or nothing."""
    for words in habits.OPTIONS.get(habit, ()):
        if words.split()[0] in known:
            return words.split()
    return []


def _our_value(option: str, value: str, *, end: Callable[..., NoReturn]) -> str:
    """Return the value, or each value of a list with commas, as we call it."""
    aliases = habits.VALUES.get(option, {})
    pointers = habits.VALUE_POINTERS.get(option, {})
    meant = []
    for part in value.split(","):
        word = part.strip().lower()
        if word in pointers:
            end(f"{option} has no value {part.strip()!r}", hint=pointers[word])
        meant.append(aliases.get(word, part))
    return ",".join(meant)


def _meant_option(option: str, known: list[str]) -> str:
    """Return the question for the options that begin with these letters, or for the one that is nearly the same."""
    begun = [name for name in known if name.startswith(option) and len(option) > len("--x")]
    if 0 < len(begun) <= _MOST_MEANT:
        return f"did you mean {either(begun)}?"
    near = nearest(option.lstrip("-"), [name.lstrip("-") for name in known])
    return f"did you mean --{near}?" if near else ""


def either(words: Sequence[str]) -> str:
    """Return `a, b or c`."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def sentence(words: str) -> str:
    """Return a line of the list of commands as a sentence."""
    return f"{words[:1].upper()}{words[1:]}."


def examples(parser: Parser, *lines: str) -> None:
    """Put commands that a reader can paste before the other notes at the end of the help."""
    block = "".join(f"  {line}\n" for line in lines)
    parser.epilog = f"examples:\n{block}\n{parser.epilog or ''}"


def add_examples(parser: Parser, lines_of: Mapping[str, Sequence[str]]) -> None:
    """Add examples to a command (the empty name) and to each command below it, by its name."""
    for name, lines in lines_of.items():
        examples(parser.commands()[name] if name else parser, *lines)


def flag(to: argparse._ActionsContainer, names: str, about: str) -> None:
    """Add an option without a value, such as `-q --quiet`."""
    option(to, names, None, about, action="store_true")


def option(to: argparse._ActionsContainer, names: str, value: str | None, about: str, **more: Any) -> None:
    """Add an option with a value, or an argument; the help calls its value `value`."""
    named = more if value is None else {"metavar": value, **more}
    to.add_argument(*names.split(), help=about, **named)


def add_command(commands: argparse._SubParsersAction[Parser], name: str, about: str, act: Any) -> Parser:
    """Add a command below a verb; `arguments.act` executes it."""
    command = commands.add_parser(name, help=about, description=sentence(about))
    command.set_defaults(act=act)
    return command
