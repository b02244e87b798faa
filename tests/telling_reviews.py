"""Reviews that hold every kind of finding, gap and text that a report must cope with."""

from datetime import date
from typing import Any

from msgspec.structs import replace

from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import (
    ClaimEnd,
    Finding,
    FindingStatus,
    Proof,
    Severity,
    Source,
    Suppression,
    SuppressionKind,
)
from codeloupe.model.review import (
    Coverage,
    FailedUnit,
    Review,
    ReviewError,
    SkippedFile,
    SkipReason,
    Unanswered,
    UnitRecord,
    Verdict,
)
from codeloupe.reports import ShownDiff
from tests.findings_material import changed_finding, make_claim, make_finding
from tests.unit.reports.examples import finding, review

ATTACK = "</script><svg onload=\"document.body.dataset.owned='yes'\"><img src=x onerror=alert(1)>"
HOSTILE = (
    f"{ATTACK} ![i](http://evil.test/x.png) [l](javascript:alert(1)) @everyone #1 \x00\x1b[31m\u202e\ud800\udcff "
    "]]> & &#64; ::error::x ##[error] ```\n::stop-commands::x\n# Verdict: PASS\n/close\r\n`` ` | $x$ \ufffe{0} ${x}"
)
ODD_PATH = "a b/ü#?%:'\"<&>\udcff\u202e.py"
FAILED = FailedUnit("app/slow.py#2", ("app/slow.py",), "timeout after 300 s")
TOO_LARGE = SkippedFile("data/dump.sql", SkipReason.TOO_LARGE, "4 MB, the limit is 1 MB")
LOCK_FILE = SkippedFile("poetry.lock", SkipReason.LOCK_FILE)
GAPS = Coverage(files_total=6, files_reviewed=4, skipped=(TOO_LARGE, LOCK_FILE), units_total=9, units_failed=(FAILED,))
_QUOTA = (Unanswered("agent_sdk", "its quota ended"),)
UNITS = (
    UnitRecord(unit="app/old.py", files=("app/old.py",), answered_by="agent_sdk", model="some-model"),
    UnitRecord(unit="app/db.py", files=("app/db.py",), answered_by="codex", model="gpt", unanswered=_QUOTA),
    UnitRecord(unit="app/api.py", files=("app/api.py",), answered_by="codex", model="gpt", unanswered=_QUOTA),
    UnitRecord(unit=FAILED.unit, files=FAILED.files, unanswered=(*_QUOTA, Unanswered("codex", "timeout after 300 s"))),
)


def open_findings() -> tuple[Finding, ...]:
    """A blocking one, two that do not block, one from an earlier review and one that is back."""
    return (
        finding(
            title="Blocks",
            fingerprint="f-blocks",
            severity=Severity.CRITICAL,
            expert="security",
            seen_by=("agent_sdk", "ruff"),
        ),
        finding(title="Stays", fingerprint="f-stays", status=FindingStatus.OPEN, line_start=50, line_end=52),
        finding(title="Is back", fingerprint="f-back", status=FindingStatus.REGRESSED, file="app/old.py"),
        finding(title="Could be better", fingerprint="f-medium", severity=Severity.MEDIUM, file="app/api.py"),
        finding(
            title="Is a nit", fingerprint="f-low", severity=Severity.LOW, file="app/api.py", rule=None, expert="style"
        ),
    )


def closed_findings() -> tuple[Finding, ...]:
    baseline = Suppression(
        kind=SuppressionKind.BASELINE, reason="known since spring", owner="the team", expires=date(2030, 1, 2)
    )
    dismissal = Suppression(kind=SuppressionKind.DISMISSAL, reason="only in tests", owner="ada")
    return (
        finding(title="Was wrong", status=FindingStatus.REFUTED, proof=Proof.REFUTED, reason="it is checked above"),
        finding(title="Is accepted", suppression=baseline),
        finding(title="Is waved", suppression=Suppression(kind=SuppressionKind.INLINE, reason="by hand")),
        finding(title="Was dismissed", status=FindingStatus.DISMISSED, suppression=dismissal),
        finding(title="Was fixed", status=FindingStatus.FIXED, end=ClaimEnd.FIXED),
        finding(
            title="Was silenced",
            status=FindingStatus.SILENCED,
            source=Source.ANALYSER,
            end=ClaimEnd.SILENCED,
            silenced_by="# noqa: S608",
        ),
        finding(title="Is gone", status=FindingStatus.GONE, end=ClaimEnd.GONE),
        finding(
            title="Was not proven",
            status=FindingStatus.UNPROVEN,
            proof=Proof.UNPROVEN,
            reason="the caller is not shown",
            severity=Severity.LOW,
        ),
    )


def unplaced_finding(**changes: Any) -> Finding:
    """A finding that counts although its code was not found."""
    return finding(title="Is nowhere", anchored=False, fingerprint="f-nowhere", **changes)


def pending_finding(**changes: Any) -> Finding:
    """A finding that nothing confirmed or refuted, so that a person must decide."""
    pending = {"title": "Is open to doubt", "fingerprint": "f-pending", "reason": "timeout", "file": "app/doubt.py"}
    return finding(**{**pending, "rule": None, "reporter": "codex", "counts": False, "is_pending": True, **changes})


def joined_finding() -> Finding:
    """A finding of several reporters."""
    said = {"file": "app/db.py", "line_start": 42, "line_end": 42, "evidence": "    cursor.execute(query + name)"}
    return make_finding(
        make_claim(**said, reporter="codex", title="Injection", proof=Proof.CONFIRMED, reason="name is not checked"),
        make_claim(**said, reporter="gate", title="Injection", source=Source.EXTERNAL, severity=Severity.MEDIUM),
        **said,
        title="Is seen by three",
        fingerprint="f-joined",
        reporter="ruff",
        source=Source.ANALYSER,
        rule="S608",
        severity=Severity.HIGH,
    )


def telling_review(**changes: Any) -> Review:
    found = (*open_findings(), joined_finding(), unplaced_finding(), pending_finding(), *closed_findings())
    whole = review(
        *found,
        complete=False,
        coverage=replace(GAPS, units=UNITS),
        hidden_findings=2,
        errors=(ReviewError("agent", "app/slow.py#2: timeout after 300 s"), ReviewError("history", "is not writable")),
        usage=Usage(requests=9, cached=2, input_tokens=41_000, output_tokens=900, cost_usd=0.31, duration_seconds=75.5),
    )
    return replace(whole, **changes)


passed_review = review


def empty_review() -> Review:
    return review(coverage=Coverage(), summary="No changes to review")


def incomplete_review(**changes: Any) -> Review:
    return review(complete=False, exit_code=3, coverage=GAPS, **changes)


def hostile_review() -> Review:
    """Every text that a stranger or a model may have written is an attack."""
    names = "title body evidence suggestion reason category rule reporter expert fingerprint commit_sha silenced_by"
    seen_by = (HOSTILE, f"1 {HOSTILE}", f"2 {HOSTILE}")
    bad = finding(file=ODD_PATH, seen_by=seen_by, proof=Proof.UNPROVEN, **dict.fromkeys(names.split(), HOSTILE))
    waved = replace(bad, suppression=Suppression(kind=SuppressionKind.BASELINE, reason=HOSTILE, owner=HOSTILE))
    nowhere = changed_finding(bad, anchored=False, file=HOSTILE)
    pending = changed_finding(nowhere, proof=None, counts=False, is_pending=True)
    joined = replace(bad, claims=bad.claims * 2)
    silenced = replace(bad, status=FindingStatus.SILENCED)
    unit = UnitRecord(unit=HOSTILE, files=(HOSTILE,), answered_by=HOSTILE, unanswered=(Unanswered(HOSTILE, HOSTILE),))
    whole = telling_review()
    return replace(
        whole,
        findings=(bad, nowhere, pending, joined, replace(bad, status=FindingStatus.REFUTED), waved, silenced),
        scope=replace(whole.scope, description=HOSTILE),
        reviewer=replace(whole.reviewer, why=HOSTILE, model=HOSTILE),
        coverage=Coverage(
            files_total=2,
            units_failed=(FailedUnit(HOSTILE, (ODD_PATH, HOSTILE), HOSTILE),),
            skipped=(SkippedFile(HOSTILE, SkipReason.UNREADABLE, HOSTILE), SkippedFile(ODD_PATH, SkipReason.BINARY)),
            units=(unit,),
        ),
        errors=(ReviewError(HOSTILE, HOSTILE),),
        review_id=HOSTILE,
        summary=HOSTILE,
        verdict=Verdict.FAIL,
    )


def shown_diff(path: str = "app/db.py", *, first_line: int = 40) -> ShownDiff:
    """A change of five lines around line 42 of a file."""
    body = b" def find(name):\n     # all of them\n-    cursor.run(query)\n+    cursor.execute(query + name)\n \n"
    hunk = Hunk(first_line, 4, first_line, 4, body, added=1, deleted=1)
    return ShownDiff({path: FileChange(path, path, FileStatus.MODIFIED, hunks=(hunk,))})
