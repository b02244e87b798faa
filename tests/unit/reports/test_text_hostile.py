from __future__ import annotations

import re
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import (
    Coverage,
    FailedUnit,
    Review,
    ReviewerInfo,
    ReviewError,
    SkippedFile,
    SkipReason,
    Verdict,
)
from codeloupe.reports.text import render_text, svg
from codeloupe.system.untrusted import terminal
from tests.unit.reports.examples import ESCAPE, finding, review

HOSTILE = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\x1b\x07\x9b[]\n\r\t\x00\u202e\u2028\u200d\udcff日👩:#` "),
    max_size=80,
) | st.lists(st.sampled_from(["\x1b[2J", "\x1b]8;;x\x07", "::error::", "##[", "[/bold]", ":smile:", "\n"])).map("".join)
NUMBERS = st.integers(min_value=-5, max_value=10**9)


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    return finding(
        file=draw(HOSTILE),
        line_start=draw(NUMBERS),
        line_end=draw(NUMBERS),
        severity=draw(st.sampled_from(Severity)),
        category=draw(HOSTILE),
        title=draw(HOSTILE),
        body=draw(HOSTILE),
        evidence=draw(HOSTILE),
        suggestion=draw(st.none() | HOSTILE),
        rule=draw(st.none() | HOSTILE),
        reviewer=draw(HOSTILE),
        confidence=draw(st.none() | st.floats()),
        commit_sha=draw(st.none() | HOSTILE),
        anchored=draw(st.booleans()),
        status=draw(st.sampled_from(FindingStatus)),
        agreement=draw(NUMBERS),
        seen_by=tuple(draw(st.lists(HOSTILE, max_size=6))),
        verification=draw(HOSTILE),
        expert=draw(st.none() | HOSTILE),
    )


@st.composite
def reviews(draw: st.DrawFn) -> Review:
    coverage = Coverage(
        files_total=draw(NUMBERS),
        files_reviewed=draw(NUMBERS),
        skipped=(SkippedFile(draw(HOSTILE), draw(st.sampled_from(SkipReason)), draw(HOSTILE)),),
        units_total=3,
        units_failed=tuple(
            FailedUnit(draw(HOSTILE) or file, (file, draw(HOSTILE)), draw(HOSTILE))
            for file in draw(st.lists(HOSTILE, max_size=3))
        ),
    )
    return review(
        *draw(st.lists(findings(), max_size=3)),
        scope=Scope(ScopeKind.BRANCH, None, None, draw(HOSTILE)),
        reviewer=ReviewerInfo(draw(HOSTILE), draw(HOSTILE), draw(st.none() | HOSTILE)),
        verdict=draw(st.sampled_from(Verdict)),
        complete=draw(st.booleans()),
        exit_code=draw(st.sampled_from([0, 1, 3])),
        coverage=coverage,
        errors=(ReviewError(draw(HOSTILE), draw(HOSTILE)),),
    )


def without_spaces(text: str) -> str:
    return re.sub(r"\s", "", text)


def acts(character: str) -> bool:
    return character != "\n" and unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}


@settings(max_examples=25)
@given(one=reviews(), width=st.integers(min_value=1, max_value=150), verbose=st.booleans())
def test_no_report_holds_a_control_character_or_an_escape_sequence_that_is_no_colour_of_ours(
    one: Review, width: int, *, verbose: bool
) -> None:
    text = render_text(one, width=width, color=False, verbose=verbose)
    assert ESCAPE not in text
    assert not [character for character in text if acts(character)]
    text.encode("utf-8")
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", render_text(one, width=80, color=True))
    assert not [character for character in coloured if acts(character)]
    svg(one, title="hostile").encode("utf-8")


@settings(max_examples=25)
@given(reviews(), st.integers(min_value=40, max_value=150))
def test_every_title_appears_however_it_is_wrapped_and_what_is_incomplete_is_no_pass(one: Review, width: int) -> None:
    text = render_text(one, width=width, color=False)
    shown = without_spaces(text)
    for each in one.findings:
        assert without_spaces(terminal(each.title)) in shown
    if not one.complete:
        assert "\nPASS" not in text
    assert render_text(one, width=60, color=False, ascii_only=True, verbose=True).isascii()
