"""Reviews, lists and comments whose whole reports are kept in `tests/golden/reports`, and what renders them.

`python -m tests.report_cases` renews the files; the diff shows what changed. Rules that hold for every review have
tests of their own: these files hold the wording and the layout.
"""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import codeloupe
from codeloupe.forges.comments import check_summary, summary_body
from codeloupe.forges.plan import make_plan
from codeloupe.model.agent import Usage
from codeloupe.model.baseline import BaselineEntry, EntryStanding, EntryState
from codeloupe.model.change import FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.finding import FindingStatus, Proof, Severity, Suppression, SuppressionKind
from codeloupe.model.history import Comparison, Listing, Removed, SweepOutline, TrendKey, TrendRow, Trends
from codeloupe.model.publication import AnswerKind, PublishOptions, WithoutComment
from codeloupe.model.review import (
    NOT_INCLUDED,
    CostEstimate,
    Coverage,
    FailedUnit,
    Policy,
    Preview,
    PreviewFile,
    Review,
    ReviewerInfo,
    ReviewError,
    SkippedFile,
    SkipReason,
    Verdict,
)
from codeloupe.reports import FORMATS, Layout, baseline_text, history, render, render_preview
from codeloupe.store.summaries import entry_of_review, entry_of_sweep
from tests import publish_material, publish_states, telling_reviews
from tests.unit.reports.examples import finding, review
from tests.unit.store.history_samples import commit_review, named, record, sweep_record

GOLDEN = Path(__file__).with_name("golden") / "reports"
_PIECES = tuple(FailedUnit(f"{name}.py:1-9", (f"{name}.py",), "timeout") for name in "abcde")
_RUFF = FailedUnit("ruff", ("a.py", "b.py", "c.py", "d.py", "e.py"), "timed out")
_CODE = "    if name:\n        cursor.execute(query, name)\n    else:\n        return"
REVIEWS = {
    "telling": telling_reviews.telling_review(),
    "passed": telling_reviews.passed_review(),
    "nothing": telling_reviews.empty_review(),
    "hostile": telling_reviews.hostile_review(),
    # Fixes of each kind, lines over an edge, all that is known of a finding, and findings of no file or place.
    "details": review(
        finding(line_end=44, proof=Proof.CONFIRMED, reason="it is reached", fingerprint="0123456789abcdef" * 2),
        finding(suggestion="```suggestion\n    cursor.execute(query, name)\n```", fingerprint="same" * 8),
        finding(
            replacement=_CODE, suggestion="Guard it:\nif x:\n    return y", fingerprint="same" * 8, category="style"
        ),
        finding(
            expert="sql",
            rule=None,
            seen_by=tuple(f"look {number}" for number in range(6)),
            outside_change=True,
            commit_sha="c" * 40,
            severity=Severity.MEDIUM,
            evidence="x = 1\n" * 50,
            body="word " * 2_000,
            proof=Proof.UNPROVEN,
            reason="the caller is not to be seen",
        ),
        telling_reviews.unplaced_finding(severity=Severity.LOW),
        telling_reviews.unplaced_finding(severity=Severity.LOW, file=""),
        telling_reviews.unplaced_finding(severity=Severity.LOW, file="../../etc/passwd"),
        finding(
            status=FindingStatus.REFUTED, suppression=Suppression(kind=SuppressionKind.INLINE, reason="refuted, too")
        ),
        policy=Policy(fail_on=Severity.MEDIUM),
        reviewer=ReviewerInfo("agent_sdk+codex+offline", "as requested"),
        usage=Usage(requests=9, cached=2, input_tokens=41_000, output_tokens=234, cost_usd=0.314, unknown_costs=1),
    ),
    "gaps": review(
        complete=False,
        exit_code=1,
        verdict=Verdict.NEEDS_WORK,
        hidden_findings=1,
        coverage=Coverage(
            files_total=9,
            files_reviewed=5,
            skipped=(
                *(SkippedFile(f"{name}.lock", SkipReason.LOCK_FILE) for name in "ab"),
                SkippedFile("logo.png", SkipReason.BINARY),
                SkippedFile("huge.json", SkipReason.TOO_LARGE, "3 MB, the limit is 1 MB"),
            ),
            units_total=9,
            units_failed=(*_PIECES, _RUFF, replace(_RUFF, unit="x"), replace(_RUFF, files=("f.py",))),
        ),
        errors=(
            ReviewError("analyser_failed", "ruff could not review: timed out"),
            *(ReviewError("not_verified", f"number {number}") for number in range(12)),
        ),
        reviewer=ReviewerInfo("agent_sdk", "found", "some-model"),
        usage=Usage(requests=2, unknown_costs=2, duration_seconds=83.4),
    ),
    "unnamed-gap": review(
        complete=False,
        exit_code=0,
        policy=Policy(pass_when_incomplete=True),
        reviewer=ReviewerInfo("new-thing", "as requested"),
        usage=Usage(cached=1),
    ),
    "left-out": review(
        coverage=Coverage(files_total=1, skipped=(SkippedFile("a.py", SkipReason.EXCLUDED, NOT_INCLUDED),)),
        reviewer=ReviewerInfo("offline", "ruff (lint, security and hygiene; not an AI review)"),
        usage=Usage(requests=1, input_tokens=7, output_tokens=1, cost_usd=0.0012),
    ),
    # Quotes with tabs, wide characters, endless rows, and what hides.
    "quotes": review(
        finding(evidence="    if a:\n        b()\n", line_start=9),
        finding(evidence="\tif a {\r\n\t\tb()\r", line_start=9),
        finding(evidence=" \n "),
        finding(evidence="x" * 500),
        finding(evidence="日" * 500, title="Größe — “zu groß”…", file="日本.py"),
        finding(evidence="a\x1b[0m\u202eb"),
        finding(evidence="a\n" * 7, line_start=1, line_end=7, file="very/" * 30 + "deep.js"),
    ),
    "very-many": review(
        *(finding(severity=Severity.LOW, title=f"nit {number}", file="a.py") for number in range(30)),
        *(finding(title=f"bad {number:02}", file="a.py", evidence="") for number in range(15)),
        finding(severity=Severity.CRITICAL, title="worst", file="z.py"),
    ),
}
# Formats for programs differ by their fields, which these two reviews have all; pages are long and much alike.
_WITH_ALL_FORMATS = ("telling", "gaps")
_FOR_PEOPLE = ("text", "markdown")
_LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"width": 100, "color": False, "ascii_only": False},
    "narrow": {"width": 50, "color": True, "ascii_only": True},
}


def documents() -> Iterator[tuple[str, str]]:
    for name, whole in REVIEWS.items():
        for form in FORMATS if name in _WITH_ALL_FORMATS else ["github"] if name == "very-many" else _FOR_PEOPLE:
            text = render(whole, form, Layout(diff=telling_reviews.shown_diff()))
            if form == "html":  # without what is the same on every page, and its digests
                text = re.sub(r"(?s)<(style|script)>.*?</\1>|'sha256-[^']*'", "", text).replace("><", ">\n<")
            yield f"{name}.{form}", text.replace(codeloupe.__version__, "VERSION")
    for name in ("telling", "hostile", "details", "gaps"):
        whole = REVIEWS[name]
        loud = Layout(width=70, color=True, verbose=True, saved_in="a b")
        yield f"{name}.text-loud", render(whole, "text", loud)
        yield (
            f"{name}.text-plain",
            render(whole, "text", Layout(width=30, ascii_only=True, saved_in="", untrusted=True)),
        )
    for look, how in _LOOKS.items():
        for name, text in (*_history(how), *_baseline(how)):
            if not name.endswith("json"):
                yield f"{name}.{look}", text
            elif look == "wide":
                yield name.replace("-json", ".json"), text
        yield f"preview.{look}", render_preview(_PREVIEW, "text", Layout(**how))
    yield "preview.json", render_preview(_PREVIEW, "json", Layout())
    yield from _comments()


def _history(look: dict[str, Any]) -> Iterator[tuple[str, str]]:
    found = (named("a", severity=Severity.CRITICAL), named("b", severity=Severity.LOW))
    failed = commit_review(2, review=None, verdict=None, score=None, failure="timeout " * 9)
    swept = sweep_record(9, commit_review(1, named("a")), failed)
    entries = (entry_of_review(record(1, *found)), entry_of_sweep(swept), entry_of_review(record(2, complete=False)))
    listing = Listing(entries, ("the entry x cannot be read",))
    yield "list", history.render_list(listing, **look, with_repository=True)
    yield "list-json", history.list_json(listing)
    outline = SweepOutline(swept, (entry_of_review(record(3, named("a"))), None))
    yield "outline", history.render_outline(outline, **look)
    begun = SweepOutline(replace(swept, finished=False, problems=("one is gone",)), outline.reviews)
    yield "outline-begun", history.render_outline(begun, **look)
    earlier, later = record(1), record(2, branch=None)
    many = tuple(named(f"{number}", title=f"number {number}") for number in range(210))
    compared = Comparison(
        new=found[::-1], fixed=many, unknown=(named("d"),), regressed=(named("e", file="a\udcff.py"),)
    )
    yield "comparison", history.render_comparison(compared, earlier, later, **look)
    yield "comparison-of-nothing", history.render_comparison(Comparison(), earlier, later, **look)
    yield "comparison-json", history.comparison_json(replace(compared, fixed=()), earlier, later)
    week = TrendRow(key="2026-03-02", findings=40, fixed=10, reviews=3, cost_usd=2.0, duration_seconds=125.0)
    quiet = TrendRow(key="2026-03-09", findings=0, fixed=0, reviews=0, cost_usd=0.0, duration_seconds=0.0)
    cheap = replace(week, key="2026-03-16", findings=1, fixed=1, cost_usd=0.5, unknown_costs=2)
    experts = Trends(TrendKey.EXPERT, (TrendRow(key="security", findings=3, fixed=1),), ("one is gone",))
    trends = [Trends(TrendKey.WEEK, (week, quiet, cheap)), experts]
    yield "trends", history.render_trends(trends, **look)
    yield "trends-json", history.trends_json(trends)
    removed = Removed(reviews=2, sweeps=1, findings=7, size_bytes=900)
    yield "removed-json", history.removed_json(removed, dry_run=True, freed_bytes=0)


def _baseline(look: dict[str, Any]) -> Iterator[tuple[str, str]]:
    def entry(state: EntryState, **more: Any) -> EntryStanding:
        known = {"fingerprint": "ab" * 16, "file": "a.py", "title": "Built from text", "reason": "legacy"}
        return EntryStanding(BaselineEntry(**{**known, **more}), state)

    listed = [
        entry(EntryState.USED, owner="me", expires=date(2030, 1, 2), evidence="x", line=4),
        entry(EntryState.UNUSED, fingerprint="cd" * 16, title=""),
        entry(EntryState.EXPIRED, file="", reason="a long reason " * 9),
        entry(EntryState.UNSEEN, title="é" * 60, owner="o" * 30),
    ]
    ascii_only = look["ascii_only"]
    entries = [each.entry for each in listed]
    yield "baseline", baseline_text.render_list(listed, review="review 12", **look)
    yield "baseline-unseen", baseline_text.render_list(listed[3:], review=None, **look)
    yield "baseline-empty", baseline_text.render_list([], review=None, **look)
    yield "baseline-json", baseline_text.list_json(listed, review="r")
    yield "baseline-added", baseline_text.render_added(entries * 15, entries[:1], ascii_only=ascii_only)
    yield "baseline-renewed", baseline_text.render_added([], entries[:1], ascii_only=ascii_only)
    yield "baseline-same", baseline_text.render_added([], [], ascii_only=ascii_only)
    yield "baseline-pruned", baseline_text.render_pruned(listed[1:3], dry_run=ascii_only, ascii_only=ascii_only)
    yield "baseline-kept", baseline_text.render_pruned([], dry_run=False, ascii_only=ascii_only)
    yield "baseline-pruned-json", baseline_text.pruned_json(listed[1:3], dry_run=True)


_HUNK = Hunk(3, 2, 3, 4, b"-a\n-b\n+c\n+d\n+e\n+f\n", added=4, deleted=2)
_PREVIEW = Preview(
    scope=Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "two commits of topic"),
    files=(
        PreviewFile(FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(_HUNK,))),
        PreviewFile(FileChange("old.py", "new.py", FileStatus.RENAMED, hunks=(_HUNK,))),
        PreviewFile(
            FileChange(None, "x.bin", FileStatus.ADDED, binary=True), SkippedFile("x.bin", SkipReason.TOO_LARGE, "3 MB")
        ),
        PreviewFile(
            FileChange(None, "poetry.lock", FileStatus.ADDED), SkippedFile("poetry.lock", SkipReason.LOCK_FILE)
        ),
    ),
    out_of_reach=(SkippedFile("closed\x1b.py", SkipReason.UNREADABLE, "permission denied"),),
    reviewers=(ReviewerInfo("codex", "installed and logged in", "gpt-5"),),
    units=2,
    calls=2,
    prompt_tokens_estimate=1234,
    cost=CostEstimate(0.0421, "by the cost per token of 12 stored calls to codex with gpt-5"),
)


def _comments() -> Iterator[tuple[str, str]]:
    new, states = publish_material.finding, publish_states
    found = (
        new(
            4,
            suggestion="Check it.",
            replacement="value_4 = compute(4, checked=True)",
            proof=Proof.CONFIRMED,
            reason="yes",
        ),
        new(9, line_end=12, severity=Severity.CRITICAL, expert="sql"),
        new(400, title="@everyone | <b>", severity=Severity.LOW),
        new(20, status=FindingStatus.REFUTED, proof=Proof.REFUTED, reason="It cannot be zero."),
        *(new(line) for line in (30, 31, 32)),
    )
    threads = (
        states.thread_about(found[3]),
        states.thread_about(found[4], states.told(AnswerKind.GONE, found[4]), is_resolved=True),
        states.thread_about(found[5], states.said("dismiss: ask @boss about <b>it</b>")),
        states.thread_about(new(38)),
    )
    whole: Review = publish_material.review(*found, errors=(ReviewError("odd", "something else went wrong"),))
    pull = states.pull_request(*threads, changed_files=3, unasked=2)
    plan = make_plan(whole, pull, marker=states.MARKER, options=PublishOptions(max_comments=3))
    yield "publish.summary", summary_body(plan, [WithoutComment(found[6], "it was refused")], marker=states.MARKER)
    yield "publish.check", check_summary(plan.review)
    bodies = [*(one.body for one in plan.comments), *(one.body or "no word" for one in plan.answers)]
    yield "publish.comments", "\n=====\n".join(bodies)


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for file in GOLDEN.iterdir():
        file.unlink()
    for name, text in documents():
        (GOLDEN / name).write_bytes(text.encode())


if __name__ == "__main__":
    main()
