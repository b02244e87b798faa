"""The settings that are groups of keys, with their own lines in a file and their own mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.config.provenance import Origin, OriginKind
from codeloupe.config.schema import Settings
from codeloupe.engine.experts import load_experts
from codeloupe.model.material import PathInstruction
from codeloupe.model.sweep import CommitCategory
from tests.unit.config.inputs import load, refusal

EXPERTS = """\
experts: [payments]
own_experts:
  payments:
    description: Where money moves.
    brief: money
    focus: [rounding, currency]
    sceptical_of:
      - amounts as floats
    do_not_flag: names
    paths: ["pay/**"]
    severity_guide: {critical: money is lost, low: a report is ugly}
"""
INSTRUCTIONS = """\
instructions:
  - paths: ["api/**", "*.proto"]
    text: |
      Every field keeps its number.
      Nothing is removed.
"""


def test_an_expert_of_ones_own_is_read_whole() -> None:
    loaded = load(EXPERTS)
    assert loaded.settings.own_experts == {
        "payments": {
            "description": "Where money moves.",
            "brief": "money",
            "focus": ("rounding", "currency"),
            "sceptical_of": ("amounts as floats",),
            "do_not_flag": ("names",),
            "paths": ("pay/**",),
            "severity_guide": {"critical": "money is lost", "low": "a report is ugly"},
        }
    }
    assert loaded.origins["own_experts"] == Origin(OriginKind.REPOSITORY, "codeloupe.yaml", 2)


def test_an_expert_needs_a_focus_and_nothing_else() -> None:
    assert load("own_experts: {tiny: {focus: [x]}}").settings.own_experts == {"tiny": {"focus": ("x",)}}


def test_what_is_read_is_what_the_experts_are_made_of() -> None:
    settings = load(EXPERTS).settings
    (expert,) = load_experts(settings.experts, own=settings.own_experts)
    assert (expert.name, expert.focus, expert.do_not_flag) == ("payments", ("rounding", "currency"), ("names",))


def test_experts_cannot_be_changed_afterwards() -> None:
    settings = load(EXPERTS).settings
    with pytest.raises(TypeError):
        settings.own_experts["more"] = settings.own_experts["payments"]  # type: ignore[index]  # refused: the test
    with pytest.raises(TypeError):
        settings.own_experts["payments"]["focus"] = ()  # type: ignore[index]  # as above
    with pytest.raises(TypeError):
        settings.own_experts["payments"]["severity_guide"]["low"] = "x"


def test_experts_of_commits_are_read_by_category_and_cannot_be_changed() -> None:
    settings = load("commit_experts:\n  bug_fix: [reliability, tests]\n  other: [mine]\n").settings
    assert settings.commit_experts == {"bug_fix": ("reliability", "tests"), "other": ("mine",)}
    with pytest.raises(TypeError):
        settings.commit_experts["chore"] = ()  # type: ignore[index]  # refused: the test
    assert Settings(commit_experts={CommitCategory.CHORE: ("x",)}).commit_experts == {"chore": ("x",)}


def test_instructions_are_read_with_their_paths() -> None:
    text = "Every field keeps its number.\nNothing is removed.\n"
    assert load(INSTRUCTIONS).settings.instructions == (PathInstruction(("api/**", "*.proto"), text),)


def test_the_repository_takes_the_place_of_the_users_experts(tmp_path: Path) -> None:
    user_file = tmp_path / "config.yaml"
    user_file.write_text("own_experts: {mine: {focus: [x]}}\n", encoding="utf-8")
    assert list(load(EXPERTS, user_file=user_file).settings.own_experts) == ["payments"]
    assert list(load("fail_on: low", user_file=user_file).settings.own_experts) == ["mine"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "own_experts:\n  a:\n    focus: [x]\n    focsu: [x]",
            "codeloupe.yaml:4: own_experts.a.focsu: unknown key",
            "did you mean `focus`?",
        ),
        ("own_experts:\n  a: {focus: [x], zzz: 1}", "codeloupe.yaml:2: own_experts.a.zzz: unknown key", "the keys are"),
        ("own_experts:\n  a:\n    paths: [x]", "codeloupe.yaml:2: own_experts.a: `focus` is missing", "`codeloupe"),
        (
            "own_experts:\n  a: 5",
            (
                "codeloupe.yaml:2: own_experts.a: expected a group with focus, and perhaps description, brief, "
                "sceptical_of, do_not_flag, paths and severity_guide, found '5'"
            ),
            "`codeloupe",
        ),
        (
            "own_experts:\n  a:\n    focus: []",
            "codeloupe.yaml:3: own_experts.a.focus: expected a list of texts, at least one, found an empty list",
            "`codeloupe",
        ),
        (
            "own_experts:\n  a:\n    focus:\n      - x\n      - 5",
            "codeloupe.yaml:5: own_experts.a.focus: entry 2: expected a text of at most 400 characters, found '5'",
            "put it in quotes",
        ),
        (
            "own_experts:\n  a:\n    focus: [x]\n    severity_guide:\n      hihg: x",
            "codeloupe.yaml:5: own_experts.a.severity_guide.hihg: unknown key",
            "did you mean `high`?",
        ),
        (
            "own_experts:\n  Big Name: {focus: [x]}",
            (
                "codeloupe.yaml:2: own_experts.'Big Name': expected a name of letters, digits, - and _, such as "
                "payments, found 'Big Name'"
            ),
            "`codeloupe",
        ),
        (
            "own_experts:\n  default: {focus: [x]}",
            "codeloupe.yaml:2: own_experts.default: `default` means the experts of an ordinary review",
            "`codeloupe",
        ),
        (
            "own_experts:\n  a: {focus: " + "x" * 401 + "}",
            "codeloupe.yaml:2: own_experts.a.focus: entry 1: expected a text of at most 400 characters",
            "`codeloupe",
        ),
        ("own_experts: [a]", "codeloupe.yaml:1: own_experts: expected experts by name", "the default is {}"),
        (
            "commit_experts:\n  bugfix: [x]",
            "codeloupe.yaml:2: commit_experts.bugfix: unknown key",
            "did you mean `bug_fix`?",
        ),
        (
            "commit_experts:\n  chore: []",
            "codeloupe.yaml:2: commit_experts.chore: expected a list of names of experts, at least one",
            "`codeloupe",
        ),
        (
            "commit_experts:\n  chore: [a, b c]",
            "codeloupe.yaml:2: commit_experts.chore: entry 2: expected a name of letters, digits, - and _",
            "`codeloupe",
        ),
        ("commit_experts: [a]", "codeloupe.yaml:1: commit_experts: expected lists of names of", "the default is {}"),
        ("instructions:\n  - text: x", "codeloupe.yaml:2: instructions: entry 1: `paths` is missing", "`codeloupe"),
        (
            "instructions:\n  - {paths: [a], text: x}\n  - paths: a\n    text: x",
            "codeloupe.yaml:3: instructions: entry 2: paths: expected a list of patterns, at least one, found 'a'",
            "`codeloupe",
        ),
        (
            "instructions:\n  - {path: [a], text: x, paths: [b]}",
            "codeloupe.yaml:2: instructions: entry 1: path: unknown key",
            "did you mean `paths`?",
        ),
        ("instructions: x", "codeloupe.yaml:1: instructions: expected a list of groups", "the default is []"),
    ],
)
def test_a_mistake_inside_a_group_is_named_with_its_own_line(text: str, message: str, hint: str) -> None:
    error = refusal(text)
    assert error.message.startswith(message)
    assert error.hint.startswith(hint)


def test_all_mistakes_of_a_group_are_told_at_once() -> None:
    error = refusal("own_experts:\n  a: {focsu: [x], paths: [1]}\n  b: 5\n")
    assert [row.split(": ")[:2] for row in error.message.splitlines()[1:]] == [
        ["  codeloupe.yaml:2", "own_experts.a.focsu"],
        ["  codeloupe.yaml:2", "own_experts.a"],
        ["  codeloupe.yaml:2", "own_experts.a.paths"],
        ["  codeloupe.yaml:3", "own_experts.b"],
    ]


def test_a_key_that_stands_twice_in_a_group_is_refused() -> None:
    error = refusal("own_experts:\n  a: {focus: [x]}\n  b: {focus: [x]}\n  a: {focus: [y]}\n")
    assert error.message == "codeloupe.yaml:4: a: already given on line 2"
    assert "text: already given" in refusal("instructions: [{paths: [a], text: x, text: y}]").message


@pytest.mark.parametrize("key", ["own_experts", "commit_experts", "instructions"])
def test_a_group_cannot_be_a_variable_or_a_flag(key: str) -> None:
    name = f"CODELOUPE_{key.upper()}"
    error = refusal(environment={name: "{}"})
    assert error.message.startswith(f"{name}: expected ")
    assert error.hint == "set it in a configuration file"
    assert refusal(flags={key: "x"}).hint == "set it in a configuration file"


def test_there_is_an_end_to_experts_keys_and_entries() -> None:
    many = "own_experts:\n" + "".join(f"  e{number}: {{focus: [x]}}\n" for number in range(51))
    assert refusal(many).message == "codeloupe.yaml:1: own_experts: more than 50 experts"
    keys = "own_experts:\n  a:\n" + "".join(f"    k{number}: x\n" for number in range(101))
    assert refusal(keys).message == "codeloupe.yaml:2: own_experts.a: more than 100 keys"
    entries = "include: [" + "a, " * 1001 + "]"
    focus = "own_experts:\n  a:\n    focus: [" + "a, " * 41 + "]"
    assert refusal(focus).message == "codeloupe.yaml:3: own_experts.a.focus: more than 40 entries"
    assert refusal(entries).message == "codeloupe.yaml:1: include: more than 1,000 entries"


def test_of_thousands_of_mistakes_twenty_are_told_and_the_others_counted() -> None:
    group = ", ".join(f"k{number}: x" for number in range(95))
    in_groups = refusal("instructions:\n" + f"  - {{{group}}}\n" * 50).message.splitlines()
    assert (in_groups[0], in_groups[-1]) == ("the configuration has 4,850 mistakes:", "  and 4,830 more")
    at_the_top = refusal("".join(f"fail_onn{number}: 1\n" for number in range(1_000))).message.splitlines()
    assert (at_the_top[0], at_the_top[-1]) == ("the configuration has 1,000 mistakes:", "  and 980 more")
    assert len(in_groups) == len(at_the_top) == 22
