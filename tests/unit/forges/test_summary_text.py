from __future__ import annotations

from msgspec.structs import replace

from codeloupe.forges.comments import (
    LONGEST_BODY,
    LONGEST_STATUS,
    check_summary,
    check_title,
    status_description,
    summary_body,
)
from codeloupe.forges.marker import Mark, MarkKind
from codeloupe.forges.plan import make_plan
from codeloupe.model.finding import Severity
from codeloupe.model.publication import PublishOptions, PullRequest, WithoutComment
from codeloupe.model.review import Coverage, FailedUnit, Review, ReviewError, SkippedFile, SkipReason
from tests.markdown_page import ACTIVE, tokens
from tests.publish_material import FIRST, finding, review
from tests.publish_states import MARKER, pull_request, said, thread_about
from tests.unit.forges.test_comment_text import ATTACK


def summary(reviewed: Review, pull: PullRequest | None = None, *refused: WithoutComment) -> str:
    made = make_plan(reviewed, pull or pull_request(), marker=MARKER, options=PublishOptions())
    return summary_body(made, refused, marker=MARKER)


def test_the_summary_tells_verdict_coverage_cost_findings_and_the_commit() -> None:
    body = summary(review(finding(4)))
    assert MARKER.read(body) == Mark(MarkKind.SUMMARY, FIRST)
    for words in ("codeloupe: FAIL", "2 of 2 files reviewed", "$0.12", "Wrong result in line 4", "`app.py:4`", FIRST):
        assert words in body


def test_what_has_no_comment_stands_in_it_whole_with_the_reason() -> None:
    body = summary(review(finding(4), finding(400)), None, WithoutComment(finding(4), "GitHub took no comment"))
    assert "2 findings</summary>" in body
    assert "No comment: its lines are not in the pull request's diff." in body
    assert "No comment: GitHub took no comment." in body


def test_what_could_not_be_reviewed_is_told() -> None:
    gaps = Coverage(
        files_total=3,
        files_reviewed=1,
        skipped=(SkippedFile("big.py", SkipReason.TOO_LARGE, "9 MB"), SkippedFile("x.lock", SkipReason.LOCK_FILE)),
        units_failed=(FailedUnit("app.py", ("app.py",), "timed out"),),
    )
    errors = (ReviewError("odd", "something else went wrong"),)
    body = summary(review(coverage=gaps, complete=False, exit_code=3, errors=errors))
    for words in ("INCOMPLETE", "timed out", "big.py", "9 MB", "x.lock", "something else went wrong"):
        assert words in body


def test_what_a_maintainer_dismissed_is_told_and_nobody_is_called() -> None:
    pull = pull_request(thread_about(finding(4), said("dismiss: ask @boss about <b>it</b>")))
    body = summary(review(finding(4)), pull)
    assert "## Dismissed on this pull request" in body
    assert "by `maintainer`: ask `@boss` about &lt;b&gt;it&lt;/b&gt;" in body
    assert "codeloupe: PASS" in body


def test_the_same_state_gives_the_same_summary() -> None:
    assert summary(review(finding(4))) == summary(review(finding(4)), pull_request(thread_about(finding(4))))


def test_a_huge_review_stays_below_what_github_takes_and_says_what_is_left_out() -> None:
    long = "words and more words " * 400
    many = [finding(line, file="x" * 900 + ".py", title=long, body=long, evidence=long) for line in range(1, 900)]
    failed = tuple(FailedUnit(long, (f"{n}.py",), long) for n in range(500))
    skipped = tuple(SkippedFile(f"{n}" * 500, SkipReason.EXCLUDED, long) for n in range(500))
    huge = review(
        *many,
        complete=False,
        coverage=Coverage(files_total=999, skipped=skipped, units_failed=failed),
        errors=tuple(ReviewError("odd", f"{n} {long}") for n in range(500)),
    )
    body = summary(huge, pull_request(*(thread_about(one, said(f"dismiss: {long}")) for one in many[:60])))
    assert len(body) <= LONGEST_BODY
    assert "more; the saved review has them all" in body
    assert body.rstrip().endswith("more")
    assert MARKER.read(body) is not None


def test_hostile_text_stays_text() -> None:
    about = finding(400, title=ATTACK, body=ATTACK, evidence=ATTACK, file=f"{ATTACK}.py", category=ATTACK)
    reviewed = review(about, errors=(ReviewError(ATTACK, ATTACK),))
    reviewed = replace(
        reviewed, scope=replace(reviewed.scope, description=ATTACK), reviewer=replace(reviewed.reviewer, why=ATTACK)
    )
    body = summary(reviewed)
    active = {token.content.strip() for token in tokens(body) if token.type in ACTIVE}
    mark, details = MARKER.line(Mark(MarkKind.SUMMARY, FIRST)), "<details><summary>1 finding</summary>"
    assert active == {mark, details, "</details>"}
    assert "@everyone" not in "".join(token.content for token in tokens(body) if token.type == "text")


def test_the_words_beside_the_commit_fit_and_hold_no_secret() -> None:
    secret = "ghp_" + "Z9y8" * 9
    reviewed = review(finding(4), complete=False, errors=(ReviewError("x", secret),))
    assert status_description(reviewed) == (
        "FAIL: 1 finding at or above fail_on=high; and not everything could be reviewed"
    )
    assert len(status_description(reviewed)) <= LONGEST_STATUS
    assert check_title(reviewed).startswith("FAIL: 1 finding")
    assert "redacted" in check_summary(reviewed)
    assert secret[4:] not in check_summary(reviewed)
    low = review(finding(4, severity=Severity.LOW))
    assert check_title(low).startswith("NEEDS WORK")


def test_no_secret_reaches_the_summary_from_wherever_it_is() -> None:
    secret = "ghp_" + "Q7w8" * 9
    leaky = Coverage(
        files_total=2,
        skipped=(SkippedFile("x", SkipReason.TOO_LARGE, secret),),
        units_failed=(FailedUnit(secret, ("app.py",), secret),),
    )
    reviewed = review(
        finding(400, title=secret, verification=secret), coverage=leaky, errors=(ReviewError("x", secret),)
    )
    reviewed = replace(
        reviewed, scope=replace(reviewed.scope, description=secret), reviewer=replace(reviewed.reviewer, why=secret)
    )
    pull = pull_request(thread_about(finding(4, title=secret), said(f"dismiss: {secret}")))
    for body in (summary(reviewed, pull), summary(review(finding(4, title=secret)), pull)):
        assert "redacted" in body
        assert secret[4:] not in body
