"""Whatever a review holds, every format is a valid document of its kind, and the same one each time."""

import json
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import cycle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange, FileStatus, Hunk, Scope, ScopeKind
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
from codeloupe.model.review import (
    Coverage,
    FailedUnit,
    Policy,
    Review,
    ReviewerInfo,
    ReviewError,
    SkippedFile,
    SkipReason,
    Unanswered,
    UnitRecord,
    Verdict,
)
from codeloupe.reports import Layout, ShownDiff, render
from codeloupe.reports.sweep import render_sweep_json, render_sweep_markdown, render_sweep_text, render_sweep_xml
from codeloupe.reports.text import svg
from codeloupe.system import untrusted
from tests import report_documents as documents
from tests.findings_material import changed_finding
from tests.kept import broken_by_kept_inputs
from tests.markdown_page import code, kinds, shown_text, tokens
from tests.telling_reviews import HOSTILE, hostile_review
from tests.unit.commits.sweep_samples import commit, reviewed, sweep

TEXT = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    ["", " ", "\n", HOSTILE, "`", "```\nx\n```", "a/b.py", "../x", "/", "<b>", "]]>", "::", "-->"]
)
PIECES = (
    *("<img src=x onerror=1>", "</script>", "<!--", "-->", "]]>", "&lt;", '" onload="x'),
    *("![a](http://x.test)", "[a][b]", "[a]: http://x.test", "<http://x>", "@team", "#12", "GH-1"),
    *("\n# x", "\n---\n", "```", "~~~", "``", "`", "\n    x", "\n\t", "|", "::error::", "\n::", "##["),
    *("##vso[", "%0A", "\n/close", "\x1b[31m", "\x1b]8;;x\x07", "\x9b", "\n- ", "\n> ", "**", "__"),
    *("$x$", "\\", "\\`", "[^1]: x", "<details>", "://", "www.x.test", "\u2028", "\u202e", " "),
)
LINE = st.integers(-1, 60) | st.sampled_from([2**31, 2**63])
SUPPRESSIONS = st.builds(
    Suppression, kind=st.sampled_from(SuppressionKind), reason=TEXT, owner=TEXT, expires=st.none() | st.just(date.max)
)
CLAIMS = st.builds(
    Claim,
    **dict.fromkeys(("file", "category", "title", "body", "evidence", "reporter", "reason", "silenced_by"), TEXT),
    **dict.fromkeys(("rule", "suggestion", "replacement", "expert"), st.none() | TEXT),
    **dict.fromkeys(("line_start", "line_end"), LINE),
    **dict.fromkeys(("anchored", "outside_change"), st.booleans()),
    source=st.sampled_from(Source),
    severity=st.sampled_from(Severity),
    proof=st.none() | st.sampled_from(Proof),
    end=st.none() | st.sampled_from(ClaimEnd),
    seen_by=st.lists(TEXT, max_size=2).map(tuple),
)
FINDINGS = st.builds(
    Finding,
    claims=st.lists(CLAIMS, min_size=1, max_size=3).map(tuple),
    severity=st.sampled_from(Severity),
    status=st.sampled_from(FindingStatus),
    counts=st.booleans(),
    is_pending=st.booleans(),
    fingerprint=TEXT,
    suppression=st.none() | SUPPRESSIONS,
    commit_sha=st.none() | TEXT,
)
FAILED = st.builds(FailedUnit, TEXT, st.lists(TEXT, max_size=2).map(tuple), TEXT)
UNITS = st.builds(
    UnitRecord,
    unit=TEXT,
    files=st.lists(TEXT, max_size=2).map(tuple),
    answered_by=TEXT,
    model=st.none() | TEXT,
    unanswered=st.lists(st.builds(Unanswered, TEXT, TEXT), max_size=2).map(tuple),
)
COVERAGES = st.builds(
    Coverage,
    files_total=st.integers(0, 9),
    files_reviewed=st.integers(0, 9),
    skipped=st.lists(st.builds(SkippedFile, TEXT, st.sampled_from(SkipReason), TEXT), max_size=2).map(tuple),
    units_total=st.integers(0, 9),
    units_failed=st.lists(FAILED, max_size=2).map(tuple),
    units=st.lists(UNITS, max_size=2).map(tuple),
)
REVIEWS = st.builds(
    Review,
    review_id=TEXT,
    scope=st.builds(Scope, st.sampled_from(ScopeKind), st.none() | TEXT, st.none() | TEXT, TEXT),
    reviewer=st.builds(ReviewerInfo, TEXT, TEXT, st.none() | TEXT),
    verdict=st.sampled_from(Verdict),
    complete=st.booleans(),
    exit_code=st.sampled_from([0, 1, 3]),
    summary=TEXT,
    policy=st.builds(Policy, st.sampled_from(Severity), st.sampled_from(Severity), st.booleans()),
    findings=st.lists(FINDINGS, max_size=3).map(tuple),
    hidden_findings=st.integers(0, 3),
    coverage=COVERAGES,
    usage=st.builds(Usage, cost_usd=st.floats(0, 9), duration_seconds=st.floats(0, 1e6)),
    errors=st.lists(st.builds(ReviewError, TEXT, TEXT), max_size=2).map(tuple),
)


@given(whole=REVIEWS)
def test_any_review_is_a_valid_document_in_every_format(whole: Review) -> None:
    for name, check in documents.CHECKS.items():
        text = render(whole, name, Layout())
        text.encode("utf-8")
        check(text)
        assert render(whole, name, Layout()) == text


def sweep_documents(whole: Review, layout: Layout) -> list[tuple[Callable[[str], object], Callable[[], str]]]:
    """A sweep that holds a review and its texts, in each format with its check."""
    words = (whole.summary, whole.scope.description, whole.reviewer.why, whole.review_id)
    author, email, subject, body = (*words[:3], whole.findings[0].title) if whole.findings else words
    strange = commit(1, author=author, email=email, subject=subject, body=body, files=(author, body))
    made = reviewed(1, *whole.findings, commit=strange, review=whole, failure=whole.summary, experts=(subject,))
    swept = sweep(made, description=author, reviewer=whole.reviewer)
    return [
        (documents.check_xml, partial(render_sweep_xml, swept)),
        (documents.check_json, partial(render_sweep_json, swept)),
        (documents.check_markdown, partial(render_sweep_markdown, swept)),
        (documents.check_text, partial(render_sweep_text, swept, layout)),
    ]


@given(whole=REVIEWS)
def test_any_sweep_is_a_valid_document_in_every_format(whole: Review) -> None:
    for check, make in sweep_documents(whole, Layout()):
        make().encode("utf-8")
        check(make())
    page = render_sweep_markdown(sweep(reviewed(1, *whole.findings, review=whole)))
    headings = [token.tag for token in tokens(page) if token.type == "heading_open"]
    assert headings == ["h1", *(["h2", *["h3"] * len(whole.findings)] if whole.findings else [])]
    assert [token.type for token in tokens(page)].count("td_open") == 10


@given(whole=REVIEWS, width=st.integers(40, 150))
def test_every_title_is_in_the_text_however_it_is_wrapped_and_what_is_incomplete_is_no_pass(
    whole: Review, width: int
) -> None:
    text = render(whole, "text", Layout(width=width))
    for each in whole.findings:
        assert "".join(untrusted.terminal(each.title).split()) in "".join(text.split())
    assert whole.complete or "\nPASS ✔" not in text
    documents.check_text(render(whole, "text", Layout(width=width // 8, color=True, verbose=True)))
    assert render(whole, "text", Layout(width=60, ascii_only=True, verbose=True)).isascii()


def kept_review(data: bytes) -> Review:
    """A review that holds the texts of an input, between `\\x1e`, where a stranger's text may stand."""
    head, *texts = data.decode("utf-8", "surrogateescape").split("\x1e")
    text = cycle(texts or [head])
    numbers = [ord(character) for character in head] or [0]
    strange = hostile_review()
    found = []
    for place, each in enumerate(strange.findings):
        number = numbers[place % len(numbers)]
        suppression = each.suppression and replace(each.suppression, reason=next(text), owner=next(text))
        names = ("title", "body", "evidence", "suggestion", "file", "reason", "category", "rule", "expert")
        changes: dict[str, Any] = {name: next(text) for name in (*names, "reporter", "fingerprint")}
        lines = {"line_start": number % 50, "line_end": number % 60, "severity": [*Severity][number % 4]}
        found.append(changed_finding(each, suppression=suppression, commit_sha=None, **changes, **lines))
    return replace(
        strange,
        findings=tuple(found),
        scope=replace(strange.scope, description=next(text)),
        reviewer=replace(strange.reviewer, why=next(text), model=next(text)),
        coverage=Coverage(
            files_total=2,
            units_failed=(FailedUnit(next(text), (next(text),), next(text)),),
            skipped=(SkippedFile(next(text), SkipReason.UNREADABLE, next(text)),),
        ),
        errors=(ReviewError(next(text), next(text)),),
        review_id=next(text),
        summary=next(text),
    )


def check_kept_review(data: bytes) -> None:
    whole = kept_review(data)
    rows = [b" " + row for row in data.split(b"\n")] + [b"+" + data[:40].replace(b"\n", b"")]
    hunk = Hunk(1, len(rows) - 1, 1, len(rows), b"".join(row + b"\n" for row in rows), added=1)
    paths = {each.file for each in whole.findings}
    diff = ShownDiff({path: FileChange(path, path, FileStatus.MODIFIED, hunks=(hunk,)) for path in paths})
    layout = Layout(width=20 + len(data) % 100, color=len(data) % 2 == 1, ascii_only=len(data) % 3 == 1, diff=diff)
    made: list[tuple[Callable[[str], object], Callable[[], str]]] = [
        *((check, partial(render, whole, name, layout)) for name, check in documents.CHECKS.items()),
        (documents.check_xml, partial(svg, whole, title=whole.summary)),
        *sweep_documents(whole, layout),
    ]
    # The first byte of an input chose the format it was found with; some others come along.
    for check, make in made[(data[0] if data else 0) % 4 :: 4]:
        text = make()
        text.encode("utf-8")
        check(text)


def test_every_kept_text_is_a_text_and_nothing_else_in_every_format() -> None:
    assert broken_by_kept_inputs("report", check_kept_review) == {}


def check_sanitisers(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    line = untrusted.terminal(text)
    assert "\n" not in line
    assert untrusted.terminal(line) == line
    documents.check_plain(line)
    documents.check_plain(untrusted.terminal(text, keep_newlines=True))
    documents.check_no_commands(untrusted.log_line(text))
    document = untrusted.json_document(json.dumps({"x": text}, ensure_ascii=False))
    assert json.loads(document) == json.loads(json.dumps({"x": text}))
    documents.check_plain(document)
    longest = 20_000
    documents.check_github(untrusted.command("error", {"file": text, "title": text}, text, longest=longest) + "\n")
    for plain in (untrusted.plain_line, untrusted.plain_text, untrusted.plain_code):
        documents.check_plain(plain(text, longest=longest))
    prose = untrusted.markdown_prose(text, longest=longest)
    assert not kinds(prose) & {"heading_open", "table_open", "s_open"}
    documents.check_markdown(f"before\n\n{prose}\n\nafter\n")
    one = untrusted.markdown_line(text, longest=longest)
    assert "\n" not in one
    documents.check_markdown(f"- **x** {one}\n")
    table = f"| a | b |\n|---|---|\n| {untrusted.markdown_cell(text, longest=longest)} | END |\n"
    documents.check_markdown(table)
    assert "END" in shown_text(table)
    block = f"{untrusted.markdown_code(text)}\n\nEND\n"
    documents.check_markdown(block)
    assert shown_text(block) == "END"
    span = untrusted.code_span(text)
    assert not span or len(code(f"x {span} y")) == 1


def test_every_kept_text_is_harmless_after_each_sanitiser() -> None:
    assert broken_by_kept_inputs("sanitiser", check_sanitisers) == {}
    check_sanitisers(HOSTILE.encode("utf-8", "surrogatepass"))


@given(TEXT | st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_any_text_is_harmless_after_each_sanitiser(text: str) -> None:
    check_sanitisers(text.encode("utf-8", "surrogatepass"))
