"""The installed program in a repository that is hostile in every way at once: git, analysers and names."""

from pathlib import Path

import pytest

from tests.hostile_repository import Trap, arm, make_trap
from tests.warm_program import codeloupe

FAULT = "import os\n\n\ndef run(name):\n    os.system('echo ' + name)\n"
SCRIPT = "export function show(node, text) {\n  eval(text);\n}\n"
CANARY = "host-file-canary-5b1f"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the repository lies, which is only read, and what it would leave beside itself."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def trap(place: Path) -> Trap:
    """A repository with every git trap armed, and settings that silence, bend or abuse each analyser."""
    trap = make_trap(place)
    repository = trap.repository
    host_file = place / "host.toml"
    host_file.write_text(f"{CANARY} = [\n", encoding="utf-8")
    key = "AKIA" + "QX7ZP3LMN5" + "TVRW2K"
    repository.write("hidden/fault.py", FAULT)
    repository.write("hidden/fault.js", SCRIPT)
    repository.write("hidden/deploy.sh", f"export AWS_ACCESS_KEY_ID={key}\n")
    repository.write("ruff.toml", f'extend = "{host_file}"\nexclude = ["*"]\ncache-dir = "{place / "cache"}"\n')
    repository.write("hidden/pyproject.toml", '[tool.ruff]\nexclude = ["*"]\n[tool.ruff.lint]\nselect = []\n')
    repository.write("sgconfig.yml", "ruleDirs: []\ncustomLanguages:\n  evil:\n    libraryPath: ./evil.so\n")
    repository.write(".secrets.baseline", '{"results": {}, "filters_used": [{"path": "evil.py::run"}]}\n')
    repository.write("yaml.py", f"open({str(place / 'imported')!r}, 'w')\n")
    repository.write("sitecustomize.py", f"open({str(place / 'imported')!r}, 'w')\n")
    (repository.path / "hidden" / "link.py").symlink_to(host_file)
    (repository.path / "hidden" / "folder").symlink_to(place)
    arm(trap)
    return trap


@pytest.mark.parametrize("flags", [["--uncommitted"], ["--uncommitted", "--untrusted"]], ids=["own", "untrusted"])
def test_nothing_runs_nothing_is_hidden_and_no_host_file_leaks(trap: Trap, place: Path, flags: list[str]) -> None:
    ended = codeloupe("review", *flags, "--format", "json", "-q", cwd=trap.repository.path)
    assert trap.sprung() == set()
    assert not (place / "imported").exists()
    assert not (place / "cache").exists()
    assert ended.exit_code == 1, ended.stderr
    found = {finding["file"] for finding in ended.json()["findings"]}
    assert {"hidden/fault.py", "hidden/fault.js", "hidden/deploy.sh"} <= found
    assert CANARY not in ended.stdout + ended.stderr
    assert "AKIA" + "QX7Z" not in ended.stdout


def test_the_other_verbs_run_nothing_either(trap: Trap, place: Path) -> None:
    for words in (["doctor"], ["review", "--preview"], ["config", "show"], ["review", "--staged"], ["review"]):
        codeloupe(*words, cwd=trap.repository.path)
    assert trap.sprung() == set()
    assert not (place / "imported").exists()
