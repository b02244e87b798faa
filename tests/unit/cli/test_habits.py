"""Words of other programs: each alias means one of our words, and each pointer names words that exist."""

import re
import shlex
from collections.abc import Iterator, Mapping

import pytest

from codeloupe.cli import habits
from codeloupe.cli.main import VERBS, build_parser, main
from codeloupe.cli.parser import Parser, with_our_options
from codeloupe.config.schema import Settings
from codeloupe.model.agent import AGENT_NAMES, REVIEWER_NAMES
from codeloupe.reports import FORMATS, SWEEP_FORMATS

QUOTED = re.compile(r"`([^`]+)`")


def refuse(message: str, *, hint: str = "") -> None:
    raise AssertionError(f"{message}: {hint}")


def parsers(parser: Parser) -> Iterator[Parser]:
    yield parser
    for command in parser.commands().values():
        yield from parsers(command)


def options_by_command() -> dict[str, set[str]]:
    return {one.command: set(one._option_string_actions) for one in parsers(build_parser(list(VERBS)))}


def test_every_alias_stands_for_an_option_that_some_command_has() -> None:
    known = set().union(*options_by_command().values())
    wanted = {words.split()[0] for meanings in habits.OPTIONS.values() for words in meanings}
    assert wanted - known == set()


def test_every_alias_of_a_value_is_a_value_of_ours() -> None:
    assert set(habits.VALUES["--reviewer"].values()) <= set(REVIEWER_NAMES)
    assert set(habits.VALUES["--agent"].values()) <= set(AGENT_NAMES)
    assert set(habits.VALUES["--format"].values()) <= {*FORMATS, *SWEEP_FORMATS}


def test_every_alias_of_a_command_is_a_command() -> None:
    parser = build_parser(list(VERBS))
    for words in habits.COMMANDS[""].values():
        verb, name = words.split()
        assert name in parser.commands()[verb].commands()
    for group in habits.COMMANDS.keys() - {"", "*"}:
        assert set(habits.COMMANDS[group].values()) <= set(parser.commands()[group].commands())
    below = {name for command in parser.commands().values() for name in command.commands()}
    assert set(habits.COMMANDS["*"].values()) <= below


@pytest.mark.parametrize("table", [habits.COMMAND_POINTERS, habits.OPTION_POINTERS, habits.VALUE_POINTERS])
def test_every_command_in_a_pointer_can_be_typed(table: Mapping[str, Mapping[str, str]]) -> None:
    hints = {hint for pointers in table.values() for hint in pointers.values()}
    parser = build_parser(list(VERBS))
    typed = [quoted for hint in hints for quoted in QUOTED.findall(hint) if quoted.startswith("codeloupe ")]
    for command in typed:
        words = shlex.split(command)[1:]
        if words[-1] not in ("--help", "--version"):
            parser.parse_args(words)


def test_every_option_in_a_pointer_exists_where_it_is_shown() -> None:
    known = options_by_command()
    for command, pointers in habits.OPTION_POINTERS.items():
        for habit, hint in pointers.items():
            assert habit not in known[command], (command, habit)
            named = [quoted.split()[0] for quoted in QUOTED.findall(hint) if quoted.startswith("--")]
            assert set(named) <= known[command], (command, habit, hint)


def test_every_name_in_a_pointer_of_a_value_is_a_reviewer_or_a_setting() -> None:
    hints = {hint for pointers in habits.VALUE_POINTERS.values() for hint in pointers.values()}
    named = {quoted for hint in hints for quoted in QUOTED.findall(hint) if re.fullmatch("[a-z_]+", quoted)}
    assert named - {*REVIEWER_NAMES, *Settings.__struct_fields__} == set()


def test_no_pointer_is_shadowed_by_an_alias() -> None:
    known = options_by_command()
    for command, pointers in habits.OPTION_POINTERS.items():
        for habit in pointers:
            targets = {words.split()[0] for words in habits.OPTIONS.get(habit, ())}
            assert targets.isdisjoint(known[command]), (command, habit)


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("--cached", "--staged"),
        ("--dry-run src/", "--preview src/"),
        ("--offline --no-color", "--lanes offline --color never"),
        ("--agent claude", "--reviewer claude_cli"),
        ("--agent=claude-code,sdk", "--reviewer=claude_cli,agent_sdk"),
        ("--reviewer gemini-cli", "--reviewer gemini"),
        ("--reviewer Claude", "--reviewer claude_cli"),
        ("--output-format=github-actions", "--format=github"),
        ("--output-format json", "--format json"),
        ("--format md -o a.md", "--format markdown -o a.md"),
        ("-m opus -j 3 --silent", "--model opus --concurrency 3 --quiet"),
        ("--pull-request 12 --last", "--pr 12 --commit HEAD"),
        ("--stdin", "--diff-file -"),
        ("--diff-file - --json", "--diff-file - --json"),
        ("--offline=1", "--offline=1"),
        ("--model= --staged", "--model= --staged"),
        ("a.py -- --cached", "a.py -- --cached"),
    ],
)
def test_a_habit_is_read_as_our_words_in_review(typed: str, ours: str) -> None:
    words = typed.split()
    before, separator, after = words, [], []
    if "--" in words:
        place = words.index("--")
        before, separator, after = words[:place], ["--"], words[place + 1 :]
    known = options_by_command()["review"]
    assert [*with_our_options(before, known, end=refuse), *separator, *after] == ours.split()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "typed", "ours"),
    [
        ("commits", "--after yesterday -n 3", "--since yesterday --max 3"),
        ("commits", "--json", "--json"),
        ("history list", "-n 3 --max-count=4", "--limit 3 --limit=4"),
        ("history render", "last --json", "last --format json"),
        ("agent run", "hi --output-format json", "hi --json"),
        ("agent run", "hi --reviewer claude -C /x", "hi --agent claude_cli --working-dir /x"),
        ("agent list", "--format json", "--json"),
        ("jobs list", "--max 3", "--limit 3"),
        ("publish github", "--dry-run", "--dry-run"),
        ("version", "--json", "--json"),
    ],
)
def test_a_habit_means_an_option_that_the_command_has(command: str, typed: str, ours: str) -> None:
    known = options_by_command()[command]
    assert with_our_options(typed.split(), known, end=refuse) == ours.split()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("review --since yesterday", "review has no option --since", "`codeloupe commits --since '1 day ago'`"),
        ("review --all-files", "review has no option --all-files", "`codeloupe review 0..HEAD`"),
        ("review --exit-zero", "review has no option --exit-zero", "`--fail-on critical`"),
        ("review --config x.yaml", "review has no option --config", "settings come from codeloupe.yaml"),
        ("review --reviewer openai", "--reviewer has no value 'openai'", "`codex` is OpenAI's program"),
        ("review --max 3", "review has no option --max", "did you mean --max-budget-usd, --max-tokens or --max-req"),
        ("review -o json", "-o/--output: 'json' is a format: give --format json", "codeloupe review --help"),
        ("commits --output markdown", "-o/--output: 'markdown' is a format", "codeloupe commits --help"),
        ("doctor --output a.txt", "doctor has no option --output", "the result is printed"),
        ("history show --json", "history show has no option --json", "`codeloupe history render last --format json`"),
        ("review --fail-on never", "--fail-on has no value 'never'", "`--fail-on critical` exits 1 only"),
        ("commits --dry-run", "commits has no option --dry-run", "`git log --oneline"),
        ("ls", "'ls' is not a command", "did you mean `codeloupe agent list`, `codeloupe pipeline list`"),
        ("lint", "'lint' is not a command", "`codeloupe review` reviews a change"),
        ("login", "'login' is not a command", "agents have their own logins"),
        ("show", "'show' is not a command", "did you mean `codeloupe jobs show`, `codeloupe history show`"),
        ("budget", "'budget' is not a command", "`codeloupe spending` shows the cost of agent calls"),
        ("approve", "'approve' is not a command", "did you mean `codeloupe pipeline approve`?"),
        ("main..HEAD", "'main..HEAD' is not a command", "did you mean `codeloupe review main..HEAD`?"),
        ("--staged", "codeloupe itself has no option --staged", "options follow the command: `codeloupe review"),
        ("-C folder review", "codeloupe itself has no option -C", "`codeloupe review --repo DIR`"),
        ("publish gitlab", "'gitlab' is not a command of publish", "`codeloupe review --format gitlab-codequality"),
        ("config set", "'set' is not a command of config", "edit codeloupe.yaml"),
        ("help nonsense", "'nonsense' is not a command", "the commands are: review"),
    ],
)
def test_a_habit_without_one_meaning_ends_with_a_pointer(
    words: str, message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(shlex.split(words))
    assert end.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"codeloupe: {message}")
    assert second.startswith(f"  hint: {hint}")


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("help", "codeloupe COMMAND ..."),
        ("help review", "codeloupe review [A..B|PATH ...] [options]"),
        ("help history list", "codeloupe history list [options]"),
        ("history help list", "codeloupe history list [options]"),
        ("history help", "codeloupe history COMMAND ..."),
        ("help init", "codeloupe config init [options]"),
        ("help help", "codeloupe COMMAND ..."),
        ("init -h", "codeloupe config init [options]"),
        ("config list -h", "codeloupe config show [options]"),
        ("jobs ls -h", "codeloupe jobs list [options]"),
        ("pipeline rm -h", "codeloupe pipeline remove [RUN] [options]"),
    ],
)
def test_help_can_be_asked_for_by_its_word(words: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {usage}\n")
