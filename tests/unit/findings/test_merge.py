"""The cost of merging."""

import pytest
from msgspec.structs import replace

from codeloupe.findings import merge as merging
from codeloupe.findings.merge import merge
from codeloupe.findings.places import Places
from codeloupe.findings.same_defect import likeness
from codeloupe.model.change import Change, Scope, ScopeKind
from codeloupe.model.finding import Claim
from codeloupe.model.ports import Plan
from tests.findings_material import make_claim


@pytest.mark.parametrize("lines", [1, 300, 100_000])
def test_a_claim_is_compared_with_few_others(
    lines: int, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compared: list[float] = []

    def counted(one: Claim, other: Claim) -> float:
        compared.append(likeness(one, other))
        return compared[-1]

    monkeypatch.setattr(merging, "likeness", counted)
    scope = Scope(ScopeKind.BRANCH, None, None, "a branch")
    snapshot = tmp_path_factory.mktemp("snapshot")
    plan = Plan(change=Change(scope, ()), files=(), snapshot=snapshot, trusted=True, timeout_seconds=1.0)
    claims: list[Claim] = []
    for number in range(2_000):
        line = number * 37 % lines + 1
        claim = make_claim(title=f"defect{'abcdefghij'[number % 10] * 5} {number}", line_start=line, line_end=line)
        claims.append(replace(claim, seen_by=(f"look {number % 5}",)))
    cases = merge(claims, (), Places(plan))
    # Each with each would be two million.
    assert len(compared) <= 200 * len(claims)
    assert sum(len(case.reports) for case in cases) == len(claims)
