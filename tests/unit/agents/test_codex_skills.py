from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.agents.calls.program import throw_away_places
from codeloupe.agents.codex.flags import arguments, toml
from codeloupe.agents.codex.program import CodexSettings
from codeloupe.agents.codex.skills import skill_files
from codeloupe.errors import InvalidRequest
from tests.unit.agents.call_samples import request


def skill(folder: Path, name: str = "SKILL.md") -> Path:
    folder.mkdir(parents=True)
    file = folder / name
    file.write_text("---\nname: x\n---\n")
    return file


def found_in(folder: Path) -> set[Path]:
    return set(skill_files(folder, agent="codex"))


def test_a_directory_without_skills_has_none(tmp_path: Path) -> None:
    skill(tmp_path / "skills" / "plain")
    assert found_in(tmp_path) == set()


def test_skills_of_the_directory_and_of_all_above_are_found(tmp_path: Path) -> None:
    files = {
        skill(tmp_path / ".agents" / "skills" / "a"),
        skill(tmp_path / ".codex" / "skills" / "b" / "deep" / "er"),
        skill(tmp_path / "sub" / "dir" / ".agents" / "skills" / "c", "skill.md"),
    }
    assert found_in(tmp_path / "sub" / "dir") == files
    assert found_in(tmp_path) < files


def test_links_are_followed_and_their_ends_found_too(tmp_path: Path) -> None:
    elsewhere = skill(tmp_path / "elsewhere" / "s")
    folder = tmp_path / "work" / ".agents"
    folder.mkdir(parents=True)
    (folder / "skills").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "s" / "loop").symlink_to(tmp_path / "elsewhere")
    found = found_in(tmp_path / "work")
    assert elsewhere in found
    assert folder / "skills" / "s" / "SKILL.md" in found


def test_what_is_no_directory_holds_no_skills(tmp_path: Path) -> None:
    (tmp_path / ".agents").write_text("a file")
    (tmp_path / ".codex").symlink_to(tmp_path / "nowhere")
    assert found_in(tmp_path) == set()


def test_more_directories_than_can_be_looked_into_are_refused(tmp_path: Path) -> None:
    for number in range(4001):
        (tmp_path / ".agents" / "skills" / str(number)).mkdir(parents=True)
    with pytest.raises(InvalidRequest, match="more than 4,000 directories") as raised:
        found_in(tmp_path)
    assert ".agents" in raised.value.hint


def test_each_skill_is_turned_off_by_its_path(tmp_path: Path) -> None:
    file = skill(tmp_path / ".agents" / "skills" / 'quo"ted')
    with throw_away_places() as places:
        given = arguments(request(working_dir=tmp_path), CodexSettings(environment={"OPENAI_API_KEY": "x"}), places)
    assert f"--config=skills.config={toml([{'path': str(file), 'enabled': False}])}" in given


def test_more_skills_than_fit_into_an_argument_are_refused(tmp_path: Path) -> None:
    for number in range(900):
        skill(tmp_path / ".agents" / "skills" / f"{number}{'x' * 100}")
    settings = CodexSettings(environment={"OPENAI_API_KEY": "x"})
    with throw_away_places() as places, pytest.raises(InvalidRequest, match="there are 900"):
        arguments(request(working_dir=tmp_path), settings, places)
