import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.cells import cell_len

from codeloupe.model.finding import Severity
from codeloupe.model.review import Review, SkippedFile, SkipReason
from codeloupe.reports import Layout, render
from codeloupe.reports.text import svg
from codeloupe.reports.wording import skipped_text
from tests.rows import each
from tests.unit.reports.examples import ESCAPE, finding, review


def shown(whole: Review, *, width: int = 100, color: bool = False, **look: Any) -> str:
    return render(whole, "text", Layout(width=width, color=color, **look))


def one(**changes: Any) -> str:
    """A report with one finding."""
    return shown(review(finding(**changes)))


@pytest.mark.defect("U2")
def test_files_come_by_worst_severity_then_path_and_findings_by_severity() -> None:
    places = [("a", "LOW", 1), ("z", "LOW", 90), ("z", "CRITICAL", 100), ("m", "MEDIUM", 5), ("b", "LOW", 5)]
    found = (
        finding(file=f"{name}.py", severity=Severity[step], line_start=line, title=f"{name}-{line}")
        for name, step, line in places
    )
    text = shown(review(*found))
    order = ["z-100", "z-90", "m-5", "a-1", "b-5"]
    assert sorted(order, key=text.index) == order
    assert "1 critical, 1 low" in text


def test_what_is_endless_is_cut_and_the_cut_is_said() -> None:
    for body in ("line\n" * 500, "word " * 5_000):
        text = one(body=body)
        assert "… cut here; the JSON report has it whole" in text
        assert len(text.split("\n")) < 100
    assert len(one(evidence="e" + "\u0301" * 100_000)) < 2_000


def test_each_reason_to_skip_a_file_has_its_words() -> None:
    for reason in SkipReason:
        only, both = (skipped_text([SkippedFile(name, reason) for name in names]) for names in ("a", "ab"))
        assert (only[:2], both[:2], only[2:] != both[2:]) == ("1 ", "2 ", True)


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
        # It fetches nothing, and names only what it has.
        assert "@font-face" not in picture
        assert "@import" not in picture
        assert re.findall(r"https?://[^\"' ]+", picture) == ["http://www.w3.org/2000/svg"]
        assert not re.findall(r"url\((?!#)", picture)
        named = set(re.findall(r"clip-path=\"url\(#([^)]+)\)", picture))
        assert named <= set(re.findall(r"<clipPath id=\"([^\"]+)\"", picture))
        # Wide characters are not squeezed.
        (length,) = re.findall(r'textLength="([\d.]+)"[^>]*>日本<', svg(review(finding(title="日本")), title="t"))
        assert float(length) == 4 * 12
