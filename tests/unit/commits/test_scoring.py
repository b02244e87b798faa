import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.commits.sweep import exit_code, overall_score, plan_of, summarise, verdict
from codeloupe.findings.verdict import score
from codeloupe.model.finding import FindingStatus, Proof, Severity, Source
from codeloupe.model.sweep import CommitReview, CommitVerdict, PlanStep
from tests.rows import each
from tests.unit.commits.sweep_samples import failed_review, finding, not_reviewed, reviewed

LOW, MEDIUM, HIGH, CRITICAL = Severity.LOW, Severity.MEDIUM, Severity.HIGH, Severity.CRITICAL


@each(
    ("severities", "expected_score", "expected_verdict"),
    [
        ([], 1.0, "LEAVE"),
        ([LOW], 0.95, "LEAVE"),
        ([MEDIUM], 0.85, "LEAVE"),
        ([MEDIUM, LOW], 0.8, "LEAVE"),
        ([LOW] * 4, 0.8, "LEAVE"),
        ([LOW] * 5, 0.75, "FIX"),
        ([HIGH], 0.7, "FIX"),
        ([CRITICAL], 0.5, "FIX"),
        ([HIGH, MEDIUM, LOW], 0.5, "FIX"),
        ([LOW] * 10, 0.5, "FIX"),
        ([HIGH, HIGH], 0.4, "REVERT"),
        ([CRITICAL, LOW], 0.45, "REVERT"),
        ([CRITICAL, CRITICAL], 0.0, "REVERT"),
        ([CRITICAL] * 9, 0.0, "REVERT"),
    ],
)
def test_score_and_verdict(severities: list[Severity], expected_score: float, expected_verdict: str) -> None:
    findings = [finding(severity) for severity in severities]
    assert score(findings) / 100 == expected_score
    assert verdict(findings) == expected_verdict


@each(
    ("proof", "expected"),
    [(Proof.CONFIRMED, CommitVerdict.REVERT), (Proof.UNPROVEN, CommitVerdict.FIX), (None, CommitVerdict.FIX)],
)
def test_a_critical_finding_reverts_alone_only_when_it_was_confirmed(
    proof: Proof | None, expected: CommitVerdict
) -> None:
    assert verdict([finding(CRITICAL, proof=proof)]) is expected
    assert verdict([finding(HIGH, proof=proof)]) is CommitVerdict.FIX


@pytest.mark.defect("N9")
@each(
    ("analysers", "agents", "expected"),
    [
        ([HIGH] + [MEDIUM] * 7, [], CommitVerdict.FIX),
        ([CRITICAL] * 9, [], CommitVerdict.FIX),
        ([CRITICAL] * 9, [HIGH], CommitVerdict.FIX),
        ([LOW], [HIGH, HIGH], CommitVerdict.REVERT),
        ([MEDIUM], [], CommitVerdict.LEAVE),
    ],
)
def test_the_findings_of_analysers_alone_never_advise_a_revert(
    analysers: list[Severity], agents: list[Severity], expected: CommitVerdict
) -> None:
    findings = [finding(one, source=Source.ANALYSER) for one in analysers] + [finding(one) for one in agents]
    assert verdict(findings) is expected


@pytest.mark.defect("N9")
def test_the_step_for_an_analysers_finding_is_its_own_advice() -> None:
    lint = finding(
        MEDIUM,
        title="Uses of `tarfile.extractall()`",
        file="a.py",
        line_start=7,
        source=Source.ANALYSER,
        suggestion='Pass `filter="data"`.',
    )
    assert plan_of([lint]) == (PlanStep("fix", 'Fix a.py:7: Uses of `tarfile.extractall()`. Pass `filter="data"`.'),)
    steps = plan_of([lint, finding(HIGH)])
    assert [step.phase for step in steps] == ["red", "green", "fix", "refactor"]
    assert steps[-1].text == "With all tests green, clean up the changed code: app/db.py."
    many = plan_of([replace(lint, fingerprint=str(number)) for number in range(12)])
    assert [step.phase for step in many] == ["fix"] * 11
    assert many[-1].text == "Then fix the other 2 in the same way."


@each("changes", [{"counts": False, "is_pending": True}, {"status": FindingStatus.REFUTED}])
def test_a_finding_that_does_not_count_costs_nothing(changes: dict[str, object]) -> None:
    findings = [finding(CRITICAL, proof=Proof.CONFIRMED, **changes)]
    assert (score(findings), verdict(findings), plan_of(findings)) == (100, CommitVerdict.LEAVE, ())


@given(st.lists(st.sampled_from(Severity), max_size=30))
def test_the_score_stays_between_nothing_and_a_hundred_and_never_rises_with_a_finding(
    severities: list[Severity],
) -> None:
    scores = [score([finding(one) for one in severities[:count]]) for count in range(len(severities) + 1)]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= one <= 100 for one in scores)


def test_the_plan_is_red_and_green_for_each_then_refactor_and_the_worst_comes_first() -> None:
    findings = [
        finding(LOW, title="a nit"),
        finding(MEDIUM, title="slow loop", file="b.py", line_start=7, suggestion="Use a set."),
        finding(CRITICAL, title="all data is lost!"),
    ]
    steps = plan_of(findings)
    assert [step.phase for step in steps] == ["red", "green", "red", "green", "refactor"]
    assert [step.text for step in steps] == [
        "Write a test that fails because of this: all data is lost! (app/db.py:42)",
        "Change app/db.py:42 until it passes, and nothing else.",
        "Write a test that fails because of this: slow loop. (b.py:7)",
        "Change b.py:7 until it passes, and nothing else. Suggested: Use a set.",
        "With all tests green, clean up the changed code: app/db.py, b.py.",
    ]


def test_a_plan_stays_short_and_says_what_it_leaves_out() -> None:
    assert plan_of([finding(LOW)] * 3) == ()
    steps = plan_of([finding(MEDIUM, line_start=number) for number in range(1, 31)])
    assert len(steps) == 21
    assert steps[-1].text.endswith("Then fix the other 20 in the same way.")
    assert "\n" not in plan_of([finding(title="one\n\ntwo")])[0].text


def test_the_summary_has_the_fixed_form() -> None:
    assert summarise([]) == ("0 commits reviewed, 0 OK, 0 need fixes, 0 should be reverted, 0 could not be reviewed")
    commits = [
        reviewed(1),
        reviewed(2, finding(LOW)),
        reviewed(3, finding(HIGH)),
        reviewed(4, finding(CRITICAL), finding(CRITICAL)),
        not_reviewed(5),
    ]
    assert summarise(commits) == (
        "5 commits reviewed, 2 OK, 1 need fixes, 1 should be reverted, 1 could not be reviewed"
    )
    assert overall_score(commits) == 0.66
    assert overall_score([]) is None
    assert overall_score([not_reviewed(1)]) is None


@each(
    ("commits", "codes"),
    [
        ([], (0, 0)),
        ([reviewed(1)], (0, 0)),
        ([reviewed(1, finding(LOW), finding(MEDIUM))], (0, 0)),
        ([reviewed(1, finding(HIGH))], (0, 1)),
        ([reviewed(1, finding(CRITICAL))], (0, 1)),
        ([reviewed(1, finding(HIGH, anchored=False))], (0, 1)),
        ([reviewed(1, finding(HIGH, counts=False, is_pending=True))], (0, 0)),
        ([reviewed(1, finding(CRITICAL, status=FindingStatus.REFUTED))], (0, 0)),
        ([not_reviewed(1)], (3, 3)),
        ([reviewed(1, *[finding(LOW)] * 20)], (0, 0)),
        ([not_reviewed(1), reviewed(2, finding(HIGH))], (3, 1)),
        ([not_reviewed(1, review=failed_review(findings=(finding(HIGH),)))], (3, 1)),
    ],
)
def test_strict_is_1_on_high_or_critical_and_only_then(commits: list[CommitReview], codes: tuple[int, int]) -> None:
    assert tuple(exit_code(commits, strict=strict, pass_when_incomplete=False) for strict in (False, True)) == codes
    lenient = tuple(exit_code(commits, strict=strict, pass_when_incomplete=True) for strict in (False, True))
    assert lenient == tuple(0 if code == 3 else code for code in codes)
