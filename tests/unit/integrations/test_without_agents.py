"""What orchestrators get when no agent can be asked, or no more often."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

import codeloupe
from codeloupe import CodeReviewer, CommitScope, ReviewResult, Settings, make_reviewer, make_workdir_reviewer
from codeloupe.testing import Json, ScriptedAgent
from tests.repository import GitRepository


class TestWithoutAnAgent:
    """An orchestrator that asked for an agent's review and cannot have one is told so, and nothing passes."""

    @pytest.fixture
    def project(self, repository: GitRepository, monkeypatch: pytest.MonkeyPatch) -> GitRepository:
        repository.write("a.py", "x = 1\n")
        repository.commit("One")
        repository.write("a.py", "x = 2\n")
        repository.commit("Two")
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        return repository

    # Of these no test machine has a login: there is no program of that name, and no key.
    NO_LOGIN = Settings(agents=("codex", "gemini"), keep_history=False)

    @pytest.mark.defect("T11")
    def test_nothing_passes_and_why_is_told(self, project: GitRepository) -> None:
        told: list[str] = []
        reviewer = make_reviewer(self.NO_LOGIN, repo=project.path, on_review_warning=told.append)
        result = asyncio.run(reviewer("HEAD~1..HEAD"))
        assert (result.passed, result.issues) == (False, ())
        for words in (result.parse_error or "", " ".join(told)):
            assert "codex cannot be used" in words
            assert "gemini cannot be used" in words

    @pytest.mark.defect("T11")
    def test_nothing_passes_in_a_work_directory_either(self, project: GitRepository) -> None:
        reviewer = make_workdir_reviewer(self.NO_LOGIN, on_parse_error="pass")
        result = asyncio.run(reviewer.review(project.path, "HEAD~1"))
        assert not result.passed
        assert "codex cannot be used" in result.summary

    def test_no_change_passes_without_anybody_to_ask(self, project: GitRepository) -> None:
        assert asyncio.run(make_reviewer(self.NO_LOGIN, repo=project.path)("HEAD..HEAD")).passed

    def test_offline_when_that_is_asked_for(self, project: GitRepository) -> None:
        offline = replace(self.NO_LOGIN, reviewer_type="offline")
        assert asyncio.run(make_reviewer(offline, repo=project.path)("HEAD~1..HEAD")).passed

    @pytest.mark.defect("T11")
    def test_a_review_that_went_offline_by_itself_says_so(self, project: GitRepository) -> None:
        gone = asyncio.run(codeloupe.review(CommitScope("HEAD"), repo=project.path, settings=self.NO_LOGIN))
        assert (gone.reviewer.type, [error.kind for error in gone.errors]) == ("offline", ["no_agent"])
        assert "codex and gemini are not installed" in gone.errors[0].message
        offline = replace(self.NO_LOGIN, reviewer_type="offline")
        assert not asyncio.run(codeloupe.review(CommitScope("HEAD"), repo=project.path, settings=offline)).errors

    def test_a_runtime_s_limits_hold_for_all_reviews_of_a_reviewer(self, project: GitRepository) -> None:
        agent = ScriptedAgent([Json({"findings": []})])

        async def run() -> list[ReviewResult]:
            settings = Settings(max_requests=1, keep_history=False)
            async with codeloupe.Runtime(settings, agents=[agent]) as runtime:
                reviewer = CodeReviewer(project.path, runtime=runtime)
                return [await reviewer("HEAD~1..HEAD"), await reviewer("", commit_shas=["HEAD~1"])]

        first, second = asyncio.run(run())
        assert (first.passed, second.passed, len(agent.requests)) == (True, False, 1)
        assert "1 of 1 requests are made" in (second.parse_error or "")
