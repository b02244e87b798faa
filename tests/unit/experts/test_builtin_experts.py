from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import codeloupe.engine.experts.loading
from codeloupe.engine.experts.loading import builtin_names, default_experts, load_experts
from codeloupe.engine.experts.reading import read_definition
from codeloupe.engine.experts.shipped import read_shipped
from codeloupe.engine.plan import ExpertChoice, tokens_of
from codeloupe.engine.prompt import checklist
from codeloupe.model.expert import Expert
from codeloupe.model.severity import Severity

HERE = Path(codeloupe.engine.experts.loading.__file__).parent
LABELS = [severity.label for severity in Severity]


def for_file(path: str) -> tuple[Expert, ...]:
    choice = ExpertChoice(default_experts())
    return choice.at(choice.matching(path))


def names(experts: tuple[Expert, ...]) -> set[str]:
    return {expert.name for expert in experts}


def test_the_names_are_those_of_the_files() -> None:
    assert sorted(builtin_names()) == sorted(path.stem for path in HERE.glob("*.yaml"))
    assert {"correctness", "security", "reliability", "performance", "concurrency", "api_compatibility"} < set(
        builtin_names()
    )
    assert {"tests", "documentation", "architecture", "code_quality", "general"} < set(builtin_names())


@pytest.mark.parametrize("name", builtin_names())
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


@pytest.mark.parametrize("name", builtin_names())
def test_a_checklist_is_no_character(name: str) -> None:
    text = (HERE / f"{name}.yaml").read_text().lower()
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


@pytest.mark.parametrize(
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
    for expert in default_experts():
        assert len(expert.focus) == 1
        assert (expert.sceptical_of, expert.do_not_flag, dict(expert.severity_guide)) == ((), (), {})


@pytest.mark.parametrize("name", builtin_names())
def test_a_built_in_file_is_read_as_a_parser_of_yaml_reads_it(name: str) -> None:
    path = HERE / f"{name}.yaml"
    assert read_shipped(path) == read_definition(path)


def test_the_experts_of_an_ordinary_review_load_no_parser() -> None:
    loading = "from codeloupe.engine.experts.loading import default_experts"
    program = f"import sys; {loading}; default_experts(); print(*sys.modules)"
    ended = subprocess.run((sys.executable, "-I", "-c", program), capture_output=True, text=True, check=True)
    assert "yaml" not in ended.stdout.split()
