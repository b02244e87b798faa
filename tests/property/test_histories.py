"""Random histories of claims: what must hold in every round, whoever says what and however the code changes."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.findings.claims import worst
from codeloupe.model.finding import Claim, Finding, Proof, Severity, Source
from codeloupe.model.review import Policy, Review
from tests.histories import AGENT, COMMAND, RUFF, Said, Step, World, agent, command, ruff

# `make soak` plays three thousand histories in each test.
pytestmark = pytest.mark.timeout(1800)

STATEMENTS = ("handle = open(path)", "data = handle.read()", "total = sum(data)", "send(total)", "return total")
WORDS = (
    "The opened file handle is never closed after reading",
    "Opened file handle stays unclosed when reading configuration fails",
    "Untrusted path allows directory traversal outside the root",
    "Directory traversal outside the root through untrusted path",
)
SEVERITIES = [severity.label for severity in Severity]
PROOFS = ["confirmed", "unproven", "refuted", "failed"]

_statements = st.sampled_from(STATEMENTS)
_words = st.sampled_from(WORDS)
_severities = st.sampled_from(SEVERITIES)
_files = st.sampled_from(["app.py", "app.py", "lib.py"])
_numbers = st.sampled_from([1, 1, 2])
_bodies = st.lists(_statements, min_size=1, max_size=4)


def _program(bodies: list[list[str]]) -> str:
    """Return a file with a function for each list of statements."""
    functions: list[str] = []
    for number, body in enumerate(bodies):
        lines = "".join(f"    {line}\n" for line in body)
        functions.append(f"def work_{number}(path):\n{lines}")
    return "\n\n".join(functions)


_programs = st.builds(_program, st.lists(_bodies, min_size=1, max_size=3))
_said_by_agents = st.builds(
    agent, _statements, _words, _severities, by=st.sampled_from([AGENT, "codex"]), file=_files, number=_numbers
)
_said_by_ruff = st.builds(
    ruff,
    _statements,
    st.sampled_from(["S1", "S2"]),
    _severities,
    words=_words,
    file=_files,
    number=_numbers,
    silenced_by=st.sampled_from(["", "", "", "noqa"]),
)
_said_by_command = st.builds(command, _statements, _words, _severities, file=_files, number=_numbers)
_claims = st.lists(st.one_of(_said_by_agents, _said_by_agents, _said_by_ruff, _said_by_command), max_size=6)
_reporters = st.frozensets(st.sampled_from([AGENT, RUFF, COMMAND]), max_size=1)
_policies = st.builds(
    Policy, fail_on=st.sampled_from([Severity.HIGH, *Severity]), verify=st.sampled_from([True, True, True, False])
)
_changes = st.dictionaries(_files, _programs, max_size=2)
_steps = st.builds(
    Step,
    says=_claims.map(tuple),
    proof=st.dictionaries(_words, st.sampled_from(PROOFS)) | st.sampled_from(PROOFS),
    files=st.one_of(st.just({}), _changes),
    excluded=st.sampled_from([frozenset(), frozenset(), frozenset({"lib.py"})]),
    failed=_reporters,
    off=_reporters,
    asks=st.sampled_from([True, True, False]),
    verifies=st.sampled_from([True, True, True, False]),
    policy=_policies,
    accepts=st.sampled_from(["", "", "", "", "baseline", "dismissal"]),
    drops_acceptance=st.sampled_from([False, False, False, True]),
)
_histories = st.lists(_steps, min_size=1, max_size=5)


@contextmanager
def new_world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        yield World(Path(folder), {"app.py": _program([list(STATEMENTS)]), "lib.py": _program([["send(total)"]])})


def findings_of(review: Review) -> tuple[Finding, ...]:
    return (*review.findings, *review.hidden)


def counting(finding: Finding) -> list[Claim]:
    """Return the claims of a finding that may block: those of agents only if they are confirmed and have a place."""
    return [
        claim
        for claim in finding.claims
        if claim.end is None
        and (claim.source is not Source.AGENT or (claim.proof is Proof.CONFIRMED and claim.anchored))
    ]


def blocking(review: Review) -> list[Finding]:
    fail_on = review.policy.fail_on
    return [finding for finding in findings_of(review) if finding.can_block and finding.severity.at_least(fail_on)]


@given(_histories)
def test_an_analysers_claim_stays_while_its_analyser_reports_it(history: list[Step]) -> None:
    with new_world() as world:
        for one in history:
            review = world.review(one)
            for said in one.says:
                if said.reporter == RUFF and _is_heard(said, one):
                    assert any(_shows(finding, world.placed(said)) for finding in findings_of(review))


def _is_heard(said: Said, one: Step) -> bool:
    is_active = RUFF not in one.failed and RUFF not in one.off
    return is_active and not said.silenced_by and said.file not in one.excluded


def _shows(finding: Finding, reported: Claim) -> bool:
    """Tell whether a finding counts, or would without its suppression, by an analyser's claim at its place."""
    if not finding.is_open and finding.suppression is None:
        return False
    for claim in finding.claims:
        is_same = (claim.reporter, claim.rule, claim.file) == (reported.reporter, reported.rule, reported.file)
        is_here = claim.line_start == reported.line_start
        if is_same and is_here and claim.end is None and claim.severity.at_least(reported.severity):
            return True
    return False


@given(_histories)
def test_no_unconfirmed_claim_of_an_agent_blocks(history: list[Step]) -> None:
    with new_world() as world:
        for one in history:
            review = world.review(one)
            if not one.policy.verify:
                continue
            for finding in blocking(review):
                reached = worst(claim.severity for claim in counting(finding))
                assert reached is not None
                assert reached.at_least(one.policy.fail_on)


class Refutation(NamedTuple):
    """What was refuted on the tree of now."""

    file: str
    line: int | None
    words: str
    severity: Severity

    def covers(self, claim: Claim) -> bool:
        is_same = (claim.file, claim.line_start, claim.title) == (self.file, self.line, self.words)
        return is_same and claim.source is Source.AGENT and not claim.severity.is_worse_than(self.severity)


@given(_histories)
def test_a_refuted_claim_never_blocks_on_the_tree_it_was_refuted_on(history: list[Step]) -> None:
    refuted: list[Refutation] = []
    with new_world() as world:
        for one in history:
            if one.files or one.excluded:
                refuted = []
            review = world.review(one)
            for finding in blocking(review):
                others = [claim for claim in _active(finding) if not any(known.covers(claim) for known in refuted)]
                reached = worst(claim.severity for claim in others)
                assert reached is not None
                assert reached.at_least(one.policy.fail_on)
            refuted += [
                Refutation(claim.file, claim.line_start, claim.title, claim.severity)
                for claim in world.verifier.refuted
            ]


def _active(finding: Finding) -> list[Claim]:
    return [claim for claim in finding.claims if claim.end is None and claim.proof is not Proof.REFUTED]


@given(_histories)
def test_a_claim_is_verified_at_most_once_in_a_round(history: list[Step]) -> None:
    with new_world() as world:
        for one in history:
            world.review(one)
            assert world.verifier.calls <= 1
            names = [finding.fingerprint for finding in world.verifier.findings]
            assert len(set(names)) == len(names)
            claims = [_identity(finding, claim) for finding in world.verifier.findings for claim in finding.claims]
            assert len(set(claims)) == len(claims)


def _identity(finding: Finding, claim: Claim) -> tuple[object, ...]:
    """Return what tells a claim apart: its place and words, and without a place its finding and words."""
    place = claim.line_start if claim.anchored else finding.fingerprint
    return claim.file, place, claim.title, claim.severity


@given(_histories)
def test_suppressed_findings_are_not_verified(history: list[Step]) -> None:
    with new_world() as world:
        for one in history:
            review = world.review(one)
            suppressed = {finding.fingerprint for finding in findings_of(review) if finding.suppression is not None}
            assert suppressed.isdisjoint(finding.fingerprint for finding in world.verifier.findings)


@given(_histories, st.randoms(use_true_random=False))
def test_the_order_of_claims_changes_nothing(history: list[Step], chance: object) -> None:
    with new_world() as world, new_world() as other:
        for one in history:
            says = list(one.says)
            chance.shuffle(says)  # type: ignore[attr-defined]  # a random.Random that hypothesis controls
            shuffled = Step(**{**one.__dict__, "says": tuple(says)})
            assert world.review(one).findings == other.review(shuffled).findings


@given(_histories)
def test_each_finding_has_a_fingerprint_of_its_own(history: list[Step]) -> None:
    with new_world() as world:
        for one in history:
            names = [finding.fingerprint for finding in findings_of(world.review(one))]
            assert all(names)
            assert len(set(names)) == len(names)
