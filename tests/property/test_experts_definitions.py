"""Whatever a file holds: an expert comes out, or a ConfigError, and nothing else."""

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.engine.experts import load_experts
from codeloupe.errors import ConfigError

_KEYS = ("description", "brief", "focus", "sceptical_of", "do_not_flag", "paths", "severity_guide")
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_anything = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_scalars, inner, max_size=4), max_leaves=8
)
_definitions = st.dictionaries(st.sampled_from(_KEYS) | st.text(max_size=5), _anything, max_size=4)
_signs = st.sampled_from((b"focus", b": ", b"\n", b"- ", b"[", b"]", b"&a ", b"*a", b"!x ", b"'", b"\xff", b"#"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generated")


@given(
    data=st.binary(max_size=60)
    | st.lists(_signs).map(b"".join)
    | _definitions.map(lambda one: yaml.safe_dump(one, allow_unicode=True).encode())
)
def test_a_file_is_an_expert_or_refused(folder: Path, data: bytes) -> None:
    (folder / "mine.yaml").write_bytes(data)
    with contextlib.suppress(ConfigError):
        assert load_experts(["mine"], folder=folder)[0].focus
