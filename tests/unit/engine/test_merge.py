"""Duplicates become one, and different defects on one line stay apart."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace

from codeloupe.engine import merge
from codeloupe.engine.merge import merge_findings
from codeloupe.engine.similarity import Profile, likeness
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.severity import Severity
from tests.unit.engine.merge_material import Pair, labelled_pairs
from tests.unit.engine.samples import each_row, finding

SQL = 'query = f"SELECT * FROM users WHERE id = {user_id}"'


def injection(look: str, **differences: object) -> Finding:
    made = replace(
        finding(evidence=SQL, line=12, category="security", title="SQL injection through user_id"), seen_by=(look,)
    )
    return replace(made, **differences)


class TestTheLabelledPairs:
    def test_there_are_enough_of_both_kinds(self) -> None:
        pairs = labelled_pairs()
        assert sum(pair.same for pair in pairs) >= 110
        assert sum(not pair.same for pair in pairs) >= 130

    def test_different_defects_stay_apart(self) -> None:
        def check(pair: Pair) -> None:
            assert len(merge_findings([pair.one, pair.other])) == 2

        each_row([pair for pair in labelled_pairs() if not pair.same], check)

    def test_most_duplicates_become_one(self) -> None:
        same = [pair for pair in labelled_pairs() if pair.same]
        missed = [str(pair) for pair in same if len(merge_findings([pair.one, pair.other])) == 2]
        assert len(missed) <= 0.15 * len(same), "\n".join(missed)

    def test_likeness_has_no_direction(self) -> None:
        for pair in labelled_pairs():
            one, other = Profile(pair.one), Profile(pair.other)
            assert likeness(one, other) == likeness(other, one)

    def test_words_alone_would_not_do(self) -> None:
        """At every limit that joins as many duplicates, likeness of words joins many different defects as well."""
        shares = [(shared_words(pair), pair.same) for pair in labelled_pairs()]
        found = [share for share, same in shares if same]
        limit = sorted(found)[len(found) // 8]
        assert sum(share >= limit and not same for share, same in shares) > 20


def shared_words(pair: Pair) -> float:
    one, other = ({*f"{seen.title} {seen.body}".lower().split()} for seen in (pair.one, pair.other))
    return len(one & other) / min(len(one), len(other))


class TestOneDefect:
    def test_seen_by_several_has_all_their_names_and_their_number(self) -> None:
        looks = ["claude_cli/security#1", "codex/all#1", "claude_cli/security#2"]
        (merged,) = merge_findings(injection(look) for look in looks)
        assert merged.seen_by == tuple(sorted(looks))
        assert merged.agreement == 3

    def test_has_the_worst_severity_that_anybody_says(self) -> None:
        low, high, critical = (
            injection(look, severity=severity)
            for look, severity in (("a", Severity.LOW), ("b", Severity.HIGH), ("c", Severity.CRITICAL))
        )
        assert merge_findings([low, high])[0].severity is Severity.HIGH
        assert merge_findings([low, replace(low, seen_by=("d",)), critical])[0].severity is Severity.CRITICAL
        assert merge_findings([low, high, critical])[0].severity is Severity.CRITICAL

    def test_has_the_fullest_text_and_the_narrowest_place(self) -> None:
        wide = injection(
            "a", line_start=11, line_end=13, evidence=f"def f(user_id):\n    {SQL}\n    run(query)", body="b"
        )
        narrow = injection("b", body="A much longer explanation of what happens.", suggestion=None)
        (merged,) = merge_findings([wide, replace(narrow, title="User input is concatenated into the SQL query")])
        assert (merged.line_start, merged.line_end, merged.evidence) == (12, 12, SQL)
        assert merged.title == "User input is concatenated into the SQL query"
        assert merged.body.startswith("A much longer")

    def test_keeps_rule_suggestion_and_what_verification_showed(self) -> None:
        ruled = replace(injection("a"), rule="S608", reviewer="ruff", seen_by=())
        told = injection("b", suggestion="Use parameters.", body="long " * 20, verification="followed to the database")
        (merged,) = merge_findings([ruled, told])
        assert (merged.rule, merged.suggestion, merged.verification) == (
            "S608",
            "Use parameters.",
            "followed to the database",
        )
        assert merged.seen_by == ("b", "ruff")

    def test_counts_analysers_that_agree_without_a_name(self) -> None:
        offline = replace(injection("x"), reviewer="ruff", seen_by=(), agreement=2, rule="S608")
        (alone,) = merge_findings([offline])
        assert (alone.agreement, alone.seen_by) == (2, ("ruff",))
        (merged,) = merge_findings([offline, injection("codex")])
        assert (merged.agreement, merged.seen_by) == (3, ("codex", "ruff"))
        assert merge_findings([merged]) == (merged,)

    def test_is_open_and_anchored_as_soon_as_one_is(self) -> None:
        refuted = injection("a", status=FindingStatus.REFUTED)
        assert merge_findings([refuted, injection("b")])[0].is_open
        loose = injection("c", anchored=False)
        (merged,) = merge_findings([loose, injection("d")])
        assert merged.can_block

    def test_of_two_agents_and_the_offline_lane_is_one(self) -> None:
        offline = injection(
            "x",
            title="Possible SQL injection vector through string-based query construction",
            rule="S608",
            reviewer="ruff",
            seen_by=(),
        )
        claude = injection("claude", title="Unsanitised user_id is interpolated into the SQL statement")
        codex = injection("codex", title="SQL injection", category="Injection")
        (merged,) = merge_findings([offline, claude, codex])
        assert merged.agreement == 3


class TestStayApart:
    def test_findings_in_other_files_commits_or_lines(self) -> None:
        findings = [
            injection("a"),
            injection("b", file="b.py"),
            injection("c", commit_sha="c" * 40),
            injection("d", line_start=40, line_end=40),
        ]
        assert len(merge_findings(findings)) == 4

    def test_findings_whose_quotes_do_not_meet_although_one_claims_a_long_range(self) -> None:
        code = "first = fetch(one)"
        wide = injection("a", evidence=code, line_start=10, line_end=30, title="fetch without a timeout")
        inner = injection(
            "b", evidence="second = fetch(two)", line_start=20, line_end=20, title="fetch without a timeout"
        )
        assert len(merge_findings([wide, inner])) == 2
        assert len(merge_findings([wide, replace(wide, line_end=10, seen_by=("b",))])) == 1

    def test_findings_of_one_look_unless_they_are_nearly_identical(self) -> None:
        told_twice = injection("a", title="SQL injection via `user_id`!")
        assert len(merge_findings([injection("a"), told_twice])) == 1
        assert merge_findings([injection("a"), told_twice])[0].agreement == 1
        reworded = injection("a", title="Unsanitised input is concatenated into the SQL query")
        assert len(merge_findings([injection("a"), reworded])) == 2
        assert len(merge_findings([injection("a"), replace(reworded, seen_by=("b",))])) == 1

    def test_two_that_a_third_is_like(self) -> None:
        """`user` and `order` differ; a finding that names neither is like both, and joins only one of them."""
        code = "merge(user.profile, order.items)"
        user = injection("a", evidence=code, title="`user` may be None", category="correctness")
        order = injection("b", evidence=code, title="`order` may be None", category="correctness")
        either = injection("c", evidence=code, title="Missing None check", category="correctness")
        for order_of_arrival in permutations((user, order, either)):
            merged = merge_findings(order_of_arrival)
            assert len(merged) == 2
            assert sorted(item.agreement for item in merged) == [1, 2]

    def test_findings_without_an_anchor_unless_they_say_the_same_of_the_same_quote(self) -> None:
        loose = injection("a", anchored=False)
        assert len(merge_findings([loose, replace(loose, seen_by=("b",))])) == 1
        other_words = replace(loose, seen_by=("b",), title="Unsanitised input is concatenated into the SQL query")
        assert len(merge_findings([loose, other_words])) == 2
        assert len(merge_findings([loose, replace(loose, seen_by=("b",), evidence="")])) == 2

    def test_findings_with_different_rules_unless_they_are_of_one_kind(self) -> None:
        one = injection("a", rule="X1", title="Something is odd here")
        assert len(merge_findings([one, replace(one, seen_by=("b",), rule="X2")])) == 2
        assert len(merge_findings([one, replace(one, seen_by=("b",))])) == 1
        assert len(merge_findings([injection("a", rule="S608"), injection("b", rule="py-sql-built-from-text")])) == 1


def test_nothing_is_merged_from_nothing() -> None:
    assert merge_findings([]) == ()


def test_the_order_is_by_file_line_and_severity() -> None:
    findings = [
        finding(file="b.py", title="one"),
        finding(Severity.LOW, line=2, title="two words", evidence="abc()"),
        finding(Severity.CRITICAL, line=2, title="third thing", evidence="xyz()"),
    ]
    merged = merge_findings(findings)
    assert [(item.file, item.line_start, item.severity) for item in merged] == [
        ("a.py", 2, Severity.CRITICAL),
        ("a.py", 2, Severity.LOW),
        ("b.py", 1, Severity.HIGH),
    ]


@pytest.mark.no_cover
def test_a_finding_is_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(lines: int) -> None:
        compared = 0

        def counted(one: Profile, other: Profile) -> float:
            nonlocal compared
            compared += 1
            return likeness(one, other)

        monkeypatch.setattr(merge, "likeness", counted)
        pairs = labelled_pairs()
        findings = [
            replace(
                pairs[number % len(pairs)].one,
                line_start=number * 37 % lines + 1,
                line_end=number * 37 % lines + 1,
                title=f"{pairs[number % len(pairs)].one.title} {number}",
                seen_by=(f"look {number % 5}",),
            )
            for number in range(600)
        ]
        merged = merge_findings(findings)
        # Each with each would be 179,700.
        assert compared <= 60 * len(findings)
        assert len(merged) <= len(findings)
        assert {look for item in merged for look in item.seen_by} == {f"look {number}" for number in range(5)}

    each_row([1, 300, 100_000], check)
