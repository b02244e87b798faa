from __future__ import annotations

import asyncio

import pytest

from codeloupe.config.schema import Settings
from codeloupe.engine.run import review
from codeloupe.errors import ConfigError
from codeloupe.model.events import Event, ReviewerChosen
from codeloupe.model.finding import Finding
from codeloupe.testing import ScriptedAgent
from tests.repository import GitRepository
from tests.rounds_material import Finder, Rounds, code, seat


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.write("README.md", "work\n")
    repository.commit()
    repository.checkout("work", new=True)
    repository.write("a.py", code("a"))
    repository.commit()
    return repository


def test_an_unknown_expert_ends_the_review_before_anybody_is_asked(project: GitRepository) -> None:
    chair = seat(Finder())
    with pytest.raises(ConfigError, match="astrology"):
        asyncio.run(review(repo=project.path, settings=Settings(experts=("astrology",)), reviewers=(chair,)))
    [agent] = chair.agents
    assert isinstance(agent, ScriptedAgent)
    assert agent.requests == ()


def test_a_command_reviewer_without_a_command_ends_the_review_even_beside_an_agent(project: GitRepository) -> None:
    settings = Settings(reviewers=("api", "command"), api_model="anthropic:some")
    with pytest.raises(ConfigError, match="review_command"):
        asyncio.run(review(repo=project.path, settings=settings))


def test_the_first_events_tell_who_reviews_and_why(project: GitRepository) -> None:
    events: list[Event] = []
    settings = Settings(reviewer_type="offline", keep_history=False)
    asyncio.run(review(repo=project.path, settings=settings, emit=events.append))
    assert isinstance(events[0], ReviewerChosen)
    assert events[0].reviewer.why.endswith("as requested")


def test_what_the_baseline_holds_does_not_count_unless_the_change_brought_it_and_is_not_trusted(
    project: GitRepository,
) -> None:
    rounds = Rounds(project)
    [found] = rounds.review().findings
    project.write("codeloupe-baseline.yaml", _baseline(found))
    project.commit()
    known = rounds.review()
    assert known.exit_code == 0
    assert known.findings[0].suppression is not None
    strict = rounds.review(untrusted=True)
    assert strict.exit_code == 1
    assert strict.findings[0].suppression is None


def _baseline(finding: Finding) -> str:
    return (
        "version: 1\n"
        "entries:\n"
        f"  - fingerprint: {finding.fingerprint}\n"
        f"    file: {finding.file}\n"
        f"    title: {finding.title}\n"
        "    reason: known and harmless\n"
        "    owner: somebody\n"
    )
