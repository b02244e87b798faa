"""Whatever stands in a definition or a file: an expert comes out, or a ConfigError, and nothing else."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.engine.experts import load_experts
from codeloupe.errors import ConfigError

KEYS = ("description", "brief", "focus", "sceptical_of", "do_not_flag", "paths", "severity_guide")
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5)
_anything = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_scalars, inner, max_size=4), max_leaves=8
)
_texts = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=30)
_definitions = st.fixed_dictionaries(
    {"focus": st.lists(_texts, min_size=1, max_size=5)},
    optional={
        "description": _texts,
        "sceptical_of": st.lists(_texts, max_size=3),
        "paths": st.lists(_texts, max_size=3),
        "severity_guide": st.dictionaries(st.sampled_from(("critical", "high", "medium", "low")), _texts),
    },
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generated") / "experts"


@given(definition=st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), _anything, max_size=4))
def test_a_definition_is_an_expert_or_refused(definition: dict[str, object]) -> None:
    with contextlib.suppress(ConfigError):
        (expert,) = load_experts(["mine"], own={"mine": definition})
        texts = (expert.description, *expert.focus, *expert.sceptical_of, *expert.do_not_flag, *expert.paths)
        assert expert.focus
        assert all(text and text.isprintable() for text in texts)


@given(definition=_definitions)
def test_a_definition_is_the_same_expert_from_a_file_and_from_the_configuration(
    folder: Path, definition: dict[str, object]
) -> None:
    folder.mkdir(exist_ok=True)
    # Quoted, since a plain word of the configuration may be a number or a boolean, and is text in a file of its own.
    text = yaml.safe_dump(definition, allow_unicode=True, default_style='"')
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    assert load_experts(["mine"], folder=folder) == load_experts(["mine"], own={"mine": definition})


@given(
    data=st.binary(max_size=60)
    | st.lists(
        st.sampled_from((b"focus", b": ", b"\n", b"- ", b"[", b"]", b"&a ", b"*a", b"!x ", b"'", b"\xff", b"#"))
    ).map(b"".join)
)
def test_a_file_is_an_expert_or_refused(folder: Path, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "mine.yaml").write_bytes(data)
    with contextlib.suppress(ConfigError):
        assert load_experts(["mine"], folder=folder)[0].focus
