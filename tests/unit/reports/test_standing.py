from codeloupe.model.finding import Severity
from codeloupe.model.review import NOT_INCLUDED, Coverage, Policy, Review, SkippedFile, SkipReason, Verdict
from codeloupe.reports import Layout, render
from codeloupe.reports.wording import Tone, check_name, outcome_of
from tests.rows import each
from tests.telling_reviews import closed_findings, empty_review, incomplete_review, passed_review, pending_finding
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
        (CAUTION, nothing(*LEFT_OUT), f"{NOTHING}: every changed file is skipped (1 media, 1 lock file)"),
        (CAUTION, nothing(UNNAMED), f"{NOTHING}: no include pattern or path matches a changed file (1 file changed)"),
        (
            CAUTION,
            nothing(UNNAMED, EXCLUDED),
            f"{NOTHING}: the exclude patterns skip every changed file (2 files, by the pattern **)",
        ),
        (GOOD, review(hidden_findings=1), "PASS: nothing found at or above min_severity=low"),
        (BAD, review(finding()), "FAIL: 1 finding at or above fail_on=high"),
        (
            BAD,
            review(finding(), complete=False),
            "FAIL: 1 finding at or above fail_on=high; and not everything could be reviewed",
        ),
        (CAUTION, review(LOW, **WORK, exit_code=0), f"NEEDS WORK: {TO_LOOK_AT}high, so nothing is blocked"),
        (CAUTION, incomplete_review(), ALL_BUT),
        (
            CAUTION,
            review(complete=False, exit_code=0, policy=Policy(pass_when_incomplete=True)),
            f"{ALL_BUT}; accepted, because on_incomplete is pass",
        ),
        (
            GOOD,
            review(*closed_findings(), verdict=Verdict.PASS, exit_code=0),
            "PASS: nothing found that counts against the change",
        ),
        (
            BAD,
            review(finding(), finding(severity=Severity.CRITICAL), LOW, finding(anchored=False), pending_finding()),
            "FAIL: 3 findings at or above fail_on=high",
        ),
        (
            CAUTION,
            review(pending_finding(), complete=False, exit_code=3, verdict=Verdict.INCOMPLETE),
            "INCOMPLETE: 1 finding needs a person to decide",
        ),
        (
            CAUTION,
            incomplete_review(findings=(pending_finding(), pending_finding())),
            f"INCOMPLETE: 2 findings need a person to decide; {ALL_BUT.removeprefix('INCOMPLETE: ')}",
        ),
        (
            CAUTION,
            review(omitted=(finding(),), complete=False, exit_code=3, policy=Policy(pass_when_incomplete=True)),
            "INCOMPLETE: 1 open finding at or above fail_on=high omitted",
        ),
        (
            CAUTION,
            incomplete_review(omitted=(finding(),)),
            "INCOMPLETE: 1 open finding at or above fail_on=high omitted; could not review everything",
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


@each(
    ("rule", "category", "name"),
    [
        *(("S608", "x", "S608"), (None, "security", "security"), (None, "", "general"), ("--", "x", "general")),
        ("r" * 1_000, "", "r" * 80),
    ],
)
def test_a_check_always_has_a_plain_name(rule: str | None, category: str, name: str) -> None:
    assert check_name(finding(rule=rule, category=category)) == name
