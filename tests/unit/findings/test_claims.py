"""The table of "Claims and findings": with which severity a claim counts, and what claims add up to."""

import pytest
from msgspec.structs import replace

from codeloupe.findings.claims import counted_severity, is_pending, settled, with_main_claim_first
from codeloupe.model.finding import (
    Claim,
    ClaimEnd,
    Finding,
    FindingStatus,
    Proof,
    Severity,
    Source,
    Suppression,
    SuppressionKind,
)
from codeloupe.model.review import Policy

AGENT = Claim(reporter="claude", source=Source.AGENT, severity=Severity.HIGH, title="wrong", file="a.py", line_start=1)
ANALYSER = replace(AGENT, reporter="ruff", source=Source.ANALYSER, rule="S1")
EXTERNAL = replace(AGENT, reporter="command", source=Source.EXTERNAL)
CONFIRMED = replace(AGENT, proof=Proof.CONFIRMED)
UNPROVEN = replace(AGENT, proof=Proof.UNPROVEN)
REFUTED = replace(AGENT, proof=Proof.REFUTED)
UNANCHORED = {"anchored": False, "line_start": None}
AS_MADE = "critical high medium low"
# A claim that does not count is "-", a pending one "?".
NOT, PENDING = "- - - -", "? ? ? ?"

# The results are those of a critical, a high, a medium and a low claim.
ROWS = [
    ("an analyser's claim, fail_on high", ANALYSER, "high", AS_MADE),
    ("an analyser's claim, fail_on low", ANALYSER, "low", AS_MADE),
    ("an external claim, fail_on high", EXTERNAL, "high", AS_MADE),
    ("an external claim, fail_on low", EXTERNAL, "low", AS_MADE),
    ("an agent's claim, fail_on critical", AGENT, "critical", "? ? medium low"),
    ("an agent's claim, fail_on high", AGENT, "high", "? ? medium low"),
    ("an agent's claim, fail_on medium", AGENT, "medium", "? ? ? low"),
    ("an agent's claim, fail_on low", AGENT, "low", PENDING),
    ("confirmed, fail_on critical", CONFIRMED, "critical", AS_MADE),
    ("confirmed, fail_on high", CONFIRMED, "high", AS_MADE),
    ("confirmed, fail_on medium", CONFIRMED, "medium", AS_MADE),
    ("confirmed, fail_on low", CONFIRMED, "low", AS_MADE),
    ("unproven, fail_on critical", UNPROVEN, "critical", "medium medium medium low"),
    ("unproven, fail_on high", UNPROVEN, "high", "medium medium medium low"),
    ("unproven, fail_on medium", UNPROVEN, "medium", "low low low low"),
    ("unproven, fail_on low", UNPROVEN, "low", NOT),
    ("refuted, fail_on critical", REFUTED, "critical", NOT),
    ("refuted, fail_on high", REFUTED, "high", NOT),
    ("refuted, fail_on low", REFUTED, "low", NOT),
    ("confirmed but unanchored, fail_on high", replace(CONFIRMED, **UNANCHORED), "high", "? ? medium low"),
    ("confirmed but unanchored, fail_on medium", replace(CONFIRMED, **UNANCHORED), "medium", "? ? ? low"),
    ("confirmed but unanchored, fail_on low", replace(CONFIRMED, **UNANCHORED), "low", PENDING),
    ("unproven and unanchored, fail_on high", replace(UNPROVEN, **UNANCHORED), "high", "medium medium medium low"),
    ("refuted and unanchored, fail_on high", replace(REFUTED, **UNANCHORED), "high", NOT),
    ("an unanchored analyser's claim, fail_on high", replace(ANALYSER, **UNANCHORED), "high", AS_MADE),
    ("an agent's claim, verify off, fail_on high", AGENT, "high off", AS_MADE),
    ("an agent's claim, verify off, fail_on low", AGENT, "low off", AS_MADE),
    ("unproven, verify off, fail_on high", UNPROVEN, "high off", AS_MADE),
    ("confirmed but unanchored, verify off, fail_on high", replace(CONFIRMED, **UNANCHORED), "high off", AS_MADE),
    ("refuted, verify off, fail_on high", REFUTED, "high off", NOT),
    ("fixed, fail_on high", replace(CONFIRMED, end=ClaimEnd.FIXED), "high", NOT),
    ("silenced, fail_on high", replace(ANALYSER, end=ClaimEnd.SILENCED), "high", NOT),
    ("gone before its verification, fail_on high", replace(AGENT, end=ClaimEnd.GONE), "high", NOT),
]


def policy_of(words: str) -> Policy:
    return Policy(fail_on=Severity.parse(words.split(maxsplit=1)[0]), verify="off" not in words)


@pytest.mark.parametrize(("claim", "policy", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_counted_severity(claim: Claim, policy: str, expected: str) -> None:
    results: list[str] = []
    for severity in Severity:
        made = replace(claim, severity=severity)
        counted = counted_severity(made, policy_of(policy))
        pending = is_pending(made, policy_of(policy))
        assert not (pending and counted)
        if pending:
            results.append("?")
        else:
            results.append(counted.label if counted else "-")
    assert " ".join(results) == expected


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize("fail_on", list(Severity))
@pytest.mark.parametrize("proof", [None, Proof.UNPROVEN, Proof.REFUTED])
def test_an_unconfirmed_claim_of_an_agent_never_blocks(
    severity: Severity, fail_on: Severity, proof: Proof | None
) -> None:
    policy = Policy(fail_on=fail_on)
    counted = counted_severity(replace(AGENT, severity=severity, proof=proof), policy)
    blocks = counted is not None and counted.at_least(fail_on)
    assert not blocks


def finding_of(*claims: Claim, status: FindingStatus = FindingStatus.NEW) -> Finding:
    return Finding(claims=claims, severity=Severity.LOW, status=status)


def as_(claim: Claim, severity: str) -> Claim:
    return replace(claim, severity=Severity.parse(severity))


FINDINGS = [
    ("the worst claim that counts", [as_(ANALYSER, "medium"), as_(CONFIRMED, "critical")], "critical new"),
    ("an unproven claim does not raise the severity", [as_(ANALYSER, "low"), UNPROVEN], "medium new"),
    ("a refuted claim does not raise the severity", [as_(ANALYSER, "low"), as_(REFUTED, "critical")], "low new"),
    ("a more severe pending claim", [as_(ANALYSER, "medium"), AGENT], "medium new pending"),
    ("an equally severe pending claim", [ANALYSER, AGENT], "high new"),
    ("a less severe pending claim", [as_(ANALYSER, "critical"), AGENT], "critical new"),
    ("only a pending claim", [AGENT], "not counted new pending"),
    ("only a refuted claim", [REFUTED], "not counted refuted"),
    ("a refuted and a pending claim", [as_(REFUTED, "critical"), AGENT], "not counted new pending"),
    ("only a fixed claim", [replace(CONFIRMED, end=ClaimEnd.FIXED)], "not counted fixed"),
    ("only a silenced claim", [replace(ANALYSER, end=ClaimEnd.SILENCED)], "not counted silenced"),
    ("only a claim that is gone", [replace(ANALYSER, end=ClaimEnd.GONE)], "not counted gone"),
    ("a fixed and a counting claim", [replace(ANALYSER, end=ClaimEnd.FIXED), CONFIRMED], "high new"),
]


@pytest.mark.parametrize(("claims", "expected"), [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS])
def test_settled(claims: list[Claim], expected: str) -> None:
    for order in (claims, claims[::-1]):
        found = settled(finding_of(*order), Policy())
        words = [found.severity.label if found.counts else "not counted", found.status.value]
        if found.is_pending:
            words.append("pending")
        assert " ".join(words) == expected
        assert sorted(map(repr, found.claims)) == sorted(map(repr, claims))


def test_an_unproven_claim_at_fail_on_low_is_listed_and_does_not_count() -> None:
    found = settled(finding_of(UNPROVEN), Policy(fail_on=Severity.LOW))
    assert (found.status, found.counts, found.can_block) == (FindingStatus.UNPROVEN, False, False)


def test_a_finding_keeps_where_it_comes_from_while_it_is_open() -> None:
    for status in (FindingStatus.NEW, FindingStatus.OPEN, FindingStatus.REGRESSED):
        assert settled(finding_of(ANALYSER, status=status), Policy()).status is status


def test_a_closed_finding_whose_claim_counts_is_open() -> None:
    listed = settled(finding_of(UNPROVEN), Policy(fail_on=Severity.LOW))
    again = settled(listed, Policy())
    assert (again.status, again.severity, again.can_block) == (FindingStatus.OPEN, Severity.MEDIUM, True)


def test_a_claim_that_counts_gives_the_finding_its_place() -> None:
    elsewhere = replace(REFUTED, severity=Severity.CRITICAL, line_start=9)
    assert with_main_claim_first(finding_of(elsewhere, ANALYSER), Policy()).main_claim == ANALYSER


@pytest.mark.parametrize("kind", list(SuppressionKind))
def test_a_suppressed_finding_does_not_block(kind: SuppressionKind) -> None:
    found = settled(replace(finding_of(ANALYSER), suppression=Suppression(kind=kind, reason="known")), Policy())
    assert (found.is_open, found.can_block) == (False, False)
    assert (found.status is FindingStatus.DISMISSED) == (kind is SuppressionKind.DISMISSAL)
