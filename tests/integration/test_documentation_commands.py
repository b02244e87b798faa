"""Every command of the documentation, of the files for CI and of the examples is executed, or is listed with a reason.

The program is the one that people install: the wheel in a fresh environment, away from the source tree. Each page is
typed into a shell from top to bottom, in a repository that is removed afterwards. A command within a sentence is often
a part of one, so `test_documentation_truth.py` checks its verb and its options against the parser.
"""

import importlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.ci_runner import ACTION, read_yaml
from tests.documentation_pages import PAGES, PROJECT, Block, Command, all_commands, blocks, commands, name_of
from tests.documentation_place import Place, place_for
from tests.documentation_verbs import calls, verb_of, verbs
from tests.fresh_install import Install
from tests.program import Ended

VERBS = verbs()
README = PROJECT / "README.md"
# A review that finds something ends with 1, and so does a command that shows or judges one again.
MAY_FIND = frozenset({"review", "commits", "history render", "history show", "jobs watch"})

# Lines of pages that no test executes, by their beginning, with the reason.
NOT_EXECUTED: Mapping[str, str] = {
    "make ": "sets up the project itself, which the tests are a part of; a test checks that the target exists",
    "reviewdog ": "is another project's program; tests check the format that it reads",
}
# Lines of workflows that a page shows, by their beginning, with the reason why no test executes them.
WORKFLOW_LINES_NOT_EXECUTED: Mapping[str, str] = {
    "uvx --from git+https://HOST/OWNER/codeloupe@COMMIT codeloupe review": (
        "names an address that only the reader has; the page has the same command with a path, which is executed"
    ),
}
# Lines of pages that need a checkout of codeloupe, by their beginning, with the test that executes them.
INSTALLS = "tests.integration.test_installs::test_each_documented_install_gives_a_program_that_works"
EXECUTED_ELSEWHERE: Mapping[str, str] = {
    "pip install": INSTALLS,
    "pipx install": INSTALLS,
}
# Whole pages that need more than one repository, with the test that executes them.
PAGES_ELSEWHERE: Mapping[str, str] = {
    "docs/uv.md": "tests.integration.test_installs::test_the_page_about_uv_works_as_it_is_written",
}
_HOOKS = "tests.integration.test_installs::test_the_hooks_of_the_page_review_a_commit_and_a_push"
# Scripts that a page shows as a file, by their last line, with the test that executes them.
SCRIPTS: Mapping[str, str] = {
    "exec codeloupe hook pre-commit": _HOOKS,
    'exec codeloupe hook pre-push "$@"': _HOOKS,
}
_ACTION_TESTS = "tests.integration.test_ci_action"
_REVIEW = f"{_ACTION_TESTS}::test_a_pull_request_is_reviewed_reported_and_fails_the_job"
_GITLAB = f"{_ACTION_TESTS}::test_the_job_of_gitlab_writes_its_reports_and_ends_with_the_verdict"
_FIRST_DAY = "tests.integration.test_first_day::test_the_first_day"
_BUILD = "tests.integration.test_release::test_the_steps_that_build_and_check_pass_for_this_version"
_WORKFLOW = ".github/workflows/release.yml"
# The shell in the files for CI, by file and step, with the test that executes it.
STEPS: Mapping[tuple[str, str], str] = {
    ("action.yml", "Install codeloupe"): f"{_ACTION_TESTS}::test_the_action_really_installs_itself",
    ("action.yml", "Review"): _REVIEW,
    ("action.yml", "Post the review"): f"{_ACTION_TESTS}::test_to_post_is_a_job_of_its_own_too",
    ("action.yml", "Verdict"): _REVIEW,
    ("ci/gitlab.yml", "before_script"): f"{_ACTION_TESTS}::test_the_job_of_gitlab_really_installs_the_package",
    ("ci/gitlab.yml", "script"): _GITLAB,
    ("ci/gitlab.yml", "after_script"): _GITLAB,
    (".pre-commit-hooks.yaml", "codeloupe-staged"): _FIRST_DAY,
    (".pre-commit-hooks.yaml", "codeloupe"): _FIRST_DAY,
    (_WORKFLOW, "Build"): _BUILD,
    (_WORKFLOW, "Check"): _BUILD,
    (_WORKFLOW, "Release"): "tests.integration.test_release::test_the_release_has_the_notes_and_the_files",
}
# The shell in the files for CI that no test executes, with the reason.
STEPS_NOT_EXECUTED: Mapping[tuple[str, str], str] = {
    (_WORKFLOW, "Test"): "runs all tests, and so this one",
}


def beginning_of(line: str, table: Mapping[str, str]) -> str | None:
    """Return the entry of the table that the line begins with, or None."""
    for beginning, value in table.items():
        if line.startswith(beginning):
            return value
    return None


def is_typed(line: str) -> bool:
    """Return whether a line is typed here, in the place of its page."""
    return beginning_of(line, NOT_EXECUTED) is None and beginning_of(line, EXECUTED_ELSEWHERE) is None


def expected_exit_codes(line: str) -> frozenset[int]:
    """Return 0, and also 1 if the last call of the line may find something."""
    called = [verb_of(words, VERBS) for words in calls(line)]
    if called and called[-1] in MAY_FIND:
        return frozenset({0, 1})
    return frozenset({0})


def steps_of(page: Path) -> Iterator[Block | Command]:
    """Yield each thing that a reader does with a page, in its order."""
    for block in blocks(page):
        if block.language == "python" or block.file is not None:
            yield block
        for command in commands(block):
            if is_typed(command.text):
                yield command


def mishap(place: Place, step: Block | Command) -> str | None:
    """Do one step, and return its failure in words, or None."""
    if isinstance(step, Block) and step.file is not None:
        place.write(step)
        return None
    if isinstance(step, Block):
        ended = place.execute(step)
        allowed = frozenset({0})
        name = f"{name_of(step.page)}:{step.line}: the program"
    else:
        ended = place.type(step.text)
        allowed = expected_exit_codes(step.text)
        name = str(step)
    if ended.exit_code in allowed and "Traceback" not in ended.stderr:
        return None
    return f"{name}\n  ended with {ended.exit_code}: {_last_words(ended)}"


def _last_words(ended: Ended) -> str:
    return (ended.stderr.strip() or ended.stdout.strip())[-1_500:]


def typed_pages() -> list[Path]:
    return [page for page in PAGES if name_of(page) not in PAGES_ELSEWHERE and list(steps_of(page))]


# The agents are the real programs, and a page calls up to a dozen of them, one after the other.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", typed_pages(), ids=name_of)
def test_every_command_and_program_of_the_page_does_what_it_should(
    page: Path, tmp_path: Path, fresh_install: Install
) -> None:
    mishaps = []
    with place_for(page, tmp_path, fresh_install) as place:
        for step in steps_of(page):
            found = mishap(place, step)
            if found is not None:
                mishaps.append(found)
    assert not mishaps, "\n" + "\n".join(mishaps)


def test_the_program_of_the_pages_comes_from_the_wheel(tmp_path: Path, fresh_install: Install) -> None:
    with place_for(README, tmp_path, fresh_install) as place:
        found = place.type("command -v codeloupe").stdout.strip()
        code = "import codeloupe, pathlib; print(pathlib.Path(codeloupe.__file__).resolve())"
        imported = place.execute(Block(README, 1, "python", code)).stdout.strip()
    assert found == str(fresh_install.program)
    assert Path(imported).is_relative_to(fresh_install.folder)
    assert "site-packages" in imported


def test_each_exception_is_needed_and_none_is_a_call_of_codeloupe() -> None:
    lines = [command.text for command in all_commands()]
    for beginning in (*NOT_EXECUTED, *EXECUTED_ELSEWHERE):
        assert any(line.startswith(beginning) for line in lines), f"no page has a line `{beginning}…`"
    assert [line for line in lines if line.startswith("codeloupe") and not is_typed(line)] == []
    assert sum(line.startswith("codeloupe") for line in lines) > 60


def scripts() -> Iterator[str]:
    """Yield the last line of each script that a page shows as a file."""
    for page in PAGES:
        for block in blocks(page):
            if block.is_script:
                yield block.text.strip().splitlines()[-1]


def shell_steps() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each step with commands in the files for CI."""
    for step in read_yaml(ACTION)["runs"]["steps"]:
        yield "action.yml", step["name"]
    for section in ("before_script", "script", "after_script"):
        if section in read_yaml(PROJECT / "ci" / "gitlab.yml")["codeloupe"]:
            yield "ci/gitlab.yml", section
    for hook in read_yaml(PROJECT / ".pre-commit-hooks.yaml"):
        yield ".pre-commit-hooks.yaml", hook["id"]
    for file in (*(PROJECT / "ci" / "github").glob("*.yml"), *(PROJECT / ".github" / "workflows").glob("*.yml")):
        for job in read_yaml(file)["jobs"].values():
            for step in job["steps"]:
                if "run" in step:
                    yield str(file.relative_to(PROJECT)), step["name"]


def test_every_script_and_every_step_of_ci_names_the_test_that_executes_it() -> None:
    assert set(scripts()) == set(SCRIPTS)
    assert set(shell_steps()) == {*STEPS, *STEPS_NOT_EXECUTED}


def test_every_line_of_a_workflow_on_a_page_is_listed_with_its_reason() -> None:
    lines = []
    for page in PAGES:
        for block in blocks(page):
            if block.language == "yaml":
                lines += re.findall(r"^ *-? ?run: (.+)$", block.text, re.MULTILINE)
    assert lines
    assert [line for line in lines if beginning_of(line, WORKFLOW_LINES_NOT_EXECUTED) is None] == []


def test_every_test_that_the_tables_name_exists() -> None:
    named = {*EXECUTED_ELSEWHERE.values(), *PAGES_ELSEWHERE.values(), *SCRIPTS.values(), *STEPS.values()}
    for name in named:
        module, _, test = name.partition("::")
        assert callable(getattr(importlib.import_module(module), test)), name


def test_targets_and_extras_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for command in all_commands():
        if target := re.match(r"make ([a-z]+)", command.text):
            assert target[1] in targets, command
    for page in PAGES:
        for named in re.findall(r"install '\.\[([a-z,]+)\]", page.read_text(encoding="utf-8")):
            assert set(named.split(",")) <= extras, page


def test_a_wrong_line_would_be_noticed(tmp_path: Path, fresh_install: Install) -> None:
    block = Block(README, 1, "", "")
    with place_for(README, tmp_path, fresh_install) as place:
        for line in ("codeloupe review --no-such-option", "codeloupe history show 0000", "no-such-program"):
            assert mishap(place, Command(block, line)) is not None, line
        assert mishap(place, Block(README, 1, "python", "import codeloupe\ncodeloupe.no_such_name\n")) is not None
        assert mishap(place, Command(block, "git log -1 | codeloupe version")) is None
