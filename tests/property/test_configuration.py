"""Whatever a file or a variable holds: what was asked for comes out, or one ConfigError in printable words."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from codeloupe.config.files import read_config_file
from codeloupe.config.loading import load_settings
from codeloupe.config.schema import json_schema
from codeloupe.config.yaml import plain, read_document
from codeloupe.errors import ConfigError
from codeloupe.pipelines.definition import load_pipeline, pipeline_schema
from codeloupe.planning.experts import load_experts
from codeloupe.store.baseline import decode_baseline, edited
from tests.kept import broken_by_kept_inputs

# The first line of an input says what it is.
_KINDS = (b"#pipeline", b"#expert", b"#baseline", b"#environment")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that a pipeline names."""
    place = tmp_path_factory.mktemp("files")
    for name in ("step.md", "agent.md"):
        (place / name).write_text("Do it.\n")
    return place


def test_every_kept_input_is_loaded_or_refused_in_words(folder: Path) -> None:
    assert broken_by_kept_inputs("configuration", lambda data: _is_loaded(folder, data)) == {}


def _is_loaded(folder: Path, data: bytes) -> bool:
    """Whether it is taken; what is taken has to fit its schema, and a refusal has to be in words."""
    kind = next((kind for kind in _KINDS if data.startswith(kind)), b"#settings")
    try:
        loaded = _loaded(folder, kind, data)
    except ConfigError as refusal:
        _check_words(refusal.message, refusal.hint)
        return False
    if kind == b"#pipeline":
        assert _fits("pipeline", data, levels=24), "the loader takes a pipeline that the schema refuses"
    if kind == b"#settings":
        assert _fits("settings", data, levels=8), "the loader takes settings that the schema refuses"
    if kind == b"#baseline":
        _check_baseline(loaded.text, loaded.baseline)
    return True


def _check_words(message: str, hint: str) -> None:
    assert message.replace("\n", "").isprintable()
    assert hint
    assert hint.isprintable()
    assert len(message) < 20_000


def _loaded(folder: Path, kind: bytes, data: bytes) -> Any:
    file = folder / "own.yaml"
    file.write_bytes(data)
    match kind:
        case b"#pipeline":
            return load_pipeline(file)
        case b"#expert":
            (expert,) = load_experts(("own",), folder=folder)
            assert expert.focus
            return expert
        case b"#baseline":
            return decode_baseline("known.yaml", data)
        case b"#environment":
            rows = [row.split("=", 1) for row in data.decode("utf-8", "surrogateescape").split("\n") if "=" in row]
            environment = {name: value for name, value in rows if "\0" not in value}
            return load_settings(repository_file=None, user_file=None, environment=environment, flags={})
        case _:
            text = read_config_file(file, name="codeloupe.yaml", follow_symlinks=False)
            load_settings(repository_file=text, user_file=None, environment={}, flags={})
            return load_settings(repository_file=None, user_file=file, environment={}, flags={})


def _check_baseline(text: str, baseline: Any) -> None:
    keys = [entry.key for entry in baseline.entries]
    assert len(set(keys)) == len(keys)
    for gone in (keys[:1], []):
        again = decode_baseline("known.yaml", edited(text, baseline, remove=gone).encode()).baseline
        assert [entry.key for entry in again.entries] == keys[len(gone) :]


def _fits(kind: str, data: bytes, *, levels: int) -> bool:
    try:
        document = plain(read_document("x", data.decode(), deepest_level=levels))
    except (ConfigError, ValueError):  # the loader may allow other levels
        return True
    return bool(_validator(kind).is_valid(document))


@cache
def _validator(kind: str) -> Any:
    return jsonschema.Draft202012Validator(pipeline_schema() if kind == "pipeline" else json_schema())


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
            "gates": [{"command": "make test"}, {"kind": "review", "fail_on": "high", "experts": ["x"]}, "approval"],
        },
    ],
}
KEYS = ["name", "step", "needs", "kind", "command", "gate", "gates", "timeout", "min_score", "prompt", "x", "", "agent"]
WORDS = (
    *("", " ", "a", "b", "critic", "command", "review", "30m", "1h5s", "9", "codex", "step.md", ".", "\0", "\ud7ff"),
    "x\n",
)
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


def test_the_document_that_is_changed_is_valid(folder: Path) -> None:
    assert _validator("pipeline").is_valid(VALID)
    assert _is_loaded(folder, b"#pipeline\n" + json.dumps(VALID).encode())


@given(documents())
@example({**VALID, "stages": []})
@example({**VALID, "stages": [{"name": "a", "step": "step.md"}, {"name": [], "step": {}, "needs": ["a"]}]})
@example({**VALID, "stages": [{"name": "a\n", "step": "step.md"}]})
def test_a_pipeline_that_the_schema_refuses_the_loader_refuses(folder: Path, document: Any) -> None:
    _is_loaded(folder, b"#pipeline\n" + yaml.safe_dump(document, allow_unicode=True).encode())


@given(st.text(max_size=60) | st.text(alphabet="namestg: -[]{}&*!|>'\"\n\t#,?%", max_size=60))
def test_any_text_is_no_pipeline_and_refused_in_words(folder: Path, text: str) -> None:
    assert not _is_loaded(folder, b"#pipeline\n" + text.encode("utf-8", "surrogatepass"))


_EXPERT_KEYS = ("description", "brief", "focus", "sceptical_of", "do_not_flag", "paths", "severity_guide")
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_anything = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_scalars, inner, max_size=4), max_leaves=8
)
_definitions = st.dictionaries(st.sampled_from(_EXPERT_KEYS) | st.text(max_size=5), _anything, max_size=4)
_signs = st.sampled_from((b"focus", b": ", b"\n", b"- ", b"[", b"]", b"&a ", b"*a", b"!x ", b"'", b"\xff", b"#"))


@given(
    st.binary(max_size=60)
    | st.lists(_signs).map(b"".join)
    | _definitions.map(lambda one: yaml.safe_dump(one, allow_unicode=True).encode())
)
def test_any_file_is_an_expert_or_refused_in_words(folder: Path, data: bytes) -> None:
    _is_loaded(folder, b"#expert\n" + data)
