from pathlib import Path

import pytest

from bench import lock_files
from bench.prompt_tokens import REPOSITORIES
from tests.repository import GitRepository


def test_the_row_says_how_to_measure_if_no_folder_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REPOSITORIES, raising=False)
    (row,) = lock_files.rows()
    assert row.ratio is None
    assert f"not measured: set {REPOSITORIES}" in row.measured


@pytest.mark.program
def test_changes_alarms_and_unread_files_are_counted(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = (
        "example.org/m v1.0.0 h1:a=\n",
        "example.org/m v1.0.1 h1:b=\n",
        "example.org/m v1.0.1 h1:evil=\n",
        "not a lock file\n",
    )
    for content in contents:
        repository.commit_files({"go.sum": content, "tests/go.sum": content}, "change")
    folder = tmp_path / "repositories"
    folder.mkdir()
    repository.git("clone", "--quiet", "--bare", str(repository.path), str(folder / "bare"))
    monkeypatch.setenv(REPOSITORIES, str(folder))
    by_format, total = lock_files.rows()
    assert "4 changes in 1 repositories: 1 alarms, 1 of them false or not judged, 1 files unread" in by_format.measured
    assert (total.ratio, total.ok) == (50.0, False)
    assert "the sample is too small" in total.measured
    assert "go.sum hash-changed [not judged]" in capsys.readouterr().err


@pytest.mark.program
@pytest.mark.parametrize(("is_true", "ratio"), [(True, 0.0), (False, 100.0)])
def test_only_an_alarm_that_is_judged_true_does_not_count(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_true: bool, ratio: float
) -> None:
    for content in ("example.org/m v1.0.0 h1:a=\n", "example.org/m v1.0.0 h1:b=\n"):
        repository.commit_files({"go.sum": content}, "change")
    judged = tmp_path / "judged.toml"
    verdict = (
        f'commit = "{repository.head()}", path = "go.sum", rule = "hash-changed", is_true = {str(is_true).lower()}'
    )
    judged.write_text(f'alarms = [{{ {verdict}, reason = "a tag moved" }}]\n', encoding="utf-8")
    monkeypatch.setattr(lock_files, "JUDGED", judged)
    monkeypatch.setenv(REPOSITORIES, str(repository.path.parent))
    *_, total = lock_files.rows()
    assert total.ratio == ratio


@pytest.mark.program
def test_a_moved_file_is_compared_with_its_old_content(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "--extra-index-url https://packages.example\na==1.0 --hash=sha256:a\n"
    repository.commit_files({"requirements.txt": content}, "add")
    repository.git("mv", "requirements.txt", "dev-requirements.txt")
    repository.commit("rename")
    (repository.path / "web").mkdir()
    repository.git("mv", "dev-requirements.txt", "web/dev-requirements.txt")
    repository.commit("move")
    monkeypatch.setenv(REPOSITORIES, str(repository.path.parent))
    by_format, _ = lock_files.rows()
    assert "3 changes in 1 repositories: 2 alarms" in by_format.measured
