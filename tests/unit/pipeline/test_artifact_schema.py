from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import ArtifactError
from codeloupe.model.pipeline_definition import ArtifactRule
from codeloupe.pipeline.artifact_schema import MOST_CHECKED_BYTES, check_schemas
from tests.stage_workspaces import fill, sparse

SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "tags": {"type": "array", "uniqueItems": True}},
    "required": ["title"],
}


def check(work: Path, name: str, content: str | bytes, schema: dict[str, Any] | None = None) -> None:
    fill(work, {name: content})
    check_schemas(work, (name,), ArtifactRule(schemas={"*": schema or SCHEMA}), stage="write")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"title": "x", "tags": [1, "1", true]}'),
        ("a.json", b'\xef\xbb\xbf{"title": "x"}'),
        ("a.yaml", "title: x\ntags: [1, 2]\n"),
        ("a.yml", "title: '2024-01-01'\n"),
    ],
)
def test_what_fits_is_taken(tmp_path: Path, name: str, content: str | bytes) -> None:
    check(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", '{"title": 7}', "at $.title: 7 is not of type 'string'"),
        ("a.json", "{}", "at $: 'title' is a required property"),
        ("a.json", '{"title": "x", "tags": [{"a": 1}, {"a": 1.0}]}', "items occur in it more than once"),
        ("a.json", '{"title": ', "it is no JSON: line 1"),
        ("a.json", "", "it is no JSON: line 1"),
        ("a.json", '{"title": NaN}', "NaN is no value of JSON"),
        ("a.json", b'{"title": "\xff"}', "it is not UTF-8: byte 12 cannot be decoded"),
        ("a.json", "[" * 100_000, "nested more than 100 levels deep"),
        ("a.json", "[" * 200 + "]" * 200, "nested more than 100 levels deep"),
        ("a.json", '{"title": ' + "9" * 5000 + "}", "it is no JSON|Exceeds the limit"),
        ("a.yaml", "title: [", "it cannot be read as YAML"),
        ("a.yaml", "title: 7\n", "at $.title: 7 is not of type"),
        ("a.yaml", "title: !!python/object:os.system x\n", "the tag"),
        ("a.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" + "d: [*c, *c, *c, *c]\n", "required property"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    with pytest.raises(ArtifactError, match=f"{name} of the stage write is not as its schema asks: ") as caught:
        check(tmp_path, name, content)
    assert any(word in caught.value.message for word in words.split("|")), caught.value.message
    assert caught.value.stage == "write"


def test_only_artifacts_that_a_schema_names_are_checked(tmp_path: Path) -> None:
    fill(tmp_path, {"a.json": "{}", "b.json": '{"title": "x"}', "sub/b.json": "{}"})
    rule = ArtifactRule(schemas={"b.json": SCHEMA})
    check_schemas(tmp_path, ("a.json", "b.json", "sub/b.json"), rule, stage="write")
    with pytest.raises(ArtifactError, match="sub/b.json"):
        check_schemas(
            tmp_path, ("sub/b.json",), ArtifactRule(schemas={"b.json": SCHEMA}, recursive=True), stage="write"
        )


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    sparse(tmp_path / "a.json", 40 * 1024**3)
    with pytest.raises(ArtifactError, match=f"larger than {MOST_CHECKED_BYTES:,} bytes"):
        check_schemas(tmp_path, ("a.json",), ArtifactRule(schemas={"*": SCHEMA}), stage="write")


def test_a_bomb_of_aliases_is_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 20)]
    with pytest.raises(ArtifactError, match="cannot be read as YAML"):
        check(tmp_path, "a.yaml", "\n".join(rows))


def test_nothing_that_a_schema_names_is_fetched(tmp_path: Path) -> None:
    for reference in ("http://127.0.0.1:9/schema.json", "file:///etc/hosts", "#/nowhere"):
        with pytest.raises(ArtifactError, match="refers to what is not in it"):
            check(tmp_path, "a.json", "{}", {"$ref": reference})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "nothing"}, "the schema is none: at"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "refers to itself without end"),
    ],
)
def test_a_schema_that_is_none_is_told(tmp_path: Path, schema: dict[str, Any], words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        check(tmp_path, "a.json", "{}", schema)


def test_of_very_many_wrong_items_twenty_are_looked_at(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"at \$\[19\]: 1 is not of type"):
        check(tmp_path, "a.json", json.dumps([1] * 100_000), {"items": {"type": "string"}})


def test_the_validator_loads_only_when_there_is_a_schema() -> None:
    code = "import sys, codeloupe.pipeline.stage_execution; print({'jsonschema', 'yaml'} & sys.modules.keys())"
    ended = subprocess.run((sys.executable, "-I", "-c", code), capture_output=True, check=True)
    assert ended.stdout == b"set()\n"
