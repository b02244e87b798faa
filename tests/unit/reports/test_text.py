from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from codeloupe.model.agent import Usage
from codeloupe.model.finding import FindingStatus, Severity, Suppression, SuppressionKind
from codeloupe.model.review import Coverage, ReviewerInfo, Verdict
from codeloupe.reports.text import render_text
from tests.rows import each
from tests.unit.reports.examples import ESCAPE, finding, review


def lines_of(text: str) -> list[str]:
    return text.split("\n")


def test_a_review_with_one_finding_reads_from_reviewer_to_verdict() -> None:
    text = render_text(review(finding()), width=80, color=False)
    assert text == (
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


def test_no_changes_are_told_in_short() -> None:
    text = render_text(review(coverage=Coverage()), width=100, color=False)
    assert lines_of(text)[-2] == "No changes to review (1.2 s)"
    assert len(lines_of(text)) == 5


def test_the_offline_reviewer_never_passes_for_an_ai_review() -> None:
    for why in ("", "nothing else is installed", "ruff (lint, security and hygiene; not an AI review)"):
        text = render_text(review(reviewer=ReviewerInfo("offline", why)), width=200, color=False)
        assert text.startswith("Offline review")
        assert lines_of(text)[0].count("not an AI review") + lines_of(text)[1].count("not an AI review") == 1


def test_the_first_line_names_an_agent_its_model_and_why() -> None:
    chosen = ReviewerInfo("agent_sdk", "installed and logged in", "some-model")
    text = render_text(review(reviewer=chosen), width=100, color=False)
    assert lines_of(text)[0] == "Claude Agent SDK review with some-model: installed and logged in"
    unknown = render_text(review(reviewer=ReviewerInfo("new-thing", "as requested")), width=100, color=False)
    assert lines_of(unknown)[0] == "Review by new-thing: as requested"


@pytest.mark.defect("U2")
def test_files_come_by_worst_severity_then_path_and_findings_by_severity() -> None:
    text = render_text(
        review(
            finding(file="a.py", severity=Severity.LOW, line_start=1, title="a-1"),
            finding(file="z.py", severity=Severity.LOW, line_start=90, title="z-90"),
            finding(file="z.py", severity=Severity.CRITICAL, line_start=100, title="z-100"),
            finding(file="m.py", severity=Severity.MEDIUM, line_start=5, title="m-5"),
            finding(file="b.py", severity=Severity.LOW, line_start=5, title="b-5"),
        ),
        width=80,
        color=False,
    )
    order = ["z-100", "z-90", "m-5", "a-1", "b-5"]
    assert sorted(order, key=text.index) == order
    assert "1 critical, 1 low" in text


@each("severity", list(Severity))
def test_each_severity_is_told_in_words_and_number_not_by_colour_alone(severity: Severity) -> None:
    text = render_text(review(finding(severity=severity)), width=80, color=False)
    assert f"  {severity.label.upper()} P{severity.priority}  Statement" in text


def test_findings_whose_quote_is_not_in_the_file_stand_apart_without_a_line_number() -> None:
    floating = finding(anchored=False, title="Floating", severity=Severity.LOW)
    text = render_text(review(floating, verdict=Verdict.PASS, exit_code=0), width=90, color=False)
    assert text.index("Without a place") < text.index("Floating")
    assert "▸ ? │ cursor" in text
    assert "PASS ✔  nothing found that counts against the change" in text
    assert "Findings  none; 1 without a place" in text


def test_refuted_dismissed_and_fixed_findings_are_listed_apart_and_not_counted() -> None:
    text = render_text(
        review(
            finding(title="Was wrong", status=FindingStatus.REFUTED),
            finding(title="Was waived", status=FindingStatus.DISMISSED),
            finding(title="Counts", severity=Severity.MEDIUM, status=FindingStatus.OPEN),
            verdict=Verdict.NEEDS_WORK,
            exit_code=0,
        ),
        width=100,
        color=False,
    )
    order = ["Counts", "Refuted ──", "Was wrong", "Set aside ──", "Was waived"]
    assert sorted(order, key=text.index) == order
    assert "app/db.py:42  refuted" in text
    assert "app/db.py:42  dismissed" in text
    assert "still open from an earlier review" in text
    assert "Findings  1 medium; 1 refuted; 1 set aside" in text


def test_a_refuted_finding_says_what_refuted_it() -> None:
    one = finding(status=FindingStatus.REFUTED, verification="refuted: the caller checks it")
    text = render_text(review(one, verdict=Verdict.PASS, exit_code=0), width=100, color=False)
    assert "app/db.py:42  refuted: the caller checks it\n" in text
    assert "cursor.execute" not in text


@each(
    ("kind", "words"),
    [(SuppressionKind.BASELINE, "the baseline"), (SuppressionKind.INLINE, "a comment in the code")],
)
def test_a_suppressed_finding_says_by_what_and_why(kind: SuppressionKind, words: str) -> None:
    one = finding(suppression=Suppression(kind=kind, reason="known since May"))
    text = render_text(review(one, verdict=Verdict.PASS, exit_code=0), width=100, color=False)
    assert f"app/db.py:42  suppressed by {words}: known since May\n" in text
    assert "Findings  none; 1 set aside" in text


@each(
    ("verification", "shown"),
    [
        ("confirmed: no caller cleans it", "  ✔    confirmed: no caller cleans it\n"),
        ("confirmed: ", "  ✔    confirmed\n"),
        ("unproven: the caller is not to be seen", "  ?    unproven: the caller is not to be seen\n"),
        ("could not verify: rate limited", "  ?    could not verify: rate limited\n"),
    ],
)
def test_what_the_attempt_to_refute_it_showed_is_told_below_the_finding(verification: str, shown: str) -> None:
    assert shown in render_text(review(finding(verification=verification)), width=100, color=False)


def test_a_finding_that_was_not_verified_says_nothing_about_it() -> None:
    assert "✔" not in render_text(review(finding()), width=100, color=False)


def test_who_saw_a_finding_is_told_when_several_did() -> None:
    looks = ("agent_sdk/security#1", "agent_sdk/security#2", "codex", "gemini", "api", "offline")
    text = render_text(review(finding(agreement=6, seen_by=looks)), width=100, color=False)
    named = "seen by agent_sdk/security#1, agent_sdk/security#2, codex, gemini and 2 more"
    assert f"security · S608 · {named}" in " ".join(text.split())
    assert "seen" not in render_text(review(finding(agreement=1, seen_by=("codex",))), width=100, color=False)


def test_what_says_the_same_twice_is_told_once() -> None:
    text = render_text(review(finding(category="security", expert="security", rule=None)), width=100, color=False)
    assert "app/db.py:42  security · ruff\n" in text


@each("status", [status for status in FindingStatus if finding(status=status).is_open])
def test_a_finding_that_is_not_new_says_what_it_was_before(status: FindingStatus) -> None:
    words = {"new": "", "open": " · still open from an earlier review", "regressed": " · back after it was fixed"}
    text = render_text(review(finding(status=status)), width=100, color=False)
    assert f"app/db.py:42  security · S608 · ruff{words[status.value]}\n" in text
    assert "Findings  1 high\n" in text


def test_several_reviewers_are_named_together() -> None:
    several = ReviewerInfo("agent_sdk+codex+offline", "as requested")
    text = render_text(review(reviewer=several), width=100, color=False)
    assert lines_of(text)[0] == "Review by agent_sdk, codex and offline: as requested"


def test_where_a_finding_comes_from_is_told_beside_its_place() -> None:
    one = finding(
        line_end=44, expert="sql", agreement=3, confidence=0.805, commit_sha="c" * 40, outside_change=True, rule=None
    )
    text = render_text(review(one), width=100, color=False)
    shown = " ".join(text.split())
    assert "app/db.py:42 to 44" in shown
    assert "security · ruff · sql · seen 3 times · outside the change · confidence 80% · commit cccccccccc" in shown


def test_a_place_is_never_broken_so_that_a_terminal_can_open_it() -> None:
    path = "very/" * 30 + "deep.py"
    text = render_text(review(finding(file=path)), width=40, color=False)
    assert f"\n  {path}:42\n" in text


@each("width", [40, 50, 80, 100, 200])
@each("ascii_only", [False, True])
def test_no_line_but_a_place_is_wider_than_the_page(width: int, *, ascii_only: bool) -> None:
    wide = review(
        finding(title="長い題名 " * 20 + "x" * 300, body="説明 " * 99 + "`y`" * 99, evidence="\t日本語" * 80),
        finding(evidence="x = 1\n" * 20, suggestion="- one\n- two\n\n  three " + "word " * 90),
    )
    for line in lines_of(render_text(wide, width=width, color=False, ascii_only=ascii_only)):
        assert cell_len(line) <= width, line


def test_prose_does_not_run_over_the_whole_of_a_very_wide_terminal_but_code_does() -> None:
    one = review(finding(body="word " * 100, evidence="code(" + "a, " * 50 + ")"))
    lines = lines_of(render_text(one, width=240, color=False))
    assert max(len(line) for line in lines if "word" in line) <= 100
    assert any(len(line) > 150 for line in lines)


def test_an_endless_body_is_cut_and_the_cut_is_said() -> None:
    for body in ("line\n" * 500, "word " * 5_000):
        text = render_text(review(finding(body=body)), width=80, color=False)
        assert "… cut here; the JSON report has it whole" in text
        assert len(lines_of(text)) < 100


def test_colour_is_an_addition_to_the_same_text() -> None:
    one = review(finding(severity=Severity.HIGH, body="plain"))
    colored = render_text(one, width=80, color=True)
    assert ESCAPE in colored
    without = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert without.split() == render_text(one, width=80, color=False).split()


def test_colours_are_those_of_the_terminals_own_palette() -> None:
    text = render_text(review(finding(), finding(severity=Severity.CRITICAL)), width=80, color=True)
    codes = {int(code) for sequence in re.findall(r"\x1b\[([0-9;]*)m", text) for code in sequence.split(";")}
    assert codes <= {0, 1, 2, 7, *range(30, 38), *range(90, 98)}


def test_the_environment_does_not_change_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    one = review(finding())
    before = [render_text(one, width=80, color=color) for color in (False, True)]
    for name, value in {"NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "30"}.items():
        monkeypatch.setenv(name, value)
    assert [render_text(one, width=80, color=color) for color in (False, True)] == before


def test_ascii_only_holds_for_our_own_signs_and_for_foreign_text() -> None:
    one = review(finding(title="Größe — “zu groß”…", file="日本.py"), scope=review().scope)
    text = render_text(one, width=80, color=False, ascii_only=True)
    assert text.isascii()
    assert 'Gr\\xf6\\xdfe - "zu gro\\xdf"...' in text
    assert "\\u65e5\\u672c.py:42" in text
    assert "> 42 | cursor" in text


def test_markup_and_emoji_codes_in_findings_are_only_text() -> None:
    title = "[bold red]x[/] :smile: [link=https://example.com]y[/link]"
    assert title in render_text(review(finding(title=title)), width=100, color=False)
    colored = render_text(review(finding(title=title)), width=100, color=True)
    assert title in re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert "\x1b]8" not in colored


def test_no_line_of_a_report_is_a_command_to_a_ci_system() -> None:
    one = finding(body="word " * 11 + "::error::x\n::add-mask::y\n##[group]z", title="::warning::t", file="::a")
    text = render_text(review(one), width=60, color=False)
    assert not [line for line in lines_of(text) if line.lstrip().startswith("::") or "##[" in line]
    assert ": :add-mask::y" in text


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
def test_what_was_spent_is_told_at_the_end(usage: Usage, spent: str) -> None:
    text = render_text(review(usage=replace(usage, duration_seconds=83.4)), width=100, color=False)
    assert text.endswith(f"Spent     {spent}\nTime      1 min 23 s\n")


def test_a_review_without_calls_spent_nothing() -> None:
    assert "Spent" not in render_text(review(), width=100, color=False)


def test_a_fingerprint_is_shown_as_far_as_it_must_be_typed_only_when_asked_for() -> None:
    one = review(finding(fingerprint="0123456789abcdef" * 2), finding(fingerprint=""))
    quiet, loud = (render_text(one, width=100, color=False, verbose=verbose) for verbose in (False, True))
    assert "0123456789ab" not in quiet
    assert loud.count("fingerprint ") == 1
    assert "fingerprint 0123456789ab\n" in loud
