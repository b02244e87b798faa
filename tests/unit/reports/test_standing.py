from codeloupe.model.finding import Finding, FindingStatus, Severity, Suppression, SuppressionKind
from codeloupe.model.review import NOT_INCLUDED, Coverage, Policy, Review, ReviewError, SkippedFile, SkipReason, Verdict
from codeloupe.reports import Layout, render
from codeloupe.reports.wording import (
    GapKind,
    Standing,
    Tone,
    check_name,
    errors_beside_gaps,
    gaps_of,
    outcome_of,
    standing_of,
    standing_so,
    why_not_counted,
)
from tests.rows import each
from tests.telling_reviews import (
    closed_findings,
    empty_review,
    incomplete_review,
    open_findings,
    passed_review,
    telling_review,
    unplaced_finding,
)
from tests.unit.reports.examples import finding, review

LEFT_OUT = (SkippedFile("logo.png", SkipReason.MEDIA), SkippedFile("bun.lockb", SkipReason.LOCK_FILE))
UNNAMED = SkippedFile("a.py", SkipReason.EXCLUDED, NOT_INCLUDED)
EXCLUDED = SkippedFile("b.py", SkipReason.EXCLUDED, "by the pattern **")
LOW = finding(severity=Severity.LOW)
GOOD, CAUTION, BAD = Tone
NOTHING, ALL_BUT = "Nothing to review", "INCOMPLETE: could not review everything; nothing blocking found"
TO_LOOK_AT = "findings to look at, none at or above fail_on="
WORK = {"verdict": Verdict.NEEDS_WORK}


def nothing(*skipped: SkippedFile) -> Review:
    """A review in which all files were left out."""
    return review(coverage=Coverage(files_total=len(skipped), skipped=skipped))


@each(
    ("tone", "whole", "words"),
    [
        (GOOD, passed_review(), "PASS: nothing found"),
        (GOOD, empty_review(), f"{NOTHING}: no changes"),
        (CAUTION, nothing(*LEFT_OUT), f"{NOTHING}: every changed file is left out (1 media, 1 lock file)"),
        (CAUTION, nothing(UNNAMED), f"{NOTHING}: no include pattern or path matches a changed file (1 file changed)"),
        (
            CAUTION,
            nothing(UNNAMED, EXCLUDED),
            f"{NOTHING}: the exclude patterns leave out every changed file (2 files, by the pattern **)",
        ),
        (GOOD, review(hidden_findings=1), "PASS: nothing found at or above min_severity=low"),
        (BAD, review(finding()), "FAIL: 1 finding at or above fail_on=high"),
        (
            BAD,
            review(finding(), complete=False),
            "FAIL: 1 finding at or above fail_on=high; and not everything could be reviewed",
        ),
        (CAUTION, review(LOW, **WORK, exit_code=0), f"NEEDS WORK: {TO_LOOK_AT}high, so nothing is blocked"),
        (
            BAD,
            review(exit_code=1, **WORK),
            "NEEDS WORK: findings at or above fail_on=high are hidden by min_severity=low",
        ),
        (CAUTION, incomplete_review(), ALL_BUT),
        (
            CAUTION,
            review(complete=False, exit_code=0, policy=Policy(pass_when_incomplete=True)),
            f"{ALL_BUT}; accepted, since on_incomplete is pass",
        ),
        (
            GOOD,
            review(*closed_findings(), verdict=Verdict.PASS, exit_code=0),
            "PASS: nothing found that counts against the change",
        ),
        (
            BAD,
            review(finding(), finding(severity=Severity.CRITICAL), LOW, finding(anchored=False)),
            "FAIL: 2 findings at or above fail_on=high",
        ),
        (CAUTION, review(LOW, **WORK, complete=False, exit_code=3), ALL_BUT),
        (
            BAD,
            review(LOW, **WORK, policy=Policy(fail_on=Severity.LOW)),
            "NEEDS WORK: 1 finding at or above fail_on=low",
        ),
        (
            CAUTION,
            review(finding(), exit_code=0, policy=Policy(fail_on=Severity.CRITICAL)),
            f"FAIL: {TO_LOOK_AT}critical, so nothing is blocked",
        ),
    ],
)
def test_the_outcome_is_one_word_and_one_sentence(tone: Tone, whole: Review, words: str) -> None:
    outcome = outcome_of(whole)
    assert (outcome.tone, f"{outcome.word}: {outcome.why}") == (tone, words)
    # The text report says the same word.
    shown = render(whole, "text", Layout())
    assert f"\n{outcome.word}" in shown or (whole == empty_review() and "\nNo changes to review" in shown)


def test_each_finding_counts_in_one_way_and_those_of_a_kind_come_worst_first() -> None:
    assert {standing_of(one) for one in open_findings()} == {Standing.OPEN}
    assert standing_of(unplaced_finding()) is Standing.UNPLACED
    assert [standing_of(one) for one in closed_findings()] == [Standing.REFUTED, *[Standing.SET_ASIDE] * 4]
    low, late, early = finding(severity=Severity.LOW, line_start=1), finding(line_start=9), finding(line_start=2)
    assert standing_so((low, late, unplaced_finding(), early), Standing.OPEN) == [early, late, low]


@each(
    ("one", "why"),
    [
        (finding(), ""),
        (unplaced_finding(), ""),
        (finding(status=FindingStatus.REFUTED), "refuted"),
        (finding(status=FindingStatus.REFUTED, verification="refuted: no"), "refuted: no"),
        (finding(status=FindingStatus.DISMISSED), "dismissed"),
        (finding(suppression=Suppression(kind=SuppressionKind.BASELINE, reason="")), "suppressed by the baseline"),
        # One that is refuted and suppressed is a suppressed one.
        (
            finding(
                status=FindingStatus.REFUTED, suppression=Suppression(kind=SuppressionKind.INLINE, reason="by hand")
            ),
            "suppressed by a comment in the code: by hand",
        ),
    ],
)
def test_why_a_finding_does_not_count_is_said(one: Finding, why: str) -> None:
    assert why_not_counted(one) == why


@each(
    ("rule", "category", "name"),
    [
        *(("S608", "x", "S608"), (None, "security", "security"), (None, "", "general"), ("--", "x", "general")),
        ("r" * 1_000, "", "r" * 80),
    ],
)
def test_a_check_always_has_a_plain_name(rule: str | None, category: str, name: str) -> None:
    assert check_name(finding(rule=rule, category=category)) == name


def test_gaps_are_failed_units_and_files_that_should_have_been_reviewed() -> None:
    assert [(gap.kind, gap.in_words()) for gap in gaps_of(incomplete_review())] == [
        (GapKind.UNIT, "app/slow.py#2: timeout after 300 s"),
        (GapKind.FILE, "data/dump.sql: too large: 4 MB, the limit is 1 MB"),
    ]
    assert gaps_of(passed_review()) == ()
    assert [gap.kind for gap in gaps_of(review(complete=False))] == [GapKind.UNKNOWN]
    # Also where the review calls itself complete.
    assert len(gaps_of(telling_review(complete=True))) == 3


def test_an_error_that_a_gap_tells_is_not_told_again() -> None:
    assert errors_beside_gaps(telling_review()) == (ReviewError("history", "is not writable"),)
    assert len(errors_beside_gaps(review(errors=(ReviewError("a", "b"),)))) == 1
