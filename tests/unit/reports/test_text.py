from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from codeloupe.model.agent import Usage
from codeloupe.model.finding import FindingStatus, Severity, Suppression, SuppressionKind
from codeloupe.model.review import (
    Coverage,
    FailedUnit,
    Policy,
    Review,
    ReviewerInfo,
    ReviewError,
    SkippedFile,
    SkipReason,
    Verdict,
)
from codeloupe.reports import Layout, render
from codeloupe.reports.text import svg
from codeloupe.reports.wording import skipped_in_words
from tests.rows import each
from tests.unit.reports.examples import ESCAPE, finding, review


def shown(whole: Review, *, width: int = 100, color: bool = False, **look: Any) -> str:
    return render(whole, "text", Layout(width=width, color=color, **look))


def one(**changes: Any) -> str:
    """A report with one finding."""
    return shown(review(finding(**changes)))


class TestTheReport:
    def test_a_review_with_one_finding_reads_from_reviewer_to_verdict(self) -> None:
        assert shown(review(finding()), width=80) == (
            "Offline review: ruff, ast-grep, detect-secrets (lint, security and hygiene; not\n"
            "an AI review)\n"
            "topic against main\n"
            "\n"
            "app/db.py ─────────────────────────────────────────────────────────────── 1 high\n"
            "  HIGH P1  Statement is built from a variable\n"
            "  app/db.py:42  security · S608 · ruff\n"
            "  ▸ 42 │ cursor.execute(query + name)\n"
            "  Why  Whoever controls `name` can read any row.\n"
            "  Fix  Pass the value as a parameter.\n"
            "\n"
            "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━\n"
            "FAIL  1 finding at or above fail_on=high\n"
            "Findings  1 high\n"
            "Coverage  2 of 2 files reviewed\n"
            "Time      1.2 s\n"
        )

    def test_no_changes_are_told_in_short(self) -> None:
        assert shown(review(coverage=Coverage())).split("\n")[3:] == ["No changes to review (1.2 s)", ""]

    @each(
        ("reviewer", "sentence"),
        [
            (ReviewerInfo("offline", ""), "Offline review (lint, security and hygiene; not an AI review)"),
            (
                ReviewerInfo("offline", "ruff (lint, security and hygiene; not an AI review)"),
                "Offline review: ruff (lint, security and hygiene; not an AI review)",
            ),
            (
                ReviewerInfo("agent_sdk", "found", "some-model"),
                "Claude Agent SDK review with some-model: found",
            ),
            (ReviewerInfo("new-thing", "as requested"), "Review by new-thing: as requested"),
            (
                ReviewerInfo("agent_sdk+codex+offline", "as requested"),
                "Review by agent_sdk, codex and offline: as requested",
            ),
        ],
    )
    def test_the_reviewer_is_named_and_the_offline_one_never_passes_for_an_ai(
        self, reviewer: ReviewerInfo, sentence: str
    ) -> None:
        assert shown(review(reviewer=reviewer)).split("\n")[0] == sentence

    @pytest.mark.defect("U2")
    def test_files_come_by_worst_severity_then_path_and_findings_by_severity(self) -> None:
        places = [("a", "LOW", 1), ("z", "LOW", 90), ("z", "CRITICAL", 100), ("m", "MEDIUM", 5), ("b", "LOW", 5)]
        text = shown(
            review(
                *(
                    finding(file=f"{name}.py", severity=Severity[step], line_start=line, title=f"{name}-{line}")
                    for name, step, line in places
                )
            )
        )
        order = ["z-100", "z-90", "m-5", "a-1", "b-5"]
        assert sorted(order, key=text.index) == order
        assert "1 critical, 1 low" in text

    def test_what_has_no_place_or_does_not_count_is_listed_apart_with_the_reason(self) -> None:
        refuted = finding(title="Was wrong", status=FindingStatus.REFUTED)
        known = Suppression(kind=SuppressionKind.BASELINE, reason="known since May")
        text = shown(
            review(
                finding(anchored=False, title="Floating", severity=Severity.LOW),
                refuted,
                replace(refuted, verification="refuted: the caller checks it"),
                finding(title="Was waived", status=FindingStatus.DISMISSED),
                finding(title="Is known", suppression=known),
                finding(title="Counts", severity=Severity.MEDIUM, status=FindingStatus.OPEN, evidence="x"),
                verdict=Verdict.NEEDS_WORK,
                exit_code=0,
            )
        )
        order = ["Counts", "Without a place", "Floating", "Refuted ──", "Was wrong", "Set aside ──", "Is known"]
        assert sorted(order, key=text.index) == order
        notes = ("refuted", "refuted: the caller checks it", "dismissed", "suppressed by the baseline: known since May")
        for note in notes:
            assert f"app/db.py:42  {note}\n" in text
        assert text.count("cursor.execute") == text.count("▸ ? │ cursor") == 1
        assert "Findings  1 medium; 1 without a place; 2 refuted; 2 set aside" in text

    @each(
        ("usage", "spent"),
        [
            (
                Usage(requests=9, cached=2, input_tokens=41_000, output_tokens=234, cost_usd=0.314),
                "9 calls (2 more from the ledger), 41,000 tokens in, 234 out, $0.31",
            ),
            (
                Usage(requests=1, input_tokens=7, output_tokens=1, cost_usd=0.0012),
                "1 call, 7 tokens in, 1 out, $0.0012",
            ),
            (Usage(cached=1), "no new calls, 1 answer from the ledger"),
            (Usage(requests=2, unknown_costs=2), "2 calls, 0 tokens in, 0 out, cost unknown"),
            (
                Usage(requests=3, cost_usd=1.5, unknown_costs=1),
                "3 calls, 0 tokens in, 0 out, $1.50 and the unknown cost of 1 call",
            ),
        ],
    )
    def test_what_was_spent_is_told_at_the_end(self, usage: Usage, spent: str) -> None:
        text = shown(review(usage=replace(usage, duration_seconds=83.4)))
        assert text.endswith(f"Spent     {spent}\nTime      1 min 23 s\n")
        assert "Spent" not in shown(review())


class TestAFinding:
    def test_its_severity_is_a_word_and_a_number_not_a_colour_alone(self) -> None:
        for step in Severity:
            assert f"  {step.label.upper()} P{step.priority}  Statement" in one(severity=step)

    @each(
        ("changes", "words"),
        [
            ({}, "security · S608 · ruff\n"),
            # What says the same twice is told once.
            ({"expert": "security", "rule": None}, "security · ruff\n"),
            ({"status": FindingStatus.OPEN}, "security · S608 · ruff · still open from an earlier review\n"),
            ({"agreement": 1, "seen_by": ("codex",)}, "security · S608 · ruff\n"),
            ({"agreement": 2, "seen_by": ("codex", "api")}, "security · S608 · seen by codex, api\n"),
        ],
    )
    def test_where_it_comes_from_is_told_beside_its_place(self, changes: dict[str, Any], words: str) -> None:
        text = one(**changes)
        assert words in text
        assert "Findings  1 high\n" in text

    @each(
        ("verification", "line"),
        [
            ("confirmed: no caller cleans it", "  ✔    confirmed: no caller cleans it\n"),
            ("confirmed: ", "  ✔    confirmed\n"),
            ("unproven: the caller is not to be seen", "  ?    unproven: the caller is not to be seen\n"),
            ("could not verify: rate limited", "  ?    could not verify: rate limited\n"),
        ],
    )
    def test_what_the_attempt_to_refute_it_showed_is_told_below_it(self, verification: str, line: str) -> None:
        assert line in one(verification=verification)
        assert "✔" not in one()

    def test_its_fingerprint_is_shown_as_far_as_it_must_be_typed_only_when_asked_for(self) -> None:
        whole = review(finding(fingerprint="0123456789abcdef" * 2), finding(fingerprint=""))
        assert "0123456789ab" not in shown(whole)
        loud = shown(whole, verbose=True)
        assert loud.count("fingerprint ") == 1
        assert "fingerprint 0123456789ab\n" in loud

    def test_its_place_is_never_broken_so_that_a_terminal_can_open_it(self) -> None:
        path = "very/" * 30 + "deep.py"
        assert f"\n  {path}:42\n" in shown(review(finding(file=path)), width=40)
        assert "app/db.py:42 to 44" in one(line_end=44)

    def test_an_endless_body_is_cut_and_the_cut_is_said(self) -> None:
        for body in ("line\n" * 500, "word " * 5_000):
            text = one(body=body)
            assert "… cut here; the JSON report has it whole" in text
            assert len(text.split("\n")) < 100


def quote(evidence: str, *, first_line: int | None = 9, **look: Any) -> list[str]:
    """The lines of the quote of a finding."""
    bare = finding(file="a.py", title="t", body="", suggestion=None, evidence=evidence, line_start=first_line)
    lines = shown(review(bare, usage=Usage()), **{"width": 60, **look}).split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith("  a.py")) + 1
    return lines[start : lines.index("", start)]


@each(
    ("evidence", "look", "lines"),
    [
        # Lines are numbered from the first and share no indentation.
        ("    if a:\n        b()\n", {}, ["  ▸  9 │ if a:", "    10 │     b()"]),
        ("\tif a {\r\n\t\tb()\r", {}, ["  ▸  9 │ if a {", "    10 │     b()"]),
        ("", {}, []),
        (" \n ", {}, []),
        ("x" * 500, {"width": 40}, ["  ▸ 9 │ " + "x" * 31 + "…"]),
        ("日" * 500, {"width": 40}, ["  ▸ 9 │ " + "日" * 15 + "…"]),
        ("x" * 500, {"width": 40, "ascii_only": True}, ["  > 9 | " + "x" * 29 + "..."]),
        ("x" * 32, {"width": 40}, ["  ▸ 9 │ " + "x" * 32]),
        ("a\nb", {"first_line": None}, ["  ▸ ? │ a", "    ? │ b"]),
        ("a\x1b[0m\u202eb", {}, ["  ▸ 9 │ a\\x1b[0m\\u202eb"]),
    ],
)
def test_a_quote_is_shown_as_code(evidence: str, look: dict[str, Any], lines: list[str]) -> None:
    assert quote(evidence, **look) == lines


def test_of_an_endless_quote_the_beginning_is_shown_and_the_rest_is_counted() -> None:
    assert quote("a\n" * 9, first_line=1)[-1] == "      … 3 more lines"
    assert quote("a\n" * 7, first_line=1)[-1] == "      … 1 more line"
    assert len(quote("a\n" * 9, first_line=1, verbose=True)) == 9
    (line,) = quote("e" + "\u0301" * 100_000, width=40)
    assert len(line) < 400


SKIPPED = (
    SkippedFile("b/poetry.lock", SkipReason.LOCK_FILE),
    SkippedFile("a/package-lock.json", SkipReason.LOCK_FILE),
    SkippedFile("logo.png", SkipReason.BINARY),
)
HUGE = SkippedFile("huge.json", SkipReason.TOO_LARGE, "3 MB, the limit is 1 MB")
RUFF = FailedUnit("ruff", ("a.py", "b.py", "c.py", "d.py", "e.py"), "timed out")
PIECES = tuple(FailedUnit(f"{name}.py:1-9", (f"{name}.py",), "timeout") for name in "abcde")
OTHER_PIECE = FailedUnit("f.py and 2 more files", ("f.py", "g.py", "h.py"), "invalid answer: empty output")


def section(
    title: str, coverage: Coverage, *, verbose: bool = False, errors: tuple[ReviewError, ...] = ()
) -> list[str]:
    """The lines below a title."""
    whole = review(coverage=coverage, complete=coverage.complete, exit_code=0, errors=errors)
    lines = shown(whole, width=90, verbose=verbose).split("\n")
    start = lines.index(title) + 1 if title in lines else len(lines)
    return lines[start : lines.index("", start)] if start < len(lines) else []


@each(
    ("coverage", "verbose", "lines"),
    [
        (Coverage(2, 2), False, []),
        (Coverage(3, 2, SKIPPED[-1:]), False, ["  · 1 unknown binary file skipped (-v names it)"]),
        (Coverage(4, 2, SKIPPED[:2]), False, ["  · 2 lock files skipped (-v names them)"]),
        (Coverage(5, 2, SKIPPED), False, ["  · 3 skipped: 2 lock files, 1 unknown binary file (-v names them)"]),
        (
            Coverage(5, 2, SKIPPED),
            True,
            [
                "  · 3 skipped: 2 lock files, 1 unknown binary file",
                *("      logo.png  binary", "      a/package-lock.json  lock file", "      b/poetry.lock  lock file"),
            ],
        ),
        # Gaps come before what the policy skips.
        (
            Coverage(9, 5, (*SKIPPED[:2], HUGE), 3, (RUFF,)),
            False,
            [
                "  ✖ ruff  timed out  a.py, b.py, c.py and 2 more",
                "  ✖ huge.json  too large: 3 MB, the limit is 1 MB",
                "  · 2 lock files skipped (-v names them)",
            ],
        ),
        (Coverage(5, 5, (), 1, (RUFF,)), True, ["  ✖ ruff  timed out  a.py, b.py, c.py, d.py, e.py"]),
        # Files that failed alike are one entry, and so are pieces of the change that failed for one reason.
        (
            Coverage(
                5, 5, (), 2, (*(replace(RUFF, files=(f"{name}.py",)) for name in "abcde"), replace(RUFF, unit="x"))
            ),
            False,
            [
                "  ✖ ruff  timed out  a.py, b.py, c.py and 2 more",
                "  ✖ x  timed out  a.py, b.py, c.py and 2 more",
            ],
        ),
        (
            Coverage(8, 2, (), 9, (*PIECES, OTHER_PIECE)),
            False,
            [
                "  ✖ 5 units  timeout  a.py:1-9, b.py:1-9, c.py:1-9 and 2 more",
                "  ✖ f.py and 2 more files  invalid answer: empty output",
            ],
        ),
        (
            Coverage(8, 2, (), 9, PIECES),
            True,
            ["  ✖ 5 units  timeout  a.py:1-9, b.py:1-9, c.py:1-9, d.py:1-9, e.py:1-9"],
        ),
    ],
)
def test_what_was_not_reviewed_is_listed(coverage: Coverage, verbose: bool, lines: list[str]) -> None:
    assert section("Not reviewed", coverage, verbose=verbose) == lines


def test_errors_are_told_once_and_many_are_cut_unless_asked_for() -> None:
    errors = (
        ReviewError("analyser_failed", "timed out"),
        ReviewError("analyser_failed", "ruff could not review: timed out"),
        ReviewError("not_reviewed", "huge.json: too large: 3 MB, the limit is 1 MB"),
        ReviewError("finding_dropped", "a finding had no severity"),
    )
    told = section("Problems", Coverage(2, 1, (HUGE,), 3, (RUFF,)), errors=errors)
    assert told == ["  ✖ finding_dropped  a finding had no severity"]
    many = tuple(ReviewError("not_verified", f"number {number}") for number in range(25))
    brief = section("Problems", Coverage(1, 1), errors=many)
    assert (len(brief), brief[-1]) == (11, "    … 15 more (-v shows them)")
    assert len(section("Problems", Coverage(1, 1), errors=many, verbose=True)) == 25
    assert section("Problems", Coverage(2, 2)) == []


def test_each_reason_to_skip_a_file_has_its_words() -> None:
    for reason in SkipReason:
        only, both = (skipped_in_words([SkippedFile(name, reason) for name in names]) for names in ("a", "ab"))
        assert (only[:2], both[:2], only[2:] != both[2:]) == ("1 ", "2 ", True)


@each(
    ("coverage", "words"),
    [
        (Coverage(3, 3, (), 3, (RUFF,)), "3 of 3 files reviewed; gaps: ruff"),
        (
            Coverage(1, 1, (), 9, tuple(FailedUnit(f"unit {number}", (), "timed out") for number in range(9))),
            "1 of 1 file reviewed; gaps: 9 of 9 units",
        ),
        (Coverage(9, 6, (), 23, (*PIECES[:3], RUFF)), "6 of 9 files reviewed; gaps: 3 of 23 units, ruff"),
    ],
)
def test_coverage_is_told_with_what_failed(coverage: Coverage, words: str) -> None:
    assert f"Coverage  {words}\n" in shown(review(complete=False, exit_code=3, coverage=coverage))


def test_the_reason_is_wrapped_beside_the_verdict_or_below_it_where_that_is_too_narrow() -> None:
    assert "\nFAIL  1 finding at or above\n      fail_on=high\n" in shown(review(finding()), width=30)
    assert "\nINCOMPLETE\n  could not review\n" in shown(review(complete=False, exit_code=3), width=20)
    hidden = review(hidden_findings=2, policy=Policy(min_severity=Severity.MEDIUM))
    assert "none; 2 hidden below min_severity=medium" in shown(hidden)


class TestTheLayout:
    @each("width", [40, 50, 80, 100, 200])
    @each("ascii_only", [False, True])
    def test_no_line_but_a_place_is_wider_than_the_page(self, width: int, *, ascii_only: bool) -> None:
        wide = review(
            finding(title="長い題名 " * 20 + "x" * 300, body="説明 " * 99 + "`y`" * 99, evidence="\t日本語" * 80),
            finding(evidence="x = 1\n" * 20, suggestion="- one\n- two\n\n  three " + "word " * 90),
        )
        for line in shown(wide, width=width, ascii_only=ascii_only).split("\n"):
            assert cell_len(line) <= width, line

    def test_prose_does_not_run_over_the_whole_of_a_very_wide_terminal_but_code_does(self) -> None:
        whole = review(finding(body="word " * 100, evidence="code(" + "a, " * 50 + ")"))
        lines = shown(whole, width=240).split("\n")
        assert max(len(line) for line in lines if "word" in line) <= 100
        assert any(len(line) > 150 for line in lines)

    def test_colour_of_the_terminals_own_palette_is_an_addition_to_the_same_text(self) -> None:
        whole = review(finding(body="plain"), finding(severity=Severity.CRITICAL, body="plain"))
        colored = shown(whole, color=True)
        assert ESCAPE in colored
        assert re.sub(r"\x1b\[[0-9;]*m", "", colored).split() == shown(whole).split()
        codes = {int(code) for sequence in re.findall(r"\x1b\[([0-9;]*)m", colored) for code in sequence.split(";")}
        assert codes <= {0, 1, 2, 7, *range(30, 38), *range(90, 98)}

    def test_the_environment_does_not_change_a_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = [shown(review(finding()), color=color) for color in (False, True)]
        for name, value in {"NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "30"}.items():
            monkeypatch.setenv(name, value)
        assert [shown(review(finding()), color=color) for color in (False, True)] == before

    def test_ascii_only_holds_for_our_own_signs_and_for_foreign_text(self) -> None:
        text = shown(review(finding(title="Größe — “zu groß”…", file="日本.py")), ascii_only=True)
        assert text.isascii()
        for words in ('Gr\\xf6\\xdfe - "zu gro\\xdf"...', "\\u65e5\\u672c.py:42", "> 42 | cursor"):
            assert words in text

    def test_markup_and_emoji_codes_in_findings_are_only_text(self) -> None:
        title = "[bold red]x[/] :smile: [link=https://example.com]y[/link]"
        colored = shown(review(finding(title=title)), color=True)
        assert title in one(title=title)
        assert title in re.sub(r"\x1b\[[0-9;]*m", "", colored)
        assert "\x1b]8" not in colored

    def test_no_line_is_a_command_to_a_ci_system(self) -> None:
        words = "word " * 11 + "::error::x\n::add-mask::y\n##[group]z"
        text = shown(review(finding(body=words, title="::warning::t", file="::a")), width=60)
        assert not [line for line in text.split("\n") if line.lstrip().startswith("::") or "##[" in line]
        assert ": :add-mask::y" in text


class TestThePicture:
    def test_it_is_well_formed_shows_the_report_and_is_the_same_each_time(self) -> None:
        whole = review(finding(title="日本 <b> & 'x'", body="]]> a\x00\x1b[1m\ufffe\udcff"))
        picture = svg(whole, title="codeloupe review\x00")
        words = "".join(ET.fromstring(picture).itertext()).replace("\xa0", " ")
        for expected in ("codeloupe review", "Offline review", "日本 <b> & 'x'", "HIGH P1", "app/db.py:42", "FAIL"):
            assert expected in words
        assert svg(whole, title="codeloupe review\x00") == picture

    def test_it_fetches_nothing_and_names_only_what_it_has(self) -> None:
        picture = svg(review(finding()), title="t")
        assert "@font-face" not in picture
        assert "@import" not in picture
        assert re.findall(r"https?://[^\"' ]+", picture) == ["http://www.w3.org/2000/svg"]
        assert not re.findall(r"url\((?!#)", picture)
        named = set(re.findall(r"clip-path=\"url\(#([^)]+)\)", picture))
        assert named <= set(re.findall(r"<clipPath id=\"([^\"]+)\"", picture))

    def test_wide_characters_are_not_squeezed(self) -> None:
        (length,) = re.findall(r'textLength="([\d.]+)"[^>]*>日本<', svg(review(finding(title="日本")), title="t"))
        assert float(length) == 4 * 12
