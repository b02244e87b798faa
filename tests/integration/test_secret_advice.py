"""What is advised for a secret fits how far it has got: uncommitted, staged, committed or pushed."""

from pathlib import Path

import pytest

from tests.repository import GitRepository
from tests.warm_program import codeloupe

KEY = 'KEY = "AKIA' + "Z7Q4M2X9B5N8C3V1" + '"\n'


def advice(project: GitRepository, *words: str) -> tuple[str, str, str]:
    ended = codeloupe("review", "--reviewer", "offline", "--format", "json", "-q", *words, cwd=project.path)
    (row,) = [row for row in ended.json()["findings"] if row["rule"] == "aws-access-key" and row["status"] != "fixed"]
    return row["title"], row["body"], row["suggestion"]


@pytest.mark.defect("U3")
def test_the_advice_fits_the_moment(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit_files({"base.py": "x = 1\n"}, "first")
    repository.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    repository.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    repository.git("push", "-q", "origin", "main")
    repository.checkout("feature", new=True)
    seen = {}
    repository.write("settings.py", KEY)
    seen["untracked"] = advice(repository)
    seen["uncommitted"] = advice(repository, "--uncommitted")
    repository.git("add", "settings.py")
    seen["staged"] = advice(repository, "--staged")
    sha = repository.commit("key")
    seen["branch"] = advice(repository)
    seen["commit"] = advice(repository, "--commit", sha)
    seen["range"] = advice(repository, "main...HEAD")
    repository.git("push", "-q", "origin", "feature")
    seen["pushed"] = advice(repository, "--commit", sha)
    repository.commit_files({"settings.py": "# new\n" + KEY}, "more")
    seen["pushed before"] = advice(repository, "main...HEAD")

    assert {title for title, _, _ in seen.values()} == {"AWS access key in the code"}
    expected = {
        "untracked": ("not committed yet", "before you commit"),
        "uncommitted": ("not committed yet", "before you commit"),
        "staged": ("is staged", "stage the file again"),
        "branch": ("has not been pushed", "before you push"),
        "commit": ("has not been pushed", "before you push"),
        "range": ("has not been pushed", "before you push"),
        "pushed": ("has been pushed", "Revoke it"),
        "pushed before": ("has been pushed", "Revoke it"),
    }
    wrong = {
        name: seen[name]
        for name, (state, first) in expected.items()
        if state not in seen[name][1] or first not in seen[name][2]
    }
    assert wrong == {}
    assert all("history" not in seen[name][2] for name in ("untracked", "uncommitted", "staged"))
