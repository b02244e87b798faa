from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from codeloupe.engine.experts import BUILT_IN, CHECKLISTS, DEFAULT, load_experts
from codeloupe.engine.plan import ExpertChoice, tokens_of
from codeloupe.engine.prompt import checklist
from codeloupe.errors import ConfigError
from codeloupe.model.expert import Expert
from codeloupe.model.finding import Severity
from tests.rows import each

LABELS = [severity.label for severity in Severity]


def for_file(path: str) -> tuple[Expert, ...]:
    choice = ExpertChoice(load_experts([DEFAULT]))
    return tuple(choice.experts[place] for place in sorted(choice.matching(path)))


def names(experts: tuple[Expert, ...]) -> set[str]:
    return {expert.name for expert in experts}


def test_the_names_are_those_of_the_files() -> None:
    assert sorted(BUILT_IN) == sorted(path.stem for path in CHECKLISTS.glob("*.json"))
    assert {"correctness", "security", "reliability", "performance", "concurrency", "api_compatibility"} < set(BUILT_IN)
    assert {"tests", "documentation", "architecture", "code_quality", "general"} < set(BUILT_IN)


@each("name", BUILT_IN)
def test_a_built_in_expert_is_whole_and_short(name: str) -> None:
    (expert,) = load_experts([name])
    assert expert.name == name
    assert 20 < len(expert.description) < 130
    assert 5 <= len(expert.focus) <= 9
    assert len(expert.sceptical_of) >= 2
    assert len(expert.do_not_flag) >= 2
    guide = list(expert.severity_guide)
    assert guide == [label for label in LABELS if label in guide]
    assert len(guide) >= 3
    points = (*expert.focus, *expert.sceptical_of, *expert.do_not_flag, *expert.severity_guide.values())
    assert max(map(len, points)) < 130
    assert len(set(points)) == len(points)
    assert tokens_of(checklist([expert])) < 330


@each("name", BUILT_IN)
def test_a_checklist_is_no_character(name: str) -> None:
    text = (CHECKLISTS / f"{name}.json").read_text().lower()
    assert not any(word in text for word in ("you are", "expert", "senior", "experienced", "act as", "imagine"))


def test_the_default_checklist_of_a_code_file_is_cheap_and_covers_the_usual_defects() -> None:
    experts = for_file("src/app.py")
    assert names(experts) == {
        "correctness",
        "security",
        "reliability",
        "concurrency",
        "performance",
        "api_compatibility",
    }
    text = checklist(experts)
    assert tokens_of(text) <= 225
    # Nothing of a short checklist falls to the prompt's limit on joined ones.
    assert all(expert.focus[0].rstrip(".;") in text for expert in experts)


@each(
    ("path", "there", "not_there"),
    [
        ("tests/test_app.py", "tests", "performance"),
        ("web/app.spec.ts", "tests", "api_compatibility"),
        ("src/OrderTest.java", "tests", "documentation"),
        ("README.md", "documentation", "correctness"),
        ("docs/guide/start.rst", "documentation", "concurrency"),
        ("deploy/values.yaml", "security", "concurrency"),
        ("src/latest.py", "correctness", "tests"),
        ("LICENSE", "security", "documentation"),
    ],
)
def test_the_default_checklist_fits_the_file(path: str, there: str, not_there: str) -> None:
    assert there in names(for_file(path))
    assert not_there not in names(for_file(path))


def test_the_default_checklist_says_one_line_each() -> None:
    for expert in load_experts([DEFAULT]):
        assert len(expert.focus) == 1
        assert (expert.sceptical_of, expert.do_not_flag, dict(expert.severity_guide)) == ((), (), {})


def test_the_experts_of_an_ordinary_review_load_no_parser() -> None:
    loading = "from codeloupe.engine.experts import load_experts"
    program = f"import sys; {loading}; load_experts(['default']); print(*sys.modules)"
    ended = subprocess.run((sys.executable, "-I", "-c", program), capture_output=True, text=True, check=True)
    assert "yaml" not in ended.stdout.split()


SQL = {"description": "database", "focus": ["queries without an index"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "experts"
    place.mkdir()
    return place


def refusal(*names: str, own: Mapping[str, Any] | None = None, folder: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_experts(names, own=own or {}, folder=folder)
    assert caught.value.hint
    return f"{caught.value.message} | {caught.value.hint}"


class TestNames:
    def test_experts_come_in_the_order_asked_for_each_once(self) -> None:
        asked = ["tests", "security", "tests"]
        assert [expert.name for expert in load_experts(asked)] == ["tests", "security"]
        assert load_experts([]) == ()

    @each(
        ("asked", "meant"),
        [("secruity", "security"), ("Api-Compatibility", "api_compatibility"), ("test", "tests"), ("sq", "sql")],
    )
    def test_an_unknown_name_is_refused_with_the_one_that_is_meant_and_all_others(self, asked: str, meant: str) -> None:
        words = refusal(asked, own={"sql": SQL})
        assert f"there is no expert '{asked}'" in words
        assert f"did you mean `{meant}`?" in words
        assert "sql, correctness, security, " in words

    @each("name", ["", "../etc/passwd", "x" * 100_000, "\x1b[2J", "a\udcff"])
    def test_a_name_that_resembles_nothing_is_refused_too(self, name: str, folder: Path) -> None:
        words = refusal(name, folder=folder)
        assert "did you mean" not in words
        assert len(words) < 500
        assert words.isprintable()

    @each("name", ["default", "two words", "../x", "", "-x"])
    def test_an_expert_of_ones_own_needs_a_plain_name(self, name: str) -> None:
        assert "cannot be the name of an expert" in refusal("security", own={name: SQL})


class TestPrecedence:
    def test_the_configuration_beats_the_folder_and_the_folder_what_is_built_in(self, folder: Path) -> None:
        (folder / "security.yaml").write_text("focus: [from the folder]\n")
        (folder / "tests.yml").write_text("focus: [from the folder]\n")
        own = {"security": {"focus": ["from the configuration"]}}
        experts = load_experts(["security", "tests", "reliability"], own=own, folder=folder)
        assert [expert.focus[0] for expert in experts[:2]] == ["from the configuration", "from the folder"]
        assert len(experts[2].focus) > 3

    def test_only_what_is_asked_for_is_read(self, folder: Path) -> None:
        (folder / "broken.yaml").write_text("focus: [")
        assert load_experts(["security"], own={"wrong": {}}, folder=folder) == load_experts(["security"])

    def test_two_files_for_one_expert_are_refused(self, folder: Path) -> None:
        for name in ("x.yaml", "x.yml"):
            (folder / name).write_text("focus: [a]\n")
        assert "the expert x has two files: x.yaml and x.yml" in refusal("x", folder=folder)


class TestDefault:
    def test_default_stands_for_the_experts_of_an_ordinary_review(self) -> None:
        experts = load_experts(["sql", "default"], own={"sql": SQL})
        assert experts == (*load_experts([DEFAULT]), *load_experts(["sql"], own={"sql": SQL}))

    def test_an_expert_that_is_named_beside_default_is_whole(self) -> None:
        experts = load_experts(["default", "security"])
        assert load_experts(["security"])[0] in experts
        assert len(experts) == len(load_experts([DEFAULT]))

    def test_ones_own_definition_replaces_an_expert_of_the_default(self) -> None:
        own: dict[str, dict[str, object]] = {
            "security": {"focus": ["mine", "more"], "brief": "mine in short"},
            "tests": {"focus": ["no brief", "so all of it"]},
        }
        by_name = {expert.name: expert for expert in load_experts(["default"], own=own)}
        assert by_name["security"].focus == ("mine in short",)
        assert by_name["tests"].focus == ("no brief", "so all of it")


class TestDefinitions:
    def test_a_definition_becomes_an_expert(self, folder: Path) -> None:
        (folder / "sql.yaml").write_text(
            "description: database\nfocus:\n  - a query   without\n    an index\n  - yes\n  - 1.10\n"
            'sceptical_of: "*"\ndo_not_flag: []\npaths: ["*.sql", "!old/"]\nseverity_guide: {P3: small, high: slow}\n'
        )
        (expert,) = load_experts(["sql"], folder=folder)
        assert expert == Expert(
            name="sql",
            description="database",
            focus=("a query without an index", "yes", "1.10"),
            sceptical_of=("*",),
            paths=("*.sql", "!old/"),
            severity_guide={"high": "slow", "low": "small"},
        )
        assert list(expert.severity_guide) == ["high", "low"]

    def test_a_focus_is_enough(self) -> None:
        (expert,) = load_experts(["big_data"], own={"big_data": {"focus": "one thing", "paths": None}})
        assert (expert.description, expert.focus, expert.paths) == ("big data", ("one thing",), ())

    @each(
        ("definition", "words"),
        [
            ({}, "focus: expected at least one thing"),
            ({"focus": []}, "focus: expected at least one thing"),
            ({"focus": [3]}, "focus: expected a text, found a number"),
            ({"focus": [True]}, "focus: expected a text, found true or false"),
            ({"focus": {"a": "b"}}, "focus: expected a list of texts, found a mapping"),
            ({"focus": ["a", None]}, "focus: expected a text, found nothing"),
            ({"focus": ["  "]}, "focus: a text is empty"),
            ({"focus": ["a\u202eb"]}, "cannot be seen: 'a\\u202eb'"),
            ({"focus": ["a\x00b"]}, "cannot be seen"),
            ({"focus": ["x" * 401]}, "too long"),
            ({"focus": ["x" * 400] * 16}, "too long"),
            ({"focus": ["x"] * 41}, "more than 40 entries"),
            ({"focus": ["x"], "description": ["y"]}, "description: expected a text, found a list"),
            ({"focus": ["x"], "severity_guide": ["y"]}, "severity_guide: expected `severity: words`, found a list"),
            ({"focus": ["x"], "severity_guide": {"awful": "y"}}, "not a severity: 'awful'"),
            ({"focus": ["x"], "severity_guide": {"P1": "y", "high": "z"}}, "high is given twice"),
            ({"focus": ["x"], "do_not_flags": []}, "did you mean `do_not_flag`?"),
            ({"focus": ["x"], 3: []}, "unknown key '3'"),
            (["focus"], "expected `key: value`, found a list"),
        ],
    )
    def test_a_malformed_definition_is_refused_by_place_and_key(self, definition: object, words: str) -> None:
        told = refusal("mine", own={"mine": definition})
        assert told.startswith("experts.mine: ")
        assert words in told


class TestFiles:
    @each(
        ("text", "words"),
        [
            (b"", "focus: expected at least one thing"),
            (b"- focus\n", "expected lines of `key: value`"),
            (b"focus: [\n", "experts/x.yaml:2:1: a value is missing here"),
            (b"focus: a\n\tb: c\n", "experts/x.yaml:2:1: a tab is used for indentation"),
            (b"focus: [a]\nfocus: [b]\n", "focus: already given on line 1"),
            (b"focus: !!python/object/apply:os.system [id]\n", "the tag '!!python/object/apply:os.system' is not"),
            (b"focus: [[[[a]]]]\n", "nested more than 3 levels deep"),
            (b"focus: [" + b"a, " * 2_000 + b"]\n", "more than 40 entries"),
            (b"? [a]\n: b\n", "a list cannot be a key"),
            (b"focus: [a]\n---\nfocus: [b]\n", "a second document"),
            (b"focus: [\xff]\n", "not UTF-8"),
            (b"focus: ['\x00']\n", "experts/x.yaml:1:10: the character"),
            (b"#" * 1_000_001, "larger than 1,000,000 bytes"),
            (b"focus: [a]\nfoucs: b\n", "did you mean `focus`?"),
        ],
    )
    def test_a_malformed_file_is_refused_by_its_name(self, folder: Path, text: bytes, words: str) -> None:
        (folder / "x.yaml").write_bytes(text)
        told = refusal("x", folder=folder)
        assert told.startswith("experts/x.yaml")
        assert words in told

    def test_a_byte_order_mark_does_no_harm(self, folder: Path) -> None:
        (folder / "x.yaml").write_bytes(b"\xef\xbb\xbffocus: [a]\r\n")
        assert load_experts(["x"], folder=folder)[0].focus == ("a",)

    def test_a_symbolic_link_is_not_followed(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "outside.yaml").write_text("focus: [a]\n")
        (folder / "x.yaml").symlink_to(tmp_path / "outside.yaml")
        assert "a symbolic link, which is not followed" in refusal("x", folder=folder)

    def test_what_is_no_plain_file_is_refused_at_once(self, folder: Path) -> None:
        os.mkfifo(folder / "pipe.yaml")
        (folder / "place.yaml").mkdir()
        assert "not a regular file" in refusal("pipe", folder=folder)
        assert "experts/place.yaml" in refusal("place", folder=folder)

    def test_the_name_of_a_folder_cannot_act_on_a_terminal(self, tmp_path: Path) -> None:
        hostile = tmp_path / "\x1b[2J"
        hostile.mkdir()
        (hostile / "x.yaml").write_text("focus: [")
        assert refusal("x", folder=hostile).isprintable()

    def test_a_file_of_the_working_directory_is_named_alone(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "x.yaml").write_text("focus: [")
        monkeypatch.chdir(folder)
        assert refusal("x", folder=Path()).startswith("x.yaml:")

    def test_a_folder_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert "cannot be read: no such file or directory" in refusal("security", folder=tmp_path / "none")
        assert "cannot be read: not a directory" in refusal("security", folder=tmp_path / "file")

    @each("text", [b"[" * 60_000, b"%TAG !a! b\n" * 5_000, b"? " * 30_000, b"a: &b " * 9_000])
    def test_hostile_yaml_is_refused(self, folder: Path, text: bytes) -> None:
        (folder / "x.yaml").write_bytes(text)
        assert "x.yaml" in refusal("x", folder=folder)
