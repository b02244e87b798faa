import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import ConfigError
from codeloupe.model.change import Expert
from codeloupe.model.finding import Severity
from codeloupe.planning.experts import BUILT_IN, DEFAULT, load_experts
from codeloupe.planning.units import globs_of, tokens_of
from codeloupe.reviewers.prompt import checklist
from tests.rows import each


def for_file(path: str) -> tuple[Expert, ...]:
    return tuple(expert for expert in load_experts([DEFAULT]) if globs_of(expert).unwanted(path) is None)


def names(experts: tuple[Expert, ...]) -> set[str]:
    return {expert.name for expert in experts}


@each("name", BUILT_IN)
def test_a_built_in_expert_is_whole_and_short(name: str) -> None:
    (expert,) = load_experts([name])
    assert (expert.name, bool(expert.description), bool(expert.sceptical_of)) == (name, True, True)
    assert (5 <= len(expert.focus) <= 9, bool(expert.do_not_flag)) == (True, True)
    guide = list(expert.severity_guide)
    assert guide == [severity.label for severity in Severity if severity.label in guide]
    assert tokens_of(checklist([expert])) < 330


def test_the_default_checklist_of_a_code_file_is_cheap_and_covers_the_usual_defects() -> None:
    experts = for_file("src/app.py")
    assert names(experts) == set(BUILT_IN[:6])
    text = checklist(experts)
    assert tokens_of(text) <= 225
    # Nothing of a short checklist falls to the prompt's limit on joined ones, and each is one line.
    assert all(expert.focus[0].rstrip(".;") in text for expert in experts)
    for expert in experts:
        assert len(expert.focus) == 1
        assert (expert.sceptical_of, expert.do_not_flag, dict(expert.severity_guide)) == ((), (), {})


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


SQL = {"description": "database", "focus": ("queries without an index",)}


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


@each(
    ("asked", "meant"),
    [("secruity", "security"), ("Api-Compatibility", "api_compatibility"), ("test", "tests"), ("sq", "sql")],
)
def test_an_unknown_name_is_refused_with_the_one_that_is_meant_and_all_others(asked: str, meant: str) -> None:
    words = refusal(asked, own={"sql": SQL})
    assert f"unknown expert '{asked}'" in words
    assert f"did you mean `{meant}`?" in words
    assert "sql, correctness, security, " in words
    for name in ("../etc/passwd", "x" * 100_000, "\x1b[2J", "a\udcff"):
        words = refusal(name)
        assert ("did you mean" in words, len(words) < 500, words.isprintable()) == (False, True, True)


def test_the_configuration_beats_the_folder_and_the_folder_what_is_built_in(folder: Path) -> None:
    (folder / "security.yaml").write_text("focus: [from the folder]\n")
    (folder / "tests.yml").write_text("focus: [from the folder]\n")
    own = {"security": {"focus": ("from the configuration",)}}
    experts = load_experts(["security", "tests", "reliability", "tests"], own=own, folder=folder)
    assert [expert.focus[0] for expert in experts[:2]] == ["from the configuration", "from the folder"]
    assert (len(experts), len(experts[2].focus) > 3) == (3, True)
    # Only what is asked for is read, and one expert has one file.
    (folder / "broken.yaml").write_text("focus: [")
    assert load_experts(["general"], folder=folder) == load_experts(["general"])
    (folder / "tests.yaml").write_text("focus: [a]\n")
    assert "the expert tests has two files: tests.yaml and tests.yml" in refusal("tests", folder=folder)


def test_default_means_the_experts_of_an_ordinary_review_unless_one_is_named_or_defined_anew() -> None:
    defaults = load_experts([DEFAULT])
    assert load_experts(["sql", "default"], own={"sql": SQL}) == (*load_experts(["sql"], own={"sql": SQL}), *defaults)
    experts = load_experts(["default", "security"])
    assert load_experts(["security"])[0] in experts
    assert len(experts) == len(defaults)
    own: dict[str, dict[str, object]] = {
        "security": {"focus": ("mine", "more"), "brief": "mine in short"},
        "tests": {"focus": ("no brief", "so all of it")},
    }
    by_name = {expert.name: expert for expert in load_experts(["default"], own=own)}
    assert by_name["security"].focus == ("mine in short",)
    assert by_name["tests"].focus == ("no brief", "so all of it")


def test_a_definition_becomes_an_expert(folder: Path) -> None:
    (folder / "sql.yaml").write_text(
        "description: database\nfocus:\n  - a query   without\n    an index\n  - yes\n  - 1.10\n"
        'sceptical_of: "*"\ndo_not_flag: []\npaths: ["*.sql", "!old/"]\nseverity_guide: {low: small, high: slow}\n'
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
    # A focus is enough.
    (folder / "big_data.yaml").write_text("focus: one thing\npaths:\n")
    (expert,) = load_experts(["big_data"], folder=folder)
    assert (expert.description, expert.focus, expert.paths) == ("big data", ("one thing",), ())


@each(
    ("text", "words"),
    [
        (b"", "`focus` is missing"),
        (b"focus: [\n", "experts/x.yaml:2:1: a value is missing here"),
        (b"focus: []\n", "x.focus: expected a list of strings, at least one, found an empty list"),
        (b"focus: [" + b"a, " * 2_000 + b"]\n", "more than 40 entries"),
        (b"focus: [" + b"x" * 401 + b"]\n", "at most 400 characters"),
        (b"focus:\n" + b"- %s\n" % (b"x" * 400) * 16, "the expert x has more than 6,000 characters"),
        (b"focus: a\nseverity_guide: {awful: y}\n", "experts/x.yaml:2: x.severity_guide.awful: unknown key"),
        (b"focus: [a]\nfoucs: b\n", "did you mean `focus`?"),
    ],
)
def test_a_malformed_file_is_refused_by_its_name(folder: Path, text: bytes, words: str) -> None:
    (folder / "x.yaml").write_bytes(text)
    said = refusal("x", folder=folder)
    assert words in said
    assert said.startswith(("experts/x.yaml", "the expert x"))


def test_only_plain_files_of_a_folder_are_read_and_no_link_is_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "x.yaml").write_bytes(b"\xef\xbb\xbffocus: [a]\r\n")
    assert load_experts(["x"], folder=folder)[0].focus == ("a",)
    (folder / "link.yaml").symlink_to(folder / "x.yaml")
    assert "a symbolic link, which is not followed" in refusal("link", folder=folder)
    os.mkfifo(folder / "pipe.yaml")
    (folder / "place.yaml").mkdir()
    assert "not a regular file" in refusal("pipe", folder=folder)
    assert "experts/place.yaml" in refusal("place", folder=folder)
    assert f"cannot read the folder of experts '{tmp_path / 'none'}': no such file or directory" in refusal(
        "security", folder=tmp_path / "none"
    )
    assert f"cannot read the folder of experts '{folder / 'x.yaml'}': not a directory" in refusal(
        "security", folder=folder / "x.yaml"
    )
    (folder / "default.yaml").touch()
    assert "is not a valid name of an expert" in refusal("security", folder=folder)
    hostile = tmp_path / "\x1b[2J"
    hostile.mkdir()
    (hostile / "x.yaml").write_text("focus: [")
    assert refusal("x", folder=hostile).isprintable()
