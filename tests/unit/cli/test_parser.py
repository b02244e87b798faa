"""How help looks at any width, and what is said about wrong words."""

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest

from codeloupe.cli.main import VERBS, build_parser, main


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def every_parser() -> list[argparse.ArgumentParser]:
    return list(parsers(build_parser(list(VERBS))))


@pytest.mark.defect("E13")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_of_any_help_is_wider_than_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = {parser.prog: parser.format_help() for parser in every_parser()}
    assert len(shown) > 30
    # Tables and commands to be pasted are not broken, so they fit into 80 columns.
    wide = [(prog, line) for prog, text in shown.items() for line in text.splitlines() if len(line) > max(columns, 80)]
    assert wide == []


def example_lines(parser: argparse.ArgumentParser) -> list[str]:
    """Return the lines below `examples:` at the end of the help."""
    _, heading, rest = parser.format_help().partition("\nexamples:\n")
    lines = rest.split("\n\n")[0].splitlines() if heading else []
    return [line.strip() for line in lines]


def test_every_help_has_examples() -> None:
    assert [parser.prog for parser in every_parser() if not example_lines(parser)] == []


@pytest.mark.parametrize("parser", every_parser(), ids=lambda parser: parser.prog)
def test_every_example_is_a_command_that_the_program_understands(parser: argparse.ArgumentParser) -> None:
    program = build_parser(list(VERBS))
    for line in example_lines(parser):
        words = shlex.split(re.sub(r"[$\"()]", "", line.split(" > ")[0]), comments="# " in line)
        words = words[words.index("codeloupe") + 1 :]
        # An example shows its own command.
        assert f"codeloupe {' '.join(words)}".startswith(parser.prog), line
        if words[0] == "help":
            assert words[1] in VERBS, line
        else:
            program.parse_args(words)


def test_every_command_and_every_option_says_what_it_is_for() -> None:
    for parser in every_parser():
        assert parser.description, parser.prog
        assert [action.dest for action in parser._actions if not action.help and not action.choices] == [], parser.prog
        assert "{" not in parser.format_help(), parser.prog


def test_the_usage_is_one_line_with_what_has_to_be_given() -> None:
    usages = [parser.format_usage().removeprefix("usage: ").strip() for parser in every_parser()]
    assert "codeloupe COMMAND ..." in usages
    assert "codeloupe review [A..B|PATH ...] [options]" in usages
    assert "codeloupe baseline add [FINGERPRINT ...] --reason TEXT [options]" in usages
    assert "codeloupe pipeline approve [RUN] [STAGE] [options]" in usages
    assert "codeloupe pipeline validate [FILE ...] [options]" in usages
    assert [usage for usage in usages if "\n" in usage] == []


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["review", "--stagged"], "review has no option --stagged", "did you mean --staged?"),
        (["review", "--stagged=1"], "review has no option --stagged", "did you mean --staged?"),
        (["history", "list", "--zzz"], "history list has no option --zzz", "codeloupe history list --help"),
        (["history", "lst"], "'lst' is not a command of history", "did you mean 'list'?"),
        (["history", "zzz"], "'zzz' is not a command of history", "the commands are: list, show, render"),
        (["history"], "history needs a command: list, show, render", "codeloupe history --help shows"),
        (["version", "x"], "version does not know what to do with 'x'", "codeloupe version --help shows"),
        (["completion"], "completion needs SHELL", "codeloupe completion --help shows"),
        (["baseline", "add", "a.py:1"], "baseline add needs --reason", "codeloupe baseline add --help"),
        (["config", "show", "--js"], "config show has no option --js", "did you mean --json?"),
        (["review", "--effort", "hihg"], "--effort: expected low, medium or high, found 'hihg'", "did you mean high?"),
        (["completion", "fish"], "SHELL: expected bash, zsh or tcsh, found 'fish'", "codeloupe completion --help"),
        (["review", "-v", "-q"], "-q/--quiet and -v/--verbose exclude each other", "codeloupe review --help"),
        (["review", "--fresh", "--resume"], "--resume and --fresh exclude each other", "codeloupe review --help"),
        (["review", "--passes", "many"], "--passes: expected a number, found 'many'", "codeloupe review --help"),
        (
            ["commits", "--format", "html"],
            "--format: expected text, json",
            "codeloupe commits --help",
        ),
        (["review", "--model"], "--model needs a value", "codeloupe review --help shows"),
        (["commits", "--max", "x"], "--max: expected a number, found 'x'", "codeloupe commits --help shows"),
        (["review", "--\x1b[31m"], "review has no option --\\x1b[31m", "codeloupe review --help shows"),
        (["--nonsense"], "codeloupe itself has no option --nonsense", "codeloupe --help shows"),
    ],
)
def test_wrong_words_are_told_with_what_was_meant(
    words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"codeloupe: {message}")
    assert second.startswith(f"  hint: {hint}")
