"""Reviews with `--since-last`, from the runtime through the JSON report to the plan for a pull request."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe import Review, errors
from codeloupe.forges.plan import make_plan
from codeloupe.forges.publishing import read_review
from codeloupe.model.publication import Conclusion, Opinion, Plan, PublishOptions, Thread
from codeloupe.reports import Layout
from codeloupe.reports.json_v1 import render_json
from codeloupe.reports.text import render_text
from codeloupe.reports.wording import gaps_of
from tests.publish_material import FIRST
from tests.publish_states import MARKER, pull_request, said, thread_about
from tests.repository import GitRepository
from tests.trusted_verdict_material import CODE, FILE, INCOMPLETE, Model, Rounds, claim, only, outcome

pytestmark = pytest.mark.program

CALL = "x = compute(2)"
NEW_CLAIM = claim("high", file="o.py", line=1, quote=CALL, title="compute is not defined", body="It raises NameError.")
REFUSED = errors.Refused("the model refused to answer", agent="scripted")


@pytest.fixture
def rounds(repository: GitRepository, tmp_path: Path) -> Rounds:
    return Rounds(repository, tmp_path / "state", {FILE: CODE, "o.py": "x = 1\n"})


def after_a_round(rounds: Rounds, severity: str) -> tuple[Model, Thread]:
    """Review the branch once, change another file, and return the model and the thread of its one finding."""
    model = Model(claim(severity))
    found = only(rounds.review(model))
    rounds.commit({"o.py": f"{CALL}\n"})
    model.claims = []
    return model, thread_about(found)


def plan(review: Review, *threads: Thread, **options: Any) -> Plan:
    """Return the plan for a pull request with these threads, made from the JSON report of the review."""
    committed = replace(review, scope=replace(review.scope, head=FIRST))
    read = read_review(render_json(committed).encode(), name="r.json")
    return make_plan(read, pull_request(*threads), marker=MARKER, options=PublishOptions(**options))


def test_an_omitted_finding_is_reported_apart_and_its_thread_stays(rounds: Rounds) -> None:
    model, thread = after_a_round(rounds, "medium")
    review = rounds.review(model, since_last=True)
    assert outcome(review) == ("NEEDS_WORK", True, 0)
    assert (review.findings, [one.severity.label for one in review.omitted]) == ((), ["medium"])
    assert "1 omitted by --since-last" in render_text(review, Layout(width=100))
    for state in (thread, replace(thread, is_resolved=True)):
        made = plan(review, state)
        assert (made.answers, made.comments, made.conclusion) == ((), (), Conclusion.SUCCESS)


def test_on_incomplete_does_not_decide_about_an_omitted_finding_that_blocks(rounds: Rounds) -> None:
    model, thread = after_a_round(rounds, "critical")
    review = rounds.review(model, since_last=True, on_incomplete="pass")
    assert outcome(review) == INCOMPLETE
    assert "accepted" not in render_text(review, Layout(width=100))
    made = plan(review, thread, approve=True)
    assert (made.answers, made.conclusion, made.opinion) == ((), Conclusion.NEUTRAL, Opinion.COMMENT)
    assert made.review.exit_code == 3


def test_an_omitted_finding_that_blocks_outlives_the_dismissal_of_another(rounds: Rounds) -> None:
    model, thread = after_a_round(rounds, "critical")
    model.claims, model.proof = [NEW_CLAIM], REFUSED
    review = rounds.review(model, since_last=True)
    assert outcome(review) == INCOMPLETE
    assert [gap.kind for gap in gaps_of(review)] == ["pending-claim", "omitted-finding"]
    dismissed = thread_about(only(review), said("dismiss: fine"))
    made = plan(review, thread, dismissed, approve=True)
    assert [answer.thread_id for answer in made.answers] == [dismissed.thread_id]
    assert (made.conclusion, made.opinion, made.review.exit_code) == (Conclusion.NEUTRAL, Opinion.COMMENT, 3)
    # If the omitted one is dismissed as well, nothing is left.
    both = plan(review, replace(thread, comments=(*thread.comments, said("dismiss: fine"))), dismissed, approve=True)
    assert (both.conclusion, both.opinion, len(both.dismissed)) == (Conclusion.SUCCESS, Opinion.APPROVE, 2)


def test_the_next_round_continues_with_the_omitted_findings(rounds: Rounds) -> None:
    model, _ = after_a_round(rounds, "critical")
    rounds.review(model, since_last=True)
    assert outcome(rounds.review(model, since_last=True)) == INCOMPLETE
    assert outcome(rounds.review(model)) == ("FAIL", True, 1)
