"""What a model says, through the library's front door: nothing grave ever ends as a pass, and what is clean does."""

import asyncio
from pathlib import Path

import pytest

from codeloupe import RangeScope, review
from codeloupe.config.schema import Settings
from codeloupe.model.review import Review, Verdict
from codeloupe.testing import RecordedRequest, Reply, StandInServer, Text
from tests.grave_answers import AFTER, BEFORE, CLAIMING, CLEAN_ANSWERS, FILE, GRAVE_ANSWERS
from tests.repository import GitRepository

ASKS_AGAIN = '{"readable": true, "findings": []}'


class Model:
    """A model that gives one answer to every question, or a clean one when it is asked to say it again."""

    def __init__(self) -> None:
        self.answer = ""
        self.forgets = False
        self.asked = 0

    def __call__(self, _request: RecordedRequest) -> Reply:
        self.asked += 1
        return Text(ASKS_AGAIN if self.forgets and self.asked > 1 else self.answer)


@pytest.fixture
def project(repository: GitRepository) -> Path:
    repository.commit_files({FILE: BEFORE})
    repository.commit_files({FILE: AFTER})
    return repository.path


def outcomes(project: Path, answers: dict[str, str], *, forgets: bool = False) -> dict[str, Review]:
    """The review under each answer, one after the other, by one stand-in model."""
    model = Model()

    async def all_of_them(settings: Settings) -> dict[str, Review]:
        found = {}
        for name, answer in answers.items():
            model.answer, model.forgets, model.asked = answer, forgets, 0
            found[name] = await review(RangeScope("HEAD~1..HEAD"), repo=project, settings=settings, fresh=True)
        return found

    with StandInServer(reply=model) as server:
        settings = Settings(
            reviewer_type="api",
            api_model="stand-in",
            api_base_url=f"{server.url}/v1",
            verify=False,
            keep_history=False,
        )
        return asyncio.run(all_of_them(settings))


def passing(found: dict[str, Review]) -> dict[str, tuple[str, str]]:
    return {
        name: (review.verdict.value, review.summary)
        for name, review in found.items()
        if review.passed or review.exit_code == 0 or review.verdict in (Verdict.PASS, Verdict.NEEDS_WORK)
    }


@pytest.mark.defect("T4")
@pytest.mark.defect("T8")
@pytest.mark.defect("V6")
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_no_answer_that_claims_a_grave_defect_ever_passes(project: Path, step: int) -> None:
    assert len(GRAVE_ANSWERS) >= 80
    answers = dict(list(GRAVE_ANSWERS.items())[::step])
    assert passing(outcomes(project, answers)) == {}


@pytest.mark.defect("T8")
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_what_was_claimed_once_is_not_lost_when_the_model_is_asked_again_and_says_nothing(
    project: Path, step: int
) -> None:
    answers = {name: GRAVE_ANSWERS[name] for name in CLAIMING[::step]}
    assert passing(outcomes(project, answers, forgets=True)) == {}


def test_clean_answers_pass_so_that_caution_does_not_go_too_far(project: Path) -> None:
    stopped = {
        name: (found.verdict.value, [error.message for error in found.errors])
        for name, found in outcomes(project, CLEAN_ANSWERS).items()
        if not found.passed
    }
    assert stopped == {}
