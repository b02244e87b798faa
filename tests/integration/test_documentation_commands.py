"""Every command and every program of the documentation is executed, in a repository that is thrown away."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.documentation_pages import PAGES, PROJECT, Block, Command, all_commands, blocks, commands, name_of
from tests.documentation_place import Place, place_for
from tests.documentation_verbs import calls, verb_of, verbs
from tests.program import Ended

VERBS = verbs()
README = PROJECT / "README.md"
# Lines that no test can type, by their beginning, each with the reason. Keep it short.
NOT_TYPED: Mapping[str, str] = {
    "pip install": "fetches packages from the network; that its extras exist is tested",
    "pipx install": "fetches packages from the network",
    "make ": "sets up the project itself; that the target exists is tested",
    "reviewdog ": "another project's program, which is not installed",
}
# A review that finds something ends with 1, and so does what shows or judges one again.
MAY_FIND = frozenset({"review", "commits", "history render", "history show", "jobs watch"})


# What most people type; `make soak` types all pages.
FIRST_READ = (
    "README.md",
    "docs/getting-started.md",
    "docs/library.md",
    "docs/events-and-errors.md",
    "docs/scripted-answers.md",
)


def reason_not_to_type(line: str) -> str | None:
    return next((reason for beginning, reason in NOT_TYPED.items() if line.startswith(beginning)), None)


def expected_exit_codes(line: str) -> frozenset[int]:
    """0, or also 1 where the last call of the line may find something."""
    called = [verb_of(words, VERBS) for words in calls(line)]
    return frozenset({0, 1}) if called and called[-1] in MAY_FIND else frozenset({0})


def steps_of(page: Path) -> Iterator[Block | Command]:
    """What a reader does with a page, in its order. What the README repeats of other pages is done there."""
    for block in blocks(page):
        if block.language == "python" or block.file is not None:
            yield block
        for command in commands(block):
            if reason_not_to_type(command.text) is None and not (page == README and is_typed_elsewhere(command)):
                yield command


def is_typed_elsewhere(command: Command) -> bool:
    words = list(calls(command.text))
    return any(list(calls(other.text)) == words for other in all_commands() if other.block.page != README)


def mishap(place: Place, step: Block | Command) -> str | None:
    """Do one step; what went wrong, in words, or None."""
    if isinstance(step, Block) and step.file is not None:
        place.write(step)
        return None
    ended = place.execute(step) if isinstance(step, Block) else place.type(step.text)
    allowed = expected_exit_codes(step.text) if isinstance(step, Command) else {0}
    if ended.exit_code in allowed and "Traceback" not in ended.stderr:
        return None
    name = str(step) if isinstance(step, Command) else f"{name_of(step.page)}:{step.line}: the program"
    return f"{name}\n  ended with {ended.exit_code}: {_last_words(ended)}"


def _last_words(ended: Ended) -> str:
    return (ended.stderr.strip() or ended.stdout.strip())[-1_500:]


# The agents are the real programs, and a page calls up to a dozen of them, one after the other.
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=() if name_of(page) in FIRST_READ else pytest.mark.soak)
        for page in PAGES
        if list(steps_of(page))
    ],
)
def test_every_command_and_program_of_the_page_does_what_it_should(page: Path, tmp_path: Path) -> None:
    with place_for(page, tmp_path) as place:
        mishaps = [found for step in steps_of(page) if (found := mishap(place, step)) is not None]
    assert not mishaps, "\n" + "\n".join(mishaps)


def test_nearly_every_line_is_typed_and_each_exception_is_needed() -> None:
    lines = [command.text for command in all_commands()]
    unused = [beginning for beginning in NOT_TYPED if not any(line.startswith(beginning) for line in lines)]
    assert unused == []
    assert len(NOT_TYPED) <= 5
    assert [line for line in lines if line.startswith("codeloupe") and reason_not_to_type(line)] == []
    assert sum(line.startswith("codeloupe") for line in lines) > 60


def test_targets_and_extras_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for command in all_commands():
        if target := re.match(r"make ([a-z]+)", command.text):
            assert target[1] in targets, command
    for page in PAGES:
        for named in re.findall(r"install '\.\[([a-z,]+)\]", page.read_text(encoding="utf-8")):
            assert set(named.split(",")) <= extras, page


def test_a_wrong_line_would_be_noticed(tmp_path: Path) -> None:
    block = Block(README, 1, "", "")
    with place_for(README, tmp_path) as place:
        for line in ("codeloupe review --no-such-option", "codeloupe history show 0000", "no-such-program"):
            assert mishap(place, Command(block, line)) is not None, line
        assert mishap(place, Block(README, 1, "python", "import codeloupe\ncodeloupe.no_such_name\n")) is not None
        assert mishap(place, Command(block, "git log -1 | codeloupe version")) is None
