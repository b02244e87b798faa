"""Whatever stands in a pipeline's file: the loader ends in words, and what the schema refuses it refuses."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from codeloupe.config.yaml import plain, read_document
from codeloupe.errors import ConfigError
from codeloupe.pipelines.definition import load_pipeline, pipeline_schema
from tests.pipeline_files import write_pipeline

VALIDATOR = jsonschema.Draft202012Validator(pipeline_schema())
VALID: dict[str, Any] = {
    "name": "whole",
    "description": "words",
    "inputs": {"topic": {"description": "what", "default": "x"}, "tone": None},
    "workspace": "directory",
    "max_parallel": 2,
    "max_budget_usd": 3.5,
    "defaults": {"agent": "codex", "timeout": "30m", "tools": ["Read"], "gate": {"max_attempts": 2}},
    "stages": [
        {"name": "a", "step": "step.md", "gate": "critic", "budget": 1, "output_schema": {"type": "object"}},
        {
            "name": "b",
            "step": "step.md",
            "needs": ["a"],
            "inputs": "topic",
            "artifacts": {"patterns": ["*.md"], "required": "x.md", "schemas": {"x.json": {}}},
            "gates": [
                {"command": "make test"},
                {"kind": "review", "fail_on": "high", "experts": ["tests"]},
                "approval",
            ],
        },
    ],
}
KEYS = ["name", "step", "needs", "kind", "command", "gate", "gates", "timeout", "min_score", "prompt", "x", "", "agent"]
WORDS = [
    "",
    " ",
    "a",
    "b",
    "critic",
    "command",
    "review",
    "30m",
    "1h5s",
    "9",
    "codex",
    "step.md",
    ".",
    "\0",
    "\ud7ff",
    "x\n",
]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 200)
    | st.sampled_from([0.5, 1e9, 1e300, 10**400, float("inf")])
    | st.sampled_from(WORDS)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """The valid document with one to three things changed, taken away or put in."""
    document: Any = copy.deepcopy(VALID)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(document)[1:] or [()]))
        if not path:
            return draw(VALUES)
        around = document
        for step in path[:-1]:
            around = around[step]
        match draw(st.sampled_from(["change", "remove", "add"])):
            case "change":
                around[path[-1]] = draw(VALUES)
            case "remove":
                del around[path[-1]]
            case _ if isinstance(around, dict):
                around[draw(st.sampled_from(KEYS) | st.text(max_size=5))] = draw(VALUES)
            case _:
                around.append(draw(VALUES))
    return document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipeline")


def is_loaded(folder: Path, text: str) -> bool:
    try:
        load_pipeline(write_pipeline(folder, text))
    except ConfigError:
        return False
    return True


def test_the_document_that_is_changed_is_valid(folder: Path) -> None:
    assert VALIDATOR.is_valid(VALID)
    assert is_loaded(folder, json.dumps(VALID))


@given(documents())
@example({**VALID, "stages": []})
@example({**VALID, "stages": [{"name": "a", "step": "step.md"}, {"name": [], "step": {}, "needs": ["a"]}]})
@example({**VALID, "stages": [{"name": "a\n", "step": "step.md"}]})
def test_what_the_schema_refuses_the_loader_refuses(folder: Path, document: Any) -> None:
    text = yaml.safe_dump(document, allow_unicode=True)
    loaded = is_loaded(folder, text)
    # What YAML makes of the text is what both judge.
    if loaded:
        VALIDATOR.validate(plain(read_document("pipeline.yaml", text, deepest_level=24)))


@given(st.text(max_size=60) | st.text(alphabet="namestg: -[]{}&*!|>'\"\n\t#,?%", max_size=60))
def test_any_text_is_loaded_or_refused_in_words(folder: Path, text: str) -> None:
    assert not is_loaded(folder, text)
