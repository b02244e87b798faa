"""Generated reviews: merging does not depend on order, loses no look, and joins only what is pairwise the same."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.engine.merge import merge_findings
from codeloupe.engine.similarity import Profile, are_nearly_identical, likeness
from codeloupe.model.finding import Finding, Severity
from tests.unit.engine.merge_material import labelled_pairs

_COMMENTS = st.sampled_from([seen for pair in labelled_pairs() for seen in (pair.one, pair.other)])
_CODES = st.sampled_from(["handle = open(path)", "user = find(name).mail\nsend(user)", "x = 1"])


@st.composite
def reviews(draw: st.DrawFn) -> list[Finding]:
    """Findings of different looks, crowded on few lines, so that much could be joined."""
    made = []
    for number, comment in enumerate(draw(st.lists(_COMMENTS, min_size=1, max_size=9))):
        line = draw(st.integers(1, 6))
        made.append(
            replace(
                comment,
                file=draw(st.sampled_from(["a.py", "a.py", "b.py"])),
                evidence=draw(_CODES),
                line_start=line,
                line_end=line + draw(st.integers(0, 2)),
                severity=draw(st.sampled_from(Severity)),
                anchored=draw(st.sampled_from([True, True, True, False])),
                seen_by=(f"look {number}",),
            )
        )
    return made


@given(review=reviews(), data=st.data())
def test_the_order_of_arrival_does_not_matter(review: list[Finding], data: st.DataObject) -> None:
    assert merge_findings(data.draw(st.permutations(review))) == merge_findings(review)


@given(review=reviews())
def test_each_look_is_in_exactly_one_finding_and_is_counted(review: list[Finding]) -> None:
    merged = merge_findings(review)
    looks = [look for item in merged for look in item.seen_by]
    assert sorted(looks) == sorted(finding.seen_by[0] for finding in review)
    assert all(item.agreement == len(item.seen_by) for item in merged)


@given(review=reviews())
def test_all_that_is_joined_is_pairwise_the_same(review: list[Finding]) -> None:
    by_look = {finding.seen_by[0]: finding for finding in review}
    for item in merge_findings(review):
        members = [by_look[look] for look in item.seen_by]
        for one, other in combinations(members, 2):
            assert one.file == other.file
            told = (one.title, one.body, one.evidence, one.line_start, one.line_end)
            alike = likeness(Profile(one), Profile(other)) >= 0.5
            assert alike or told == (other.title, other.body, other.evidence, other.line_start, other.line_end)


@given(review=reviews(), look=st.just("the only one"))
def test_a_look_keeps_its_findings_apart(review: list[Finding], look: str) -> None:
    same_look = [replace(finding, seen_by=(look,)) for finding in review]
    merged = merge_findings(same_look)
    assert all(item.agreement == 1 for item in merged)
    profiles = [Profile(finding) for finding in same_look]
    if not any(are_nearly_identical(one, other) for one, other in combinations(profiles, 2)):
        assert len(merged) == len(same_look)


_ANYTHING = st.builds(
    Finding,
    file=st.sampled_from(["a", "\udcff"]),
    line_start=st.integers(-2, 4),
    line_end=st.integers(-2, 10**12),
    severity=st.sampled_from(Severity),
    category=st.text(max_size=20),
    title=st.text(max_size=40),
    body=st.text(max_size=40),
    evidence=st.text(max_size=40),
    reviewer=st.text(max_size=3),
    rule=st.none() | st.text(max_size=3),
    suggestion=st.none() | st.text(max_size=3),
    confidence=st.none() | st.floats(),
    anchored=st.booleans(),
    agreement=st.integers(1, 3),
    seen_by=st.lists(st.sampled_from("xyz"), max_size=2).map(tuple),
)


@given(findings=st.lists(_ANYTHING, max_size=8))
def test_nothing_makes_it_fail(findings: list[Finding]) -> None:
    merged = merge_findings(findings)
    assert bool(merged) == bool(findings)
    assert {finding.file for finding in merged} == {finding.file for finding in findings}
