"""The verbs around `review`, as a newcomer meets them."""

import shutil
import subprocess
from pathlib import Path

from codeloupe import __version__
from codeloupe.cli.main import VERBS
from tests.program import codeloupe
from tests.repository import GitRepository
from tests.rows import each
from tests.warm_program import codeloupe as warm_codeloupe


def test_the_demo_finds_the_faults_of_every_language_and_succeeds(tmp_path: Path) -> None:
    ended = codeloupe("demo", cwd=tmp_path)
    assert ended.exit_code == 0, ended.stderr
    for name in ("api/client.go", "deploy/release.sh", "shop/orders.py", "web/cart.js"):
        assert name in ended.stdout
    assert "FAIL" in ended.stdout
    assert "codeloupe review" in ended.stdout
    assert list(tmp_path.iterdir()) == []
    # The key in it is never shown whole.
    assert "AKIA" in ended.stdout
    assert "AKIA" + "QX7ZP3LMN5" not in ended.stdout
    ended = codeloupe("demo", "--svg", "no/such/folder/demo.svg", cwd=tmp_path)
    assert ended.exit_code == 2
    assert ended.stderr.startswith("codeloupe: cannot write the result to no/such/folder/demo.svg: ")


def test_doctor_names_everything_and_how_to_get_what_is_missing(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    ended = codeloupe("doctor", cwd=repository.path)
    assert ended.exit_code == 0, ended
    for name in ("git", "ruff", "ast-grep", "detect-secrets", "claude", "codex", "gemini", "agent_sdk"):
        assert name in ended.stdout
    assert "A review here would be: offline" in ended.stdout
    assert "base branch main" in ended.stdout
    assert "without a model" in ended.stdout
    assert "ready for `codeloupe publish github`" in ended.stdout


@each("columns", [60, 120])
def test_what_doctor_says_stays_within_the_terminal(tmp_path: Path, columns: int) -> None:
    shown = warm_codeloupe("doctor", cwd=tmp_path, environment={"COLUMNS": str(columns)}).stdout
    assert "to use it: " in shown
    # What has no space cannot be broken.
    assert [line for line in shown.splitlines() if len(line) > columns and " " in line.strip()[-40:]] == []


def test_doctor_speaks_json_and_tells_when_git_is_missing(tmp_path: Path) -> None:
    ended = warm_codeloupe("doctor", "--json", cwd=tmp_path, environment={"PATH": str(tmp_path)})
    assert ended.exit_code == 3
    document = ended.json()
    assert document["healthy"] is False
    (git,) = [check for check in document["checks"] if check["name"] == "git"]
    assert git["ok"] is False
    assert "install git" in git["hint"]


def test_doctor_needs_the_agent_that_is_asked_for_by_name(tmp_path: Path) -> None:
    asked = {"CODELOUPE_REVIEWER_TYPE": "codex", "CODELOUPE_CODEX_PATH": "/nowhere/codex"}
    ended = warm_codeloupe("doctor", cwd=tmp_path, environment=asked)
    assert ended.exit_code == 3
    assert "to fix it: npm install -g @openai/codex" in ended.stdout
    assert "Something that a review needs is missing" in ended.stdout
    both = warm_codeloupe("doctor", "--json", cwd=tmp_path, environment={"CODELOUPE_REVIEWERS": "offline,codex"})
    assert both.json()["reviewer"]["type"] == "offline+codex"


def test_doctor_tells_where_things_are_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    good = warm_codeloupe("doctor", cwd=tmp_path, environment={"CODELOUPE_HOME": str(tmp_path / "a" / "b")})
    assert f"state           {tmp_path / 'a' / 'b'}" in good.stdout
    assert not (tmp_path / "a").exists()
    bad = warm_codeloupe("doctor", cwd=tmp_path, environment={"CODELOUPE_HOME": str(tmp_path / "file" / "b")})
    assert "cannot write to" in " ".join(bad.stdout.split())
    assert "set CODELOUPE_HOME to a writable directory" in " ".join(bad.stdout.split())


def test_the_help_lists_every_verb_each_has_help_of_its_own_and_the_version_is_said(tmp_path: Path) -> None:
    listed = codeloupe("--help", cwd=tmp_path).stdout
    for name, purpose in VERBS.items():
        assert f"{name} " in listed
        assert purpose in listed
        assert warm_codeloupe(name, "--help", cwd=tmp_path).exit_code == 0
    assert codeloupe(cwd=tmp_path).stdout == listed
    for words in (["version"], ["--version"]):
        assert codeloupe(*words, cwd=tmp_path).stdout == f"codeloupe {__version__}\n"


def test_the_bash_completion_completes_options_and_other_shells_get_a_script_too(tmp_path: Path) -> None:
    script = tmp_path / "completion.sh"
    script.write_text(codeloupe("completion", "bash", cwd=tmp_path).stdout)
    bash = shutil.which("bash")
    assert bash
    ask = (
        f"source {script}; COMP_WORDS=(codeloupe review --sta); COMP_CWORD=2; "
        "$(complete -p codeloupe | sed 's/.*-F \\([^ ]*\\).*/\\1/') codeloupe; echo ${COMPREPLY[@]}"
    )
    completed = subprocess.run([bash, "-c", ask], capture_output=True, text=True, check=True)
    assert "--staged" in completed.stdout
    for shell in ("zsh", "tcsh"):
        assert "codeloupe" in codeloupe("completion", shell, cwd=tmp_path).stdout


def test_config_init_writes_a_file_that_review_accepts(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    assert codeloupe("config", "init", cwd=repository.path).exit_code == 0
    assert codeloupe("config", "validate", cwd=repository.path).exit_code == 0
    assert codeloupe("review", "-q", cwd=repository.path).exit_code == 0
    assert "fail_on" in codeloupe("config", "show", cwd=repository.path).stdout
    assert codeloupe("config", "schema", cwd=repository.path).json()["additionalProperties"] is False
