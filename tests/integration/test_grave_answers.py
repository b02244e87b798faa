"""Answers of a model, through the library: no claim of a grave defect passes, and only exact clean answers do."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from codeloupe import RangeScope, review
from codeloupe.config.schema import Settings
from codeloupe.model.review import Review, Verdict
from codeloupe.reviewers.answers import read_review, verdict_of
from codeloupe.testing import RecordedRequest, Reply, StandInServer, Text
from tests.grave_answers import (
    AFTER,
    BEFORE,
    CLEAN,
    CLEAN_ANSWERS,
    FILE,
    GRAVE_ANSWERS,
    INEXACT_CLEAN_ANSWERS,
    RATED_LOW,
    READABLE,
    UNREADABLE,
    WORDED_ANSWERS,
)
from tests.repository import GitRepository

INCOMPLETE = ("INCOMPLETE", False, 3)
EACH_FOURTH_OR_ALL = pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.soak)])


class Model:
    """A model that gives one answer to every question, or an exact and clean one to the second question."""

    def __init__(self) -> None:
        self.answer = ""
        self.forgets = False
        self.asked = 0

    def __call__(self, _request: RecordedRequest) -> Reply:
        self.asked += 1
        if self.forgets and self.asked > 1:
            return Text(CLEAN)
        return Text(self.answer)


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


def outcome(found: Review) -> tuple[str, bool, int]:
    return found.verdict.value, found.complete, found.exit_code


def others(found: dict[str, Review], expected: tuple[str, bool, int], requests: int) -> dict[str, object]:
    """Return the reviews that ended in another way, or with another number of calls."""
    return {
        name: (outcome(review), review.usage.requests, review.summary)
        for name, review in found.items()
        if (outcome(review), review.usage.requests) != (expected, requests)
    }


def some(names: Iterable[str], answers: dict[str, str], step: int) -> dict[str, str]:
    return {name: answers[name] for name in list(names)[::step]}


@pytest.mark.defect("T4")
@pytest.mark.defect("T8")
@pytest.mark.defect("V6")
@EACH_FOURTH_OR_ALL
def test_no_answer_that_claims_a_grave_defect_ever_passes(project: Path, step: int) -> None:
    assert len(GRAVE_ANSWERS) >= 80
    found = outcomes(project, some(GRAVE_ANSWERS, GRAVE_ANSWERS, step))
    passing = {
        name: (review.verdict.value, review.summary)
        for name, review in found.items()
        if review.passed or review.exit_code == 0 or review.verdict in (Verdict.PASS, Verdict.NEEDS_WORK)
    }
    assert passing == {}


@pytest.mark.defect("T8")
@EACH_FOURTH_OR_ALL
def test_a_finding_of_an_inexact_answer_is_kept(project: Path, step: int) -> None:
    found = outcomes(project, some(READABLE, GRAVE_ANSWERS, step), forgets=True)
    assert others(found, ("FAIL", True, 1), requests=2) == {}


@EACH_FOURTH_OR_ALL
def test_a_second_answer_decides_if_nothing_was_read_before(project: Path, step: int) -> None:
    found = outcomes(project, some(UNREADABLE, GRAVE_ANSWERS, step), forgets=True)
    assert others(found, ("PASS", True, 0), requests=2) == {}


def test_an_exact_clean_answer_passes_with_one_call(project: Path) -> None:
    nit = CLEAN_ANSWERS["a nit"]
    clean = {name: answer for name, answer in CLEAN_ANSWERS.items() if answer != nit}
    assert others(outcomes(project, clean), ("PASS", True, 0), requests=1) == {}
    assert others(outcomes(project, {"a nit": nit}), ("NEEDS_WORK", True, 0), requests=1) == {}


@EACH_FOURTH_OR_ALL
def test_an_inexact_clean_answer_costs_two_calls_and_is_incomplete(project: Path, step: int) -> None:
    found = outcomes(project, some(INEXACT_CLEAN_ANSWERS, INEXACT_CLEAN_ANSWERS, step))
    assert others(found, INCOMPLETE, requests=2) == {}


def test_no_wording_of_a_grave_defect_is_exact_and_clean() -> None:
    assert len(WORDED_ANSWERS) >= 150
    read = {name: read_review(answer) for name, answer in WORDED_ANSWERS.items()}
    assert [name for name, answer in read.items() if answer.is_exact and verdict_of(answer.claims) != "FAIL"] == []


def test_the_severity_of_a_finding_is_its_key_alone() -> None:
    read = {name: read_review(answer) for name, answer in RATED_LOW.items()}
    assert {name: (answer.problem, verdict_of(answer.claims)) for name, answer in read.items()} == dict.fromkeys(
        RATED_LOW, ("", Verdict.NEEDS_WORK)
    )
