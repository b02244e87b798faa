"""What docs/pipelines.md shows is true: its file is loaded, its keys are all there are, its program can be run."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import yaml

from codeloupe.pipeline.definition import load_pipeline, pipeline_schema

PROJECT = Path(__file__).parents[3]
TEXT = (PROJECT / "docs" / "pipelines.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_file_is_loaded_once_the_files_that_it_names_are_there(tmp_path: Path) -> None:
    for name in re.findall(r"(?:steps|agents|critics|schemas)/[a-z]+\.(?:md|json)", block("yaml")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}" if name.endswith(".json") else "Do it.")
    (tmp_path / "pipeline.yaml").write_text(block("yaml"))
    loaded = load_pipeline(tmp_path / "pipeline.yaml")
    assert [stage.name for stage in loaded.stages] == ["collect", "write"]
    assert len(loaded.stages[1].gates) == 3


def test_every_key_of_the_file_and_of_a_stage_is_told() -> None:
    schema = pipeline_schema()
    told = set(re.findall(r"`([a-z_]+)[`:]", TEXT)) | set(yaml.safe_load(block("yaml")))
    assert set(schema["properties"]["stages"]["items"]["properties"]) - told == set()
    assert set(schema["properties"]) - told == set()


def test_the_program_uses_only_what_there_is() -> None:
    tree = ast.parse(block("python"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
            [file] = node.args
            assert isinstance(file, ast.Constant)
            load_pipeline(PROJECT / str(file.value))


def test_links_and_examples_that_it_names_are_there() -> None:
    named = set(re.findall(r"examples/[\w./-]+\.(?:yaml|py)", TEXT))
    assert named
    assert [name for name in named if not (PROJECT / name).is_file()] == []
