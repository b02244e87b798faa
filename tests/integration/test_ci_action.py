"""The shell of action.yml, of the GitLab job and of the hooks, run for real as a runner would run it."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.cli.main import build_parser
from tests.ci_runner import PROJECT, ActionEnd, Runner, read_yaml
from tests.fresh_install import Install, network_variables
from tests.program import PROGRAM
from tests.pull_fork import OURS, THEIRS, github_event
from tests.repository import GitRepository

FAULTY = "def average(prices):\n    return sum(prices) / cuont(prices)\n"
SOUND = "def average(prices):\n    return sum(prices) / len(prices)\n"
SILENCED = FAULTY.rstrip() + "  # codeloupe: ignore[correctness] mine\n"
TOKEN, KEY = "ghs_" + "t0K3" * 9, "sk-ant-" + "k3Y" * 9
# Leaves its words and its variables behind, then is codeloupe itself, but for posting, which needs GitHub.
RECORDING = """#!/bin/sh
env > "{folder}/$1.env"
printf '%s\\n' "$@" > "{folder}/$1.words"
[ "$1" = publish ] || exec "{program}" "$@"
"""


class Job:
    """A job on a pull request of one branch, with the action's steps to run in it."""

    def __init__(
        self, work: GitRepository, place: Path, install: Install, *, content: str, source: dict[str, Any] = OURS
    ) -> None:
        self.place = place
        self.install = install
        place.mkdir()
        self.records = place / "records"
        self.records.mkdir()
        self.base = work.commit_files({"README.md": "a shop\n"}, "first")
        self.head = work.commit_files({"shop.py": content}, "second", branch="topic")
        self.variables = github_event(place, head=source, sha=self.head, base_sha=self.base)
        event = json.loads(Path(self.variables["GITHUB_EVENT_PATH"]).read_text())
        self.github: dict[str, Any] = {"event": event, "sha": "f" * 40}
        self.work = work

    def run(self, path: tuple[Path, ...] = (), /, **inputs: str) -> ActionEnd:
        folder = self.place / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "codeloupe"
        program.write_text(RECORDING.format(folder=self.records, program=self.install.program))
        program.chmod(0o755)
        # What a careless job has in its environment.
        secrets = {"GITHUB_TOKEN": TOKEN, "GH_TOKEN": TOKEN, "ANTHROPIC_API_KEY": KEY}
        runner = Runner(
            self.work.path, self.place / "temp", self.github, {**self.variables, **secrets}, (*path, folder)
        )
        return runner.run(**{"install": "false", **inputs})

    def record(self, verb: str, kind: str) -> str:
        return (self.records / f"{verb}.{kind}").read_text()


@pytest.fixture
def job(repository: GitRepository, tmp_path: Path, fresh_install: Install) -> Job:
    return Job(repository, tmp_path / "job", fresh_install, content=FAULTY)


def test_a_pull_request_is_reviewed_reported_and_fails_the_job(job: Job) -> None:
    ended = job.run()
    assert ended.exit_code == 1, ended.step("Review").said
    assert [step.name for step in ended.steps] == ["Install codeloupe", "Review", "Verdict"]
    folder = job.place / "temp" / "codeloupe-review"
    assert ended.outputs == {"exit-code": "1", "verdict": "FAIL", "complete": "true", "directory": str(folder)}
    assert sorted(file.name for file in folder.iterdir()) == ["review.html", "review.json", "review.md", "review.sarif"]
    report = json.loads((folder / "review.json").read_text())
    # The head of the pull request, not the commit that the runner made of it, so that it can be posted.
    assert (report["scope"]["base"], report["scope"]["head"]) == (job.base, job.head)
    assert "::error file=shop.py,line=2" in ended.step("Review").said
    assert "cuont" in ended.summary
    # Whoever reviews holds no token.
    variables = job.record("review", "env")
    assert TOKEN not in variables
    assert KEY in variables


def test_a_sound_pull_request_passes_the_job(repository: GitRepository, tmp_path: Path, fresh_install: Install) -> None:
    ended = Job(repository, tmp_path / "job", fresh_install, content=SOUND).run()
    assert (ended.exit_code, ended.outputs["verdict"]) == (0, "PASS")


def test_a_forks_pull_request_is_not_trusted_and_nothing_is_posted(
    repository: GitRepository, tmp_path: Path, fresh_install: Install
) -> None:
    job = Job(repository, tmp_path / "job", fresh_install, content=SILENCED, source=THEIRS)
    ended = job.run(comment="true", token=TOKEN)
    report = json.loads((job.place / "temp" / "codeloupe-review" / "review.json").read_text())
    assert "ignores_not_followed" in {error["kind"] for error in report["errors"]}
    assert ended.step("Post the review").said.startswith("::notice::nothing is posted")
    assert not (job.records / "publish.words").exists()
    assert ended.exit_code == 1


def test_of_an_own_branch_it_can_be_posted_in_a_step_without_the_models_key(job: Job) -> None:
    ended = job.run(comment="true", token=TOKEN)
    words = job.record("publish", "words").splitlines()
    variables = job.record("publish", "env")
    assert words == ["publish", "github", "--review", f"{ended.outputs['directory']}/review.json"]
    assert f"GITHUB_TOKEN={TOKEN}\n" in variables
    assert KEY not in variables
    assert ended.exit_code == 1


def test_to_post_is_a_job_of_its_own_too(job: Job) -> None:
    report = str(job.place / "with space" / "review.json")
    ended = job.run(command="publish", review_file=report, token=TOKEN, pull_request="https://github.com/o/s/pull/7")
    words = job.record("publish", "words").splitlines()
    assert words == ["publish", "github", "--pr", "https://github.com/o/s/pull/7", "--review", report]
    assert build_parser(["publish"]).parse_args(words).review == report
    assert [step.name for step in ended.steps] == ["Install codeloupe", "Post the review"]
    assert ended.exit_code == 0


@pytest.mark.parametrize(
    "inputs",
    [
        {"fail_on": "sometimes"},
        {"base": "no-such-branch"},
        {"formats": "sarif nonsense"},
        {"formats": "*"},
        {"options": "--no-such-option"},
        {
            "base": '"; touch pwned; "',
            "head": "`touch pwned`",
            "reviewer": "$(touch pwned)",
            "formats": "$(touch pwned) `touch pwned`",
            "options": "--experts\n$(touch pwned)",
        },
        {"base": "$(touch pwned)", "head": "; touch pwned"},
        {"pull_request": "; touch pwned", "base": "$(touch pwned)"},
    ],
)
def test_a_mistake_or_an_attack_in_an_input_is_a_usage_error_and_nothing_else(job: Job, inputs: dict[str, str]) -> None:
    ended = job.run(**inputs)
    assert (ended.exit_code, ended.outputs["exit-code"], ended.outputs["verdict"]) == (2, "2", "")
    assert [file for folder in (job.place, job.work.path) for file in folder.rglob("pwned")] == []


def test_options_and_formats_reach_the_program_word_by_word(job: Job) -> None:
    ended = job.run(
        formats="json junit markdown text gitlab-codequality",
        options="--exclude\nsome dir/**\n\n--min-severity\nlow\n",
        on_incomplete="pass",
        fail_on="critical",
    )
    assert ended.exit_code == 0
    words = job.record("review", "words").splitlines()
    assert words[:4] == ["review", "--reviewer", "offline", f"{job.base}...{job.head}"]
    assert words[-4:] == ["--exclude", "some dir/**", "--min-severity", "low"]
    names = sorted(file.name for file in Path(ended.outputs["directory"]).iterdir())
    assert names == ["review.codequality.json", "review.json", "review.junit.xml", "review.md", "review.txt"]


def test_a_push_is_compared_with_where_it_began_and_a_new_branch_with_the_base_branch(job: Job) -> None:
    for before, compared in ((job.base, [f"{job.base}...{job.head}"]), ("0" * 40, [])):
        job.github = {"event": {"before": before}, "sha": job.head}
        assert job.run().outputs["verdict"] == "FAIL"
        assert [word for word in job.record("review", "words").splitlines() if "..." in word] == compared


# What python3 is asked for while it installs; the program that it then "installs" is one of these as well.
STUB = """#!/bin/sh
printf '%s|' "$PIP_CONSTRAINT" "$@" >> "{log}"; echo >> "{log}"
[ "$3" != pip ] || env > "{log}.env"
case "$1 $2 $3" in "-I -m venv") mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; cp "{codeloupe}" "$4/bin/codeloupe" ;; esac
"""


def installed(job: Job, **inputs: str) -> list[list[str]]:
    """How it was installed; what is then asked of it costs nothing."""
    folder = job.place / "stub"
    folder.mkdir()
    log = folder / "log"
    (folder / "python3").write_text(STUB.format(log=log, codeloupe=job.place / "bin" / "codeloupe"))
    (folder / "python3").chmod(0o755)
    ended = job.run((folder,), install="true", options="--help", **inputs)
    assert ended.step("Install codeloupe").outputs["program"].endswith("codeloupe-program/bin/codeloupe")
    rows = [line.split("|")[:-1] for line in log.read_text().splitlines()]
    return [row for row in rows if row[3:5] == ["pip", "install"]]


def test_the_action_installs_itself_from_pinned_versions(job: Job) -> None:
    base, itself = installed(job, command="publish", review_file="x.json", token=TOKEN, extras="claude")
    assert base[-3:] == ["--require-hashes", "-r", str(PROJECT / "requirements" / "base.txt")]
    assert base[0] == ""
    assert itself[-1] == f"{PROJECT}[claude,github]"
    versions = Path(itself[0]).read_text().splitlines()
    assert any(line.startswith("claude-agent-sdk==") for line in versions)
    assert any(line.startswith("hatchling==") for line in versions)
    assert not [line for line in versions if "--hash" in line or line.endswith("\\")]


def test_the_action_is_installed_without_token_or_key(job: Job) -> None:
    installed(job, comment="false")
    variables = (job.place / "stub" / "log.env").read_text()
    assert "GITHUB_ACTION_PATH=" in variables
    assert TOKEN not in variables
    assert KEY not in variables


@pytest.mark.defect("E3")
def test_nothing_is_installed_by_the_name_of_the_package_alone(job: Job, tmp_path: Path) -> None:
    template = read_yaml(PROJECT / "ci" / "gitlab.yml")["codeloupe"]
    stub, log = tmp_path / "python", tmp_path / "log"
    stub.write_text(STUB.format(log=log, codeloupe=PROGRAM))
    stub.chmod(0o755)
    variables = {
        **template["variables"],
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOUPE_PROGRAM": str(tmp_path / "program"),
    }
    script = "set -e\n" + "\n".join(template["before_script"])
    subprocess.run(("bash", "-c", script), cwd=job.work.path, env={**os.environ, **variables}, check=True)
    [asked] = [row for row in log.read_text().splitlines() if "|pip|install|" in row]
    assert re.fullmatch(r"git\+https://\S+/codeloupe@[0-9a-f]{40}", asked.split("|")[-2])
    sources = [row[-1] for row in installed(job, extras="claude")]
    assert sources == [str(PROJECT / "requirements" / "base.txt"), f"{PROJECT}[claude]"]


def test_nothing_of_the_checkout_runs_while_it_is_installed(job: Job, tmp_path: Path) -> None:
    """`python -m` prefers what lies in the working directory, and that is a stranger's checkout; -I does not."""
    job.work.write("venv.py", "print('a stranger is here')\n")
    stub = tmp_path / "python"
    log = tmp_path / "log"
    stub.write_text(STUB.format(log=log, codeloupe=PROGRAM))
    stub.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOUPE_PROGRAM": str(tmp_path / "program"),
        "LOUPE_PACKAGE": "x",
    }
    script = "set -e\n" + "\n".join(read_yaml(PROJECT / "ci" / "gitlab.yml")["codeloupe"]["before_script"])
    subprocess.run(("bash", "-c", script), cwd=job.work.path, env={**os.environ, **variables}, check=True)
    installed(job)
    rows = (log.read_text() + (job.place / "stub" / "log").read_text()).splitlines()
    modules = [row.split("|")[1:4] for row in rows if "-m|" in row]
    assert modules == [["-I", "-m", "venv"], ["-I", "-m", "pip"], ["-I", "-m", "venv"], *[["-I", "-m", "pip"]] * 2]
    for isolated in (True, False):
        words = (sys.executable, *(("-I",) if isolated else ()), "-m", "venv", "--help")
        ended = subprocess.run(words, cwd=job.work.path, capture_output=True, text=True, check=True)
        assert ("a stranger is here" in ended.stdout) is not isolated


@pytest.mark.defect("V16")
def test_the_job_of_gitlab_writes_its_reports_and_ends_with_the_verdict(
    repository: GitRepository, fresh_install: Install
) -> None:
    base = repository.commit_files({"README.md": "a shop\n"}, "first")
    head = repository.commit_files({"shop.py": FAULTY}, "second", branch="topic")
    program = repository.path.with_name(f"{repository.path.name}.tmp") / "codeloupe-42" / "bin" / "codeloupe"
    program.parent.mkdir(parents=True)
    program.symlink_to(fresh_install.program)
    template = read_yaml(PROJECT / "ci" / "gitlab.yml")["codeloupe"]
    plain = {
        name: value.replace("$CI_PROJECT_DIR", str(repository.path)).replace("$CI_JOB_ID", "42")
        for name, value in template["variables"].items()
    }
    variables = {
        **os.environ,
        **plain,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "CI_COMMIT_SHA": head,
        "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1",
        "CI_MERGE_REQUEST_PROJECT_ID": "1",
    }
    script = "set -eo pipefail\n" + "\n".join(template["script"])
    ended = subprocess.run(("bash", "-c", script), cwd=repository.path, env=variables, capture_output=True, check=False)
    assert ended.returncode == 1, ended.stderr
    subprocess.run(("bash", "-c", "\n".join(template["after_script"])), env=variables, check=True)
    assert not program.parent.parent.exists()
    named = [*template["artifacts"]["paths"], *template["artifacts"]["reports"].values()]
    assert sorted(named) == sorted(file.name for file in repository.path.glob("codeloupe.*"))
    [found] = json.loads((repository.path / "codeloupe.codequality.json").read_text())
    assert found["location"]["path"] == "shop.py"
    assert json.loads((repository.path / "codeloupe.json").read_text())["scope"]["head"] == head


@pytest.mark.soak
def test_the_action_really_installs_itself(job: Job) -> None:
    """Run the step with pip and the package index. The quick tests look at the words that pip gets."""
    job.variables.update(network_variables())
    ended = job.run((Path(sys.base_prefix) / "bin",), install="true")
    assert ended.step("Install codeloupe").exit_code == 0, ended.step("Install codeloupe").said
    assert ended.outputs["verdict"] == "FAIL", ended.step("Review").said
    assert not (job.records / "review.words").exists(), "the program on the PATH was used"


@pytest.mark.soak
def test_the_job_of_gitlab_really_installs_the_package(repository: GitRepository, fresh_install: Install) -> None:
    """Run `before_script` with pip and the package index, for a wheel in place of a commit."""
    place = repository.path.with_name("program")
    variables = {
        **os.environ,
        **network_variables(),
        "PATH": f"{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}",
        "LOUPE_PROGRAM": str(place),
        "LOUPE_PACKAGE": str(fresh_install.wheel),
    }
    script = "set -e\n" + "\n".join(read_yaml(PROJECT / "ci" / "gitlab.yml")["codeloupe"]["before_script"])
    subprocess.run(("bash", "-c", script), cwd=repository.path, env=variables, check=True)
    assert subprocess.run((place / "bin" / "codeloupe", "version"), check=False).returncode == 0


def test_the_hook_before_a_commit_lets_only_a_sound_one_through(repository: GitRepository) -> None:
    before = repository.commit_files({"README.md": "a shop\n"}, "first")
    install_hook(repository, "codeloupe-staged", "pre-commit")
    for content, other in ((FAULTY, SOUND), (SOUND, FAULTY)):
        repository.write("shop.py", content)
        repository.git("add", "shop.py")
        # What is not staged is not what the commit holds.
        repository.write("shop.py", other)
        repository.git("commit", "--quiet", "-m", "second", may_fail=True)
        assert (repository.head() != before) == (content == SOUND)


def test_the_hook_before_a_push_reviews_the_branch(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit_files({"README.md": "a shop\n"}, "first")
    subprocess.run(("git", "init", "--quiet", "--bare", str(tmp_path / "other.git")), check=True)
    install_hook(repository, "codeloupe", "pre-push")
    repository.commit_files({"shop.py": FAULTY}, "second", branch="topic")
    repository.git("push", "--quiet", str(tmp_path / "other.git"), "topic", may_fail=True)
    assert not (tmp_path / "other.git" / "refs" / "heads" / "topic").exists()
    repository.commit_files({"shop.py": SOUND}, "third")
    repository.git("push", "--quiet", str(tmp_path / "other.git"), "topic")
    assert (tmp_path / "other.git" / "refs" / "heads" / "topic").exists()


def install_hook(repository: GitRepository, name: str, stage: str) -> None:
    """As pre-commit starts it: the entry and its arguments, without names of files."""
    [hook] = [one for one in read_yaml(PROJECT / ".pre-commit-hooks.yaml") if one["id"] == name]
    assert stage in hook["stages"]
    assert hook["pass_filenames"] is False
    words = [str(PROGRAM), *shlex.split(hook["entry"])[1:], *hook["args"]]
    home = {name: os.environ[name] for name in ("HOME", "CODELOUPE_HOME", "TMPDIR", "XDG_CONFIG_HOME")}
    settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in home.items())
    file = repository.path / ".git" / "hooks" / stage
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\nexec env {settings} {shlex.join(words)}\n")
    file.chmod(0o755)
