"""Agent calls for a directory that cannot even be looked at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codeloupe import AgentRequest, Settings, run_agent
from codeloupe.errors import InvalidRequest
from tests.rows import each


@each("name", ["a" * 5_000, "a\0b"])
def test_a_directory_whose_name_no_system_takes_is_refused_as_every_wrong_request_is(name: str) -> None:
    request = AgentRequest(prompt="Hi", working_dir=Path(name))
    with pytest.raises(InvalidRequest, match="the working directory") as refused:
        asyncio.run(run_agent(request, settings=Settings(agents=("codex",))))
    assert refused.value.hint == "give the path of an existing directory"


def test_a_directory_that_was_removed_below_us_is_refused_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidRequest, match="the working directory '.' cannot be looked at"):
        asyncio.run(run_agent(AgentRequest(prompt="Hi", working_dir=Path()), settings=Settings(agents=("codex",))))
