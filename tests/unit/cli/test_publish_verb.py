import json
from typing import Any

from msgspec.structs import replace

from codeloupe.cli.publish import publication_json, render_publication
from codeloupe.forges.plan import make_plan
from codeloupe.model import publication as model
from codeloupe.model.review import Review
from tests.publish_material import FIRST, finding, review
from tests.publish_states import MARKER, disliked, pull_request, thread_about
from tests.rows import each

REFUSAL = model.PublishProblem("the token may not", "give it", is_refusal=True)
FAILURE = model.PublishProblem("could not")
MINOR = replace(REFUSAL, is_minor=True)


def published(reviewed: Review, pull: model.PullRequest | None = None, **changes: Any) -> model.Publication:
    plan = make_plan(reviewed, pull or pull_request(), marker=MARKER, options=model.PublishOptions(approve=True))
    whole = model.Publication(
        plan=plan,
        posted=plan.comments,
        answered=plan.answers,
        opinion=plan.opinion,
        withdrawn=plan.withdrawn,
        summary=model.SummaryChange.CREATED,
        summary_url="https://github.com/octo/demo/pull/1#issuecomment-9",
        status=model.StatusKind.COMMIT,
    )
    return replace(whole, **changes)


def test_what_was_done_is_told_in_a_few_lines() -> None:
    pull = pull_request(
        thread_about(finding(1)), thread_about(finding(2)), disliked(thread_about(finding(3)), "maintainer")
    )
    told = render_publication(published(review(finding(1), finding(3), finding(4), finding(400)), pull))
    assert told.splitlines() == [
        "octo/demo#1 at 111111111111: failure",
        "  1 new comment, 1 known before",
        "    app.py:4  Wrong result in line 4",
        "  1 fixed finding answered",
        "  1 finding that does not count any more closed",
        "  1 finding only in the summary",
        "    app.py:400  its lines are not in the pull request's diff",
        "  1 finding dismissed by maintainers",
        "  summary created, commit status set",
        "  https://github.com/octo/demo/pull/1#issuecomment-9",
    ]


def test_a_dry_run_and_opinions_are_told() -> None:
    done = model.Publication(plan=published(review(finding(4))).plan, dry_run=True)
    told = render_publication(done)
    assert "(dry run: nothing was posted)" in told
    assert "1 new comment" in told
    assert "summary" not in told
    assert json.loads(publication_json(done))["dry_run"] is True
    old = model.StandingOpinion(review_id=1, opinion=model.Opinion.REQUEST_CHANGES, head=FIRST)
    told = render_publication(published(review(), pull_request(opinions=(old,))))
    assert "  approved\n" in told
    assert "  1 earlier opinion withdrawn\n" in told


def test_programs_get_everything() -> None:
    refused = model.WithoutComment(finding(9), "GitHub rejected a comment on its lines")
    done = published(review(finding(4), finding(9)), refused=(refused,), problems=(FAILURE,))
    document = json.loads(publication_json(done))
    assert document["pull_request"] == "octo/demo#1"
    assert document["conclusion"] == "failure"
    assert document["posted"][0]["fingerprint"] == finding(4).fingerprint
    assert document["in_summary"][0]["reason"] == "GitHub rejected a comment on its lines"
    assert document["problems"] == [{"message": "could not", "hint": "", "minor": False}]
    assert document["exit_code"] == 3


def test_no_secret_and_no_command_to_a_log_is_told() -> None:
    secret = "ghp_" + "A1b2" * 9
    done = published(review(finding(4, title=f"::error::{secret}\n::warning::x", file="::x.py")))
    for told in (render_publication(done), publication_json(done)):
        assert secret not in told
        assert not any(line.strip().startswith("::") for line in told.splitlines())


@each(
    ("problems", "code"),
    [((), 0), ((REFUSAL,), 2), ((FAILURE,), 3), ((REFUSAL, FAILURE), 3), ((MINOR,), 0), ((MINOR, REFUSAL), 2)],
)
def test_the_exit_code_tells_what_is_missing(problems: tuple[model.PublishProblem, ...], code: int) -> None:
    assert published(review(), problems=problems).exit_code == code
