"""The reviewers for orchestrators on real repositories, and every example of their guide."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.config.files import ConfigText
from codeloupe.config.loading import load_settings
from codeloupe.config.schema import Settings
from codeloupe.errors import ConfigError
from codeloupe.integrations import CodeReviewer, ReviewResult, WorkdirReviewer, make_reviewer
from codeloupe.model.review import Verdict
from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.children import assert_all_gone, recorded_pids, until_recorded
from tests.endings import with_enough_time
from tests.program import PYTHON_HEADER
from tests.proofs import asks_for_proofs, proofs
from tests.repository import GitRepository
from tests.rows import each
from tests.sweep_history import Made, make_commits

GUIDE = (Path(__file__).parents[2] / "docs" / "orchestrators.md").read_text(encoding="utf-8")
FAULT = "import os\n\n\ndef run(name):\n    os.system('echo ' + name)\n"
CLEAN = "def add(one, two):\n    return one + two\n"
OFFLINE = Settings(reviewer_type="offline")


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    return found


RANGE_EXAMPLE, WORKDIR_EXAMPLE, REVIEWER_EXAMPLE = blocks("python")


@pytest.fixture
def project(tmp_path: Path) -> GitRepository:
    """Branch `work` with a clean, a faulty and an empty commit over `main`."""
    made = [
        Made(message="first", files={"base.py": CLEAN}),
        Made(message="clean", files={"clean.py": CLEAN}),
        Made(message="fault", files={"fault.py": FAULT}),
        Made(message="empty"),
    ]
    make_commits(tmp_path / "repository", made)
    repository = GitRepository(tmp_path / "repository")
    repository.checkout("work", new=True)
    repository.git("branch", "--force", "main", "main~3")
    return repository


def review(project: GitRepository, diff_range: str, *commits: str, **options: object) -> ReviewResult:
    reviewer = CodeReviewer(project.path, settings=OFFLINE, **options)  # type: ignore[arg-type]  # as its own names say
    return asyncio.run(reviewer(diff_range, commit_shas=list(commits) or None))


def command(folder: Path, text: str, *words: str, **more: Any) -> Settings:
    """Settings with a program of that text as the reviewer."""
    program = folder / "reviewer"
    program.write_text(text)
    program.chmod(0o755)
    return Settings(reviewer_type="command", review_command=(str(program), *words), **more)


def asleep(folder: Path) -> Settings:
    """Settings with a reviewer that tells that it was started, and then takes for ever."""
    pid = str(folder / "sleeper.pid")
    body = f"import os, time\nopen({pid!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    return command(folder, PYTHON_HEADER + body)


def answered(project: GitRepository, answer: object, *, verify: bool = False) -> ReviewResult:
    """What becomes of the answer of a model."""

    def reply(request: RecordedRequest) -> Reply:
        if asks_for_proofs(request):
            return proofs(request, "confirmed", "The name reaches the shell.")
        return Json(answer)

    with StandInServer(reply=reply) as server:
        url = f"{server.url}/v1"
        # Without a history, so that each answer is judged by itself.
        settings = Settings(
            reviewer_type="api", api_model="stand-in", api_base_url=url, verify=verify, keep_history=False
        )
        return asyncio.run(make_reviewer(settings, repo=project.path)("HEAD~2..HEAD~1"))


@pytest.mark.requirement("V1")
@pytest.mark.requirement("V10")
def test_a_faulty_range_does_not_pass_a_clean_one_does_and_neither_touches_the_review_gate(
    project: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "review-gate"
    gate.write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\n")
    gate.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    result = review(project, "main..HEAD", log_directory=tmp_path / "logs")
    assert (result.passed, result.parse_error, result.fatal_error) == (False, None, False)
    assert {issue.file for issue in result.issues} == {"fault.py"}
    assert all(issue.title.startswith(f"[P{issue.priority}] ") for issue in result.issues)
    assert result.review_log_path is not None
    assert json.loads(result.review_log_path.read_text())["verdict"] == "FAIL"
    assert review(project, "main..HEAD~2") == ReviewResult(passed=True)
    assert not (tmp_path / "started").exists()


def test_commits_are_reviewed_each_by_itself(project: GitRepository) -> None:
    assert review(project, "", "HEAD~2") == ReviewResult(passed=True)
    result = review(project, "", "HEAD~2", "HEAD~1", "HEAD")
    assert (result.passed, {issue.file for issue in result.issues}) == (False, {"fault.py"})


@pytest.mark.requirement("V2")
def test_no_changes_pass_without_asking_anybody(project: GitRepository, tmp_path: Path) -> None:
    reviewer = CodeReviewer(project.path, settings=asleep(tmp_path))
    assert asyncio.run(reviewer("HEAD..HEAD")) == ReviewResult(passed=True)
    assert asyncio.run(reviewer("HEAD~1..HEAD")) == ReviewResult(passed=True)
    assert asyncio.run(reviewer("", commit_shas=["HEAD"])) == ReviewResult(passed=True)
    assert recorded_pids(tmp_path) == []


@each("diff_range", ["main..no-such-branch", "main", "--output=x..HEAD"])
def test_a_range_that_means_nothing_is_fatal_and_no_exception(project: GitRepository, diff_range: str) -> None:
    result = review(project, diff_range)
    assert (result.passed, result.fatal_error, result.issues) == (False, True, ())
    assert result.parse_error


@pytest.mark.requirement("V9")
def test_at_its_time_limit_a_review_is_over_and_its_agent_is_gone(project: GitRepository, tmp_path: Path) -> None:
    reviewer = make_reviewer(asleep(tmp_path), repo=project.path)
    result = with_enough_time(
        lambda seconds: asyncio.run(reviewer("main..HEAD", timeout=seconds)),
        ready=lambda _: bool(recorded_pids(tmp_path)),
    )
    assert result == ReviewResult(passed=False, verdict=Verdict.INCOMPLETE, parse_error="timeout", fatal_error=False)
    pids = recorded_pids(tmp_path)
    assert len(pids) == 1
    assert_all_gone(pids)


@pytest.mark.requirement("C8")
def test_a_cancelled_review_leaves_nothing_running(project: GitRepository, tmp_path: Path) -> None:
    async def go() -> None:
        reviewer = WorkdirReviewer(settings=asleep(tmp_path))
        task = asyncio.ensure_future(reviewer.review(project.path, "main"))
        await until_recorded(tmp_path, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert_all_gone(recorded_pids(tmp_path))


@pytest.mark.requirement("V8")
def test_an_answer_that_cannot_be_read_is_named_in_both_shapes(project: GitRepository, tmp_path: Path) -> None:
    talker = '#!/bin/sh\ncat > /dev/null\necho \'{"verdict": "PASS"}\'\n'
    settings = command(tmp_path, talker, on_parse_error="pass")
    warnings: list[str] = []
    reviewer = CodeReviewer(project.path, settings=settings, on_review_warning=warnings.append)
    assert asyncio.run(reviewer("main..HEAD")) == ReviewResult(
        passed=False, verdict=Verdict.INCOMPLETE, parse_error="missing field: findings"
    )
    assert "missing field: findings" in warnings
    result = asyncio.run(WorkdirReviewer(settings=settings).review(project.path, "main"))
    assert (result.passed, result.summary) == (True, "Failed to parse review output")
    assert result.raw_output.strip() == '{"verdict": "PASS"}'


FORM: dict[str, Any] = {"file_path": "fault.py", "line_start": 5, "line_end": 5, "priority": 1}
FORM |= {"title": "[P1] The shell is asked", "body": "The name reaches the shell."}
UNPLACED = "a high claim was confirmed, but its code was not found: The shell is asked"
QUOTED = FORM | {"priority": 0, "title": "[P0] Injection", "evidence": "    os.system('echo ' + name)"}


@pytest.mark.requirement("V6")
@pytest.mark.requirement("V7")
@pytest.mark.requirement("V8")
@pytest.mark.parametrize(
    ("answer", "titles", "parse_error"),
    [
        ({"verdict": "FAIL", "findings": [QUOTED]}, ["[P0] Injection"], None),
        # The form as the requirement has it, which has no room for a quote.
        ({"verdict": "FAIL", "findings": [FORM]}, ["[P1] The shell is asked"], f"fault.py: {UNPLACED}"),
        ({"verdict": "PASS", "findings": []}, [], None),
        ({"verdict": "MAYBE", "findings": []}, [], "invalid verdict: MAYBE"),
        ({"verdict": "PASS"}, [], "missing field: findings"),
    ],
)
def test_the_answer_of_an_agent_becomes_a_result(
    project: GitRepository, answer: dict[str, object], titles: list[str], parse_error: str | None
) -> None:
    result = answered(project, answer, verify=True)
    assert [issue.title for issue in result.issues] == titles
    assert (result.passed, result.parse_error) == (not titles and parse_error is None, parse_error)


@pytest.mark.requirement("C7")
def test_prose_is_no_structured_output(project: GitRepository, tmp_path: Path) -> None:
    settings = command(tmp_path, "#!/bin/sh\ncat > /dev/null\necho 'I had a look at the change.'\n")
    result = asyncio.run(WorkdirReviewer(settings=settings).review(project.path, "main"))
    assert (result.passed, result.summary) == (False, "No structured review output")
    assert result.raw_output == "I had a look at the change.\n"


@pytest.mark.requirement("C5")
def test_a_work_directory_without_changes_passes(project: GitRepository) -> None:
    project.checkout("main")
    result = asyncio.run(WorkdirReviewer(settings=OFFLINE).review(project.path, "main"))
    assert (result.passed, result.summary, result.issues) == (True, "No changes to review", ())


@pytest.mark.requirement("C1")
def test_a_work_directory_is_reviewed_as_it_is_committed(project: GitRepository) -> None:
    project.write("uncommitted.py", FAULT)
    project.checkout("main")
    project.write("base.py", CLEAN + FAULT)
    project.git("add", "base.py")
    project.commit_staged("a fault that came later, on the base branch")
    project.checkout("work")
    result = asyncio.run(WorkdirReviewer(settings=OFFLINE).review(project.path, "main"))
    assert not result.passed
    assert {(issue.file, issue.severity) for issue in result.issues} == {("fault.py", "error")}


def run_example(source: str, cwd: Path, stdin: str = "") -> str:
    command = (sys.executable, "-W", "error", "-c", source)
    ended = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_the_example_of_a_range_runs(project: GitRepository) -> None:
    lines = run_example(RANGE_EXAMPLE, project.path).splitlines()
    assert lines[0].startswith("fault.py:5: [P1] ")
    assert re.fullmatch(r"fix the issues; the full report is in logs/review-[0-9a-f]+\.json", lines[-1])
    project.git("reset", "--quiet", "--hard", "HEAD~2")
    assert run_example(RANGE_EXAMPLE, project.path) == "continue\n"


def test_the_example_of_a_work_directory_runs(project: GitRepository) -> None:
    lines = run_example(WORKDIR_EXAMPLE, project.path).splitlines()
    assert lines[0].startswith("offline: not passed: ")
    assert lines[1].startswith("error: fault.py:5: ")


def test_the_example_of_a_reviewer_works(project: GitRepository, tmp_path: Path) -> None:
    project.commit_files({"later.py": "x = 1\n# TODO: more\n"}, "later")
    [text] = blocks("yaml")
    settings = command(tmp_path, PYTHON_HEADER + REVIEWER_EXAMPLE, *_of_user(tmp_path, text)[1:])
    result = asyncio.run(CodeReviewer(project.path, settings=settings)("main..HEAD"))
    # It calls that "not passed"; what decides is that a finding of medium severity does not block.
    assert [(issue.file, issue.line_start, issue.title) for issue in result.issues] == [
        ("later.py", 2, "[P2] A TODO was added")
    ]
    assert (result.passed, result.parse_error) == (True, None)


def _of_user(folder: Path, text: str) -> tuple[str, ...]:
    """The command of a configuration that is the user's own; the same in a repository is refused."""
    with pytest.raises(ConfigError):
        load_settings(repository_file=ConfigText("codeloupe.yaml", text), user_file=None, environment={}, flags={})
    (folder / "codeloupe.yaml").write_text(text)
    loaded = load_settings(repository_file=None, user_file=folder / "codeloupe.yaml", environment={}, flags={})
    assert loaded.settings.reviewer_type == "command"
    return loaded.settings.review_command


def test_every_public_name_is_in_the_guide() -> None:
    for name in ("CodeReviewer", "WorkdirReviewer", "make_reviewer", "make_workdir_reviewer", "on_review_warning"):
        assert name in GUIDE


def _without(*names: str) -> dict[str, Any]:
    return {key: value for key, value in FORM.items() if key not in names}


@pytest.mark.requirement("V8")
@pytest.mark.defect("T10")
def test_answers_in_the_form_of_orchestrators_with_something_missing_never_pass_and_say_what(
    project: GitRepository,
) -> None:
    fails, unread = "FAIL", "INCOMPLETE"
    nit = FORM | {"priority": 3, "title": "[P3] The shell is asked"}
    untagged = _without("priority") | {"title": "The shell is asked"}
    answers: dict[str, tuple[Any, str, str]] = {
        "words": ({"verdict": "FAIL", "findings": [_without("title", "body")]}, "missing field: title", unread),
        "priority": ({"verdict": "FAIL", "findings": [untagged]}, "missing field: priority", unread),
        "verdict": ({"findings": [FORM]}, "missing field: verdict", fails),
        "findings": ({"verdict": "PASS"}, "missing field: findings", unread),
        "strange verdict": ({"verdict": "MAYBE", "findings": []}, "invalid verdict: MAYBE", unread),
        "FAIL over a nit": ({"verdict": "FAIL", "findings": [nit]}, "invalid verdict: FAIL", unread),
        "FAIL over nothing": ({"verdict": "FAIL", "findings": []}, "invalid verdict: FAIL", unread),
    }
    results = {name: answered(project, answer) for name, (answer, _, _) in answers.items()}
    assert [name for name, result in results.items() if result.passed or result.fatal_error] == []
    told = {name: (result.parse_error or "", result.verdict.value) for name, result in results.items()}
    wrong = {
        name: told[name]
        for name, (_, reason, verdict) in answers.items()
        if not told[name][0].startswith(reason) or told[name][1] != verdict
    }
    assert wrong == {}


@pytest.mark.defect("T10")
def test_whole_answers_in_that_form_pass_by_what_fails(project: GitRepository) -> None:
    ends = {}
    for priority, stated in ((0, "FAIL"), (1, "FAIL"), (2, "NEEDS_WORK"), (3, "NEEDS_WORK")):
        form = FORM | {"priority": priority, "title": f"[P{priority}] The shell is asked"}
        result = answered(project, {"verdict": stated, "findings": [form]})
        ends[priority] = (result.passed, result.verdict.value, result.parse_error, len(result.issues))
    assert ends == {
        0: (False, "FAIL", None, 1),
        1: (False, "FAIL", None, 1),
        2: (True, "NEEDS_WORK", None, 1),
        3: (True, "NEEDS_WORK", None, 1),
    }
