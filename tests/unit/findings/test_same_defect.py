"""Whether two claims are about the same defect: words, similarity, and labelled pairs of claims."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.findings.same_defect import CERTAINLY_SIMILAR, SIMILAR, likeness, similarity, stems_of
from codeloupe.model.finding import Claim, Severity, Source
from tests.histories import Said, World, agent, step

PAIRS = Path(__file__).parents[2] / "data" / "same_defect_pairs.json"
CLAIM = Claim(reporter="claude", source=Source.AGENT, severity=Severity.HIGH, title="", file="a.py", line_start=1)


def saying(title: str, body: str = "") -> Claim:
    return replace(CLAIM, title=title, body=body)


@pytest.mark.parametrize(
    ("text", "stems"),
    [
        pytest.param("The file is open", "file open", id="words of four letters or more"),
        pytest.param("userName parseJson", "user name pars json", id="camelCase is split"),
        pytest.param("user_name max_retry_count", "user name retri count", id="snake_case is split"),
        pytest.param("HTTPServer parseJSON", "http server pars json", id="acronyms are split from names"),
        pytest.param("CLOSED Closed closed closing", "close", id="words are lower-cased and stemmed"),
        pytest.param("connections connected connection", "connect", id="forms of a word have one stem"),
        pytest.param("line 1234 in sha256sum", "line", id="digits are not words"),
        pytest.param("资源未关闭", "资 源 未 关 闭", id="each Chinese character is a word"),
        pytest.param("閉じる", "閉 じ る", id="each Japanese character is a word"),
        pytest.param("파일", "파 일", id="each Korean character is a word"),
        pytest.param(
            "Datei wird nicht geschlossen", "datei wird nicht geschlossen", id="other languages have words too"
        ),
        pytest.param("`x` is 1", "", id="short words are not counted"),
    ],
)
def test_stems(text: str, stems: str) -> None:
    assert stems_of(saying(text)) == set(stems.split())


def test_stems_are_those_of_title_and_body() -> None:
    assert stems_of(saying("handle leaks", "never closed")) == {"handl", "leak", "never", "close"}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@pytest.mark.parametrize(
    ("one", "other", "index"),
    [
        pytest.param("a b c", "a b c", 1.0, id="equal sets"),
        pytest.param("a", "a", 1.0, id="equal sets of one word"),
        pytest.param("a b", "a b c", 0.0, id="two common stems are too few"),
        pytest.param("a b c", "a b c d", 0.75, id="three common stems are enough"),
        pytest.param("a b c d e f", "a b c g h i", 3 / 9, id="Jaccard index"),
        pytest.param("a b c", "d e f", 0.0, id="nothing in common"),
        pytest.param("", "", 0.0, id="two empty sets are not equal"),
        pytest.param("", "a b c", 0.0, id="an empty set"),
    ],
)
def test_similarity(one: str, other: str, index: float) -> None:
    assert similarity(words(one), words(other)) == pytest.approx(index)
    assert similarity(words(other), words(one)) == pytest.approx(index)


ANALYSER = replace(CLAIM, reporter="ruff", source=Source.ANALYSER, rule="S1", title="opened file handle leaks")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(ANALYSER, replace(ANALYSER, title="something else"), 1.0, id="the same rule"),
        pytest.param(ANALYSER, replace(ANALYSER, rule="S2"), 0.0, id="two rules with the same words"),
        pytest.param(ANALYSER, saying("opened file handle leaks"), 1.0, id="an agent with an analyser's words"),
        pytest.param(ANALYSER, saying("unrelated words entirely"), 0.0, id="an agent with other words"),
        pytest.param(
            replace(saying("unrelated words entirely"), rule="S1"), ANALYSER, 0.0, id="a rule that an agent names"
        ),
        pytest.param(saying("x"), saying("x"), 1.0, id="the same text without a long word"),
        pytest.param(saying("x"), saying("y"), 0.0, id="other texts without a long word"),
    ],
)
def test_likeness(one: Claim, other: Claim, expected: float) -> None:
    assert likeness(one, other) == expected
    assert likeness(other, one) == expected


def test_suppressions_and_refutations_need_a_higher_index() -> None:
    assert (SIMILAR, CERTAINLY_SIMILAR) == (0.20, 0.22)


# Three common stems of fourteen: an index of 0.214, between the two limits.
BETWEEN = (
    "alpha bravo candle delta eagle forest garden horse",
    "alpha bravo candle island jungle kettle lemon mango novel",
)


def test_a_refuted_claim_is_not_repeated_by_words_that_are_only_nearly_similar(tmp_path: Path) -> None:
    one, other = (stems_of(saying(text)) for text in BETWEEN)
    assert SIMILAR <= similarity(one, other) < CERTAINLY_SIMILAR
    line = "handle = open(path)"
    for proof, findings in (("unproven", 1), ("refuted", 2)):
        world = World(tmp_path / proof, {"app.py": f"{line}\n"})
        world.review(step(agent(line, BETWEEN[0]), proof=proof))
        assert len(world.review(step(agent(line, BETWEEN[1]), proof="unproven")).findings) == findings


@cache
def pairs(kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PAIRS.read_text(encoding="utf-8"))[kind]
    return found


def said(comment: dict[str, Any]) -> Claim:
    return saying(comment["title"], comment["body"])


def test_different_defects_on_one_line_are_kept_apart() -> None:
    rows = pairs("different_on_one_line")
    joined = [row["id"] for row in rows if likeness(said(row["first"]), said(row["second"])) >= SIMILAR]
    assert len(joined) <= 0.05 * len(rows), joined


@pytest.mark.parametrize("row", pairs("other_line"), ids=lambda row: row["id"])
def test_the_same_defect_on_another_line_is_another_finding(row: dict[str, Any], tmp_path: Path) -> None:
    first, second = row["first"], row["second"]
    lines = [f"filler_{number}()" for number in range(1, max(first["line"], second["line"]) + 5)]
    says: list[Said] = []
    for comment in (first, second):
        code = comment["code"].split("\n")[0]
        # The same code at two lines is told apart by its number.
        number = 1 + lines.count(code)
        lines[comment["line"] - 1] = code
        says.append(agent(code, f"{comment['title']} {comment['body']}", "medium", file=row["file"], number=number))
    files = {row["file"]: "\n".join(lines) + "\n"}
    in_one_round = World(tmp_path / "one", files).review(step(*says))
    in_two_rounds = World(tmp_path / "two", files).play([step(says[0]), step(says[1])])
    assert (len(in_one_round.findings), len(in_two_rounds.findings)) == (2, 2)
