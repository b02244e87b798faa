from __future__ import annotations

import re
from urllib.parse import unquote

from codeloupe.model.finding import Severity
from codeloupe.model.review import Policy, Review, ReviewError
from codeloupe.reports.github import render_github
from tests.rows import each
from tests.telling_reviews import (
    HOSTILE,
    ODD_PATH,
    closed_findings,
    empty_review,
    hostile_review,
    incomplete_review,
    passed_review,
    telling_review,
    unplaced_finding,
)
from tests.unit.reports.examples import finding, review

COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def commands(whole: Review) -> list[tuple[str, dict[str, str], str]]:
    """Level, properties and message of each line, read as the runner reads them."""
    text = render_github(whole)
    text.encode("utf-8")
    assert text.endswith("\n")
    read = []
    for line in text[:-1].split("\n"):
        found = COMMAND.fullmatch(line)
        assert found, line
        pairs = dict(part.split("=", 1) for part in found[2].split(","))
        read.append((found[1], {key: unquote(value) for key, value in pairs.items()}, unquote(found[3])))
    return read


@each("whole", [telling_review(), passed_review(), empty_review(), incomplete_review(), hostile_review()])
def test_every_line_is_one_command_of_ours(whole: Review) -> None:
    levels = [level for level, _, _ in commands(whole)]

    assert all(levels.count(level) <= 10 for level in set(levels))
    assert levels[-1] == "notice"


@each(("whole", "word"), [(passed_review(), "PASS"), (empty_review(), "Nothing to review")])
def test_a_review_with_nothing_to_tell_is_one_notice(whole: Review, word: str) -> None:
    ((level, properties, message),) = commands(whole)

    assert (level, properties) == ("notice", {"title": f"codeloupe: {word}"})
    assert "Findings: none." in message


def test_a_finding_that_blocks_is_an_error_at_its_lines() -> None:
    (level, properties, message), _ = commands(review(finding(line_end=44)))

    assert level == "error"
    assert properties == {
        "file": "app/db.py",
        "line": "42",
        "endLine": "44",
        "title": "high P1: Statement is built from a variable",
    }
    assert message == "Whoever controls `name` can read any row.\nFix: Pass the value as a parameter."


def test_what_does_not_block_is_no_error() -> None:
    whole = review(*(finding(severity=step) for step in Severity), policy=Policy(fail_on=Severity.CRITICAL))

    assert [level for level, _, _ in commands(whole)] == ["error", "warning", "warning", "notice", "notice"]


def test_a_path_and_a_title_are_escaped_by_the_runners_rules() -> None:
    line = render_github(review(finding(file="a,b:c%.py", title="50%, or: more"))).split("\n")[0]

    assert "file=a%2Cb%3Ac%25.py," in line
    assert "title=high P1%3A 50%25%2C or%3A more::" in line


def test_spaces_in_a_path_are_kept() -> None:
    (_, properties, _), _ = commands(review(finding(file="a  b/c .py")))

    assert properties["file"] == "a  b/c .py"


def test_no_text_can_begin_a_command() -> None:
    text = render_github(review(finding(title=HOSTILE, body=f"x\n::stop-commands::y\r\n{HOSTILE}", file=ODD_PATH)))

    assert len(text.splitlines()) == 2
    for line in text.splitlines():
        assert line.count("::") == 2
        assert "##[" not in line
        assert line.isprintable()


def test_a_finding_without_a_place_is_a_notice_without_a_line() -> None:
    (level, properties, message), _ = commands(review(unplaced_finding(severity=Severity.LOW)))
    gap, (grave, _, _), _ = commands(review(unplaced_finding(severity=Severity.CRITICAL)))

    assert (level, grave) == ("notice", "warning")
    assert "app/db.py: a critical claim could not be placed in the code and was not refuted" in gap[2]
    assert properties == {"file": "app/db.py", "title": "low P3: Is nowhere"}
    assert "could not be placed" in message


def test_what_counts_for_nothing_is_only_counted() -> None:
    ((level, _, message),) = commands(review(*closed_findings(), exit_code=0))

    assert level == "notice"
    assert "1 refuted; 4 set aside" in message


@each(("exit_code", "level"), [(3, "error"), (0, "warning")])
def test_all_gaps_are_told_in_one_annotation_before_everything_else(exit_code: int, level: str) -> None:
    told = commands(incomplete_review(policy=Policy(pass_when_incomplete=not exit_code)) if exit_code else _accepted())

    assert told[0][0] == level
    assert told[0][1] == {"title": "codeloupe could not review everything"}
    assert told[0][2] == "app/slow.py#2: timeout after 300 s\ndata/dump.sql: too large: 4 MB, the limit is 1 MB"
    assert told[-1][1]["title"] == "codeloupe: INCOMPLETE"


def _accepted() -> Review:
    whole = telling_review(findings=(), errors=(), exit_code=0)
    return review(complete=False, exit_code=0, coverage=whole.coverage, policy=Policy(pass_when_incomplete=True))


def test_of_each_level_the_ten_worst_are_shown_and_the_rest_is_counted() -> None:
    nits = [finding(severity=Severity.LOW, title=f"nit {number}") for number in range(30)]
    blocking = [finding(title=f"bad {number:02}") for number in range(15)]
    worst = finding(severity=Severity.CRITICAL, title="worst", file="z.py")

    told = commands(review(*nits, *blocking, worst))

    levels = [level for level, _, _ in told]
    assert (levels.count("error"), levels.count("notice")) == (10, 10)
    assert told[0][1]["title"] == "critical P0: worst"
    assert "6 more of level error, 21 more of level notice" in told[-1][2]


def test_other_problems_are_warnings() -> None:
    (level, properties, message), _ = commands(review(errors=(ReviewError("history", "is not writable"),)))

    assert (level, properties["title"], message) == ("warning", "codeloupe: history", "is not writable")


def test_an_endless_text_is_cut() -> None:
    assert len(render_github(review(finding(title="t" * 100_000, body="b" * 1_000_000)))) < 10_000
