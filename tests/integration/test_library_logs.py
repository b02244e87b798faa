"""The log of the library, through the factory of orchestrators and the real programs."""

import asyncio
import logging

import pytest

from codeloupe import AgentRequest, Settings, make_reviewer, run_agent
from codeloupe.testing import Json, StandInServer, Status, Text
from tests.agent_programs import agents_at
from tests.program import codeloupe
from tests.repository import GitRepository

GITHUB_TOKEN = "gh" + "p_" + "a1B2" * 9
# An item in the form that comes with a verdict.
ITEM = {
    "file_path": "average.py",
    "line_start": 2,
    "line_end": 2,
    "priority": 1,
    "title": "[P1] Division by zero",
    "body": "An empty list of prices divides by zero.",
}


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"README.md": "a shop\n"})
    text = "def average(prices):\n    return sum(prices) / len(prices)\n"
    repository.commit_files({"average.py": text}, branch="change")
    return repository


def logged_in(monkeypatch: pytest.MonkeyPatch, server: StandInServer, *names: str) -> None:
    for name, value in agents_at(server, *names).items():
        monkeypatch.setenv(name, value)


def settings_for(server: StandInServer, reviewer: str = "auto") -> Settings:
    variables = agents_at(server)
    return Settings(
        reviewer_type=reviewer,  # type: ignore[arg-type]  # one of the names
        claude_path=variables["CODELOUPE_CLAUDE_PATH"],
        codex_path=variables["CODELOUPE_CODEX_PATH"],
        gemini_path=variables["CODELOUPE_GEMINI_PATH"],
        keep_history=False,
        verify=False,
    )


@pytest.mark.defect("E25")
@pytest.mark.requirement("V3")
def test_the_log_names_the_reviewer_that_was_chosen(project: GitRepository, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="codeloupe")
    for agent in ("agent_sdk", "codex"):
        caplog.clear()
        with pytest.MonkeyPatch.context() as patch, StandInServer([Json({"findings": []})]) as server:
            logged_in(patch, server, agent)
            assert asyncio.run(make_reviewer(settings_for(server), repo=project.path)("main..HEAD")).passed
        assert f"Starting review for main..HEAD with {agent}" in caplog.messages
        initialized = [message for message in caplog.messages if message.startswith("Initializing code reviewer: ")]
        assert initialized[-1].startswith(f"Initializing code reviewer: {agent} (installed and logged in")
        assert not any("auto" in message for message in initialized)


@pytest.mark.defect("E25")
@pytest.mark.requirement("V9")
def test_a_stack_trace_is_logged_once_and_never_at_info(
    project: GitRepository, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, logger="codeloupe")
    # The SDK raises; the program only reports.
    for agent, level in (("agent_sdk", logging.ERROR), ("claude_cli", logging.DEBUG)):
        caplog.clear()
        with StandInServer([Status(400)]) as server:
            logged_in(monkeypatch, server, agent)
            result = asyncio.run(make_reviewer(settings_for(server, agent), repo=project.path)("main..HEAD"))
        assert (result.passed, result.fatal_error) == (False, False)
        assert "400" in (result.parse_error or "")
        assert [record.levelno for record in caplog.records if record.exc_info] == [level], agent


@pytest.mark.defect("E25")
def test_prompts_and_answers_are_in_the_debug_log_without_secrets(
    project: GitRepository, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.commit_files({"keys.py": f"token = '{GITHUB_TOKEN}'\n"})
    with StandInServer([Json({"findings": []}), Text(f"Hello, {GITHUB_TOKEN}.")]) as server:
        logged_in(monkeypatch, server, "claude_cli", "codex")
        settings = settings_for(server, "claude_cli")
        for level in (logging.DEBUG, logging.INFO):
            caplog.clear()
            caplog.set_level(level, logger="codeloupe")
            asyncio.run(make_reviewer(settings, repo=project.path)("main..HEAD"))
            request = AgentRequest(prompt=f"Is {GITHUB_TOKEN} a key?", working_dir=project.path, tools=())
            asyncio.run(run_agent(request, settings=Settings(agents=("codex",), codex_path=settings.codex_path)))
            transcript = [record.message for record in caplog.records if record.name == "codeloupe.transcript"]
            assert bool(transcript) is (level == logging.DEBUG)
            if transcript:
                text = "\n".join(transcript)
                for part in ("system prompt of ", "return sum(prices) / len(prices)", "answer of ", '"findings"'):
                    assert part in text, part
                for part in ("prompt of codex:\nIs [redacted] a key?", "answer of codex:", "Hello, [redacted]"):
                    assert part in text, part
            assert GITHUB_TOKEN not in caplog.text


@pytest.mark.defect("E25")
@pytest.mark.requirement("V8")
def test_an_item_with_a_priority_and_no_verdict_is_a_parse_error(
    project: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for agent in ("agent_sdk", "claude_cli", "codex", "gemini"):
        warnings: list[str] = []
        with StandInServer([Json({"findings": [ITEM]})]) as server:
            logged_in(monkeypatch, server, agent)
            reviewer = make_reviewer(settings_for(server, agent), repo=project.path, on_review_warning=warnings.append)
            result = asyncio.run(reviewer("main..HEAD"))
        assert (result.passed, result.fatal_error, result.parse_error) == (False, False, "missing field: verdict"), (
            agent
        )
        assert any("missing field: verdict" in warning for warning in warnings)
        assert [issue.title for issue in result.issues] == ["[P1] Division by zero"]


@pytest.mark.defect("E25")
def test_the_program_shows_stack_traces_only_with_debug(project: GitRepository) -> None:
    with StandInServer([Status(400)]) as server:
        variables = agents_at(server, "agent_sdk") | {"CODELOUPE_REVIEWER_TYPE": "agent_sdk"}
        verbose = codeloupe("review", "main...HEAD", "--verbose", cwd=project.path, environment=variables)
        assert "ERROR codeloupe.reviewers.asking: agent_sdk did not answer about" in verbose.stderr
        assert "Traceback" not in verbose.stderr
