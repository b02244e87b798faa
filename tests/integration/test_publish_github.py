"""`codeloupe publish github` as a user runs it: the installed program, real reviews of a real repository, and a GitHub
server of ours that keeps state and checks each request against GitHub's own descriptions."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS, comes_to_pass
from tests.github_server import GitHubServer, github_server
from tests.github_server_world import PullRequest
from tests.program import PROGRAM, Ended
from tests.publish_material import FILES, FIRST, SECOND, event_file, finding, review, write_report
from tests.repository import GitRepository
from tests.warm_program import codeloupe

CLEAN = "import os\n\n\ndef names(path):\n    return sorted(os.listdir(path))\n"
SHELL = "import subprocess\n\n\ndef show(path):\n    subprocess.run('cat ' + path, shell=True)\n"
EVALUATED = "\n\ndef value(text):\n    return eval(text)\n"


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as started:
        yield started


@pytest.fixture
def pull(server: GitHubServer) -> PullRequest:
    return server.repository("octo/demo").pull_request(FILES, head=FIRST)


def publish(server: GitHubServer, cwd: Path, *words: str, **variables: str) -> Ended:
    environment = {"GITHUB_TOKEN": server.token, "GITHUB_API_URL": server.url, **variables}
    ended = codeloupe("publish", "github", *words, cwd=cwd, environment=environment)
    assert server.token not in ended.stdout + ended.stderr
    return ended


def patches(repository: GitRepository, base: str) -> dict[str, str]:
    """The patches of everything since a commit, as GitHub shows them."""
    names = repository.git("diff", "--name-only", base, "HEAD").decode().split()
    texts = {name: repository.git("diff", base, "HEAD", "--", name).decode() for name in names}
    return {name: text[text.index("@@ ") :].rstrip("\n") for name, text in texts.items()}


def reviewed(repository: GitRepository, base: str) -> None:
    ended = codeloupe("review", f"{base}..HEAD", "--reviewer", "offline", "--format", "json", cwd=repository.path)
    assert ended.exit_code in (0, 1), ended.stderr


@pytest.mark.requirement("C11")
def test_three_pushes_of_a_real_change_end_with_one_summary_and_the_fixed_threads_resolved(
    repository: GitRepository, server: GitHubServer
) -> None:
    base = repository.commit_files({"lister.py": CLEAN}, "begin")
    head = repository.commit_files({"lister.py": SHELL}, "show a file", branch="topic")
    repo = server.repository("octo/demo")
    pull = repo.pull_request(patches(repository, base), head=head, base=base)
    reviewed(repository, base)
    first = publish(server, repository.path, "--pr", "1", "--repo-name", "octo/demo")
    assert (first.exit_code, first.stderr) == (0, "")
    shell = [thread for thread in pull.threads if "shell" in thread.comments[0].body.lower()]
    assert shell

    repository.write("lister.py", SHELL + EVALUATED)
    pull.push(repository.commit("and evaluate"), patches(repository, base))
    reviewed(repository, base)
    before = len(pull.threads)
    assert publish(server, repository.path, "--pr", "octo/demo#1").exit_code == 0
    assert len(pull.threads) > before
    assert not any(thread.is_resolved for thread in pull.threads)

    repository.write("lister.py", CLEAN + EVALUATED)
    pull.push(repository.commit("no shell"), patches(repository, base))
    reviewed(repository, base)
    third = publish(server, repository.path, "--pr", "octo/demo#1", "--json")
    assert third.exit_code == 0
    assert third.json()["summary"]["change"] == "updated"
    assert [comment.user.login for comment in pull.issue_comments] == ["reviewer"]
    marks = [thread.comments[0].body.split("\n", 1)[0] for thread in pull.threads]
    assert len(marks) == len(set(marks))
    assert all(thread.is_resolved for thread in shell)
    assert not all(thread.is_resolved for thread in pull.threads)
    assert [status.sha for status in repo.statuses] == list(pull.diffs)


def test_a_report_in_a_file_is_published_and_a_moved_head_is_not(
    server: GitHubServer, pull: PullRequest, tmp_path: Path
) -> None:
    report = str(write_report(tmp_path / "r.json", review(finding(4), finding(400))))
    words = ("--pr", "octo/demo#1", "--review", report)
    planned = publish(server, tmp_path, *words, "--dry-run")
    assert planned.exit_code == 0
    assert "dry run" in planned.stdout
    assert pull.reviews == []
    done = publish(server, tmp_path, *words)
    assert done.exit_code == 0
    assert "1 new comment, 0 known before" in done.stdout
    assert "1 finding only in the summary" in done.stdout
    pull.push(SECOND, FILES)
    moved = publish(server, tmp_path, *words)
    assert moved.exit_code == 3
    assert moved.stderr.startswith("codeloupe: octo/demo#1 is at 222222222222, but the review is for 111111111111")
    assert "hint:" in moved.stderr


def test_in_github_actions_the_event_is_enough_a_check_run_is_made_and_a_missing_right_is_exit_2(
    tmp_path: Path,
) -> None:
    with github_server(identity="actions") as server:
        repo = server.repository("octo/demo")
        repo.pull_request(FILES, head=FIRST)
        event = event_file(tmp_path / "event.json", pull_request={"number": 1}, repository={"full_name": "octo/demo"})
        write_report(tmp_path / "r.json", review(complete=False, exit_code=3))
        ended = publish(server, tmp_path, "--review", "r.json", GITHUB_EVENT_PATH=str(event), GITHUB_ACTIONS="true")
        assert ended.exit_code == 0
        assert [(run.name, run.conclusion) for run in repo.check_runs] == [("codeloupe", "neutral")]
        server.permissions.update(pull_requests="read", issues="read")
        write_report(tmp_path / "r.json", review(finding(4)))
        ended = publish(server, tmp_path, "--pr", "octo/demo#1", "--review", "r.json")
        assert ended.exit_code == 2
        assert "the token is not allowed to post comments" in ended.stderr
        assert "pull-requests: write" in ended.stderr
        assert "summary not written" in ended.stdout


@pytest.mark.parametrize("word", ["x" * 300, "", ".", "no\udcff"])
def test_a_word_that_names_no_review_is_a_mistake_in_words(
    server: GitHubServer, pull: PullRequest, tmp_path: Path, word: str
) -> None:
    ended = publish(server, tmp_path, "--pr", "octo/demo#1", "--review", word)
    assert ended.exit_code == 2, ended.stderr
    assert "is not an id of the history" in ended.stderr
    assert pull.reviews == []


def test_a_limit_is_waited_for(server: GitHubServer, pull: PullRequest, tmp_path: Path) -> None:
    write_report(tmp_path / "r.json", review(finding(4)))
    server.secondary_rate_limit("POST", "/repos/octo/demo/pulls/1/reviews", status=429, retry_after=1)
    began = time.monotonic()
    assert publish(server, tmp_path, "--pr", "octo/demo#1", "--review", "r.json").exit_code == 0
    assert time.monotonic() - began >= 1
    assert len(pull.review_comments) == 1


def test_a_killed_run_leaves_nothing_that_the_next_does_twice(
    server: GitHubServer, pull: PullRequest, tmp_path: Path
) -> None:
    write_report(tmp_path / "r.json", review(finding(4), finding(9)))
    server.slow_answer("POST", "/repos/octo/demo/pulls/1/reviews", FAR_TOO_LONG_SECONDS)
    environment = {**os.environ, "GITHUB_TOKEN": server.token, "GITHUB_API_URL": server.url}
    words = (str(PROGRAM), "publish", "github", "--pr", "octo/demo#1", "--review", "r.json")
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as program:
        assert comes_to_pass(lambda: bool(pull.reviews))
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=PATIENCE_SECONDS)
    assert program.returncode == 130
    assert b"interrupted" in errors
    assert publish(server, tmp_path, "--pr", "octo/demo#1", "--review", "r.json").exit_code == 0
    assert len(pull.reviews) == 1
    assert len(pull.review_comments) == 2
    assert len(pull.issue_comments) == 1


@pytest.mark.defect("V16")
def test_runs_at_once_leave_everything_there_once(server: GitHubServer, pull: PullRequest, tmp_path: Path) -> None:
    write_report(tmp_path / "r.json", review(finding(4), finding(9)))
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(publish, server, tmp_path, "--pr", "octo/demo#1", "--review", "r.json") for _ in range(3)]
        assert [run.result().exit_code for run in runs] == [0, 0, 0]
    assert {thread.line for thread in pull.threads} == {4, 9}
    assert len(pull.threads) == 2
    assert len(pull.issue_comments) == 1
    assert "codeloupe: FAIL" in pull.issue_comments[0].body


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (("--pr", "nonsense"), {}, "does not name a pull request"),
        (("--pr", "https://evil.example/octo/demo/pull/1"), {}, "the pull request is on evil.example"),
        (("--pr", "1"), {}, "cannot tell which repository to use"),
        ((), {}, "cannot tell which pull request to use"),
        (("--pr", "octo/demo#1"), {"GITHUB_TOKEN": ""}, "no token for GitHub is set"),
        (("--pr", "octo/demo#1"), {"GITHUB_API_URL": "http://example.invalid"}, "not encrypted"),
        (("--pr", "octo/demo#1", "--app-id", "5"), {}, "needs both its id and its private key"),
        (("--pr", "octo/demo#1", "--max-comments", "-1"), {}, "--max-comments is negative"),
        (("--pr", "octo/demo#1", "--review", "nothing.json"), {}, "cannot read the report nothing.json"),
        (("--pr", "octo/demo#1"), {}, "is stored"),
        (("--pr", "octo/demo#1"), {"CODELOUPE_PUBLISH_KEY": "short"}, "fewer than 16 characters"),
    ],
)
def test_a_mistake_is_exit_2_in_words_and_nothing_is_asked(
    server: GitHubServer, tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    ended = publish(server, tmp_path, *words, **variables)
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert ended.stdout == ""
    assert not server.requests


def test_the_origin_of_the_clone_names_the_repository(
    repository: GitRepository, server: GitHubServer, pull: PullRequest
) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    repository.git("remote", "add", "origin", "ssh://git@127.0.0.1/octo/demo.git")
    report = str(write_report(repository.path / "r.json", review(finding(4))))
    assert publish(server, repository.path, "--pr", "1", "--review", report).exit_code == 0
    assert len(pull.review_comments) == 1


def test_a_hostile_review_stays_text_on_the_pull_request(
    server: GitHubServer, pull: PullRequest, tmp_path: Path
) -> None:
    attack = "@octo/team ![x](https://evil.example/x.png) <img src=x> \x1b]0;x\x07 <!-- codeloupe:1 summary -->"
    hostile = [
        finding(4, title=attack, body=attack * 500, suggestion=attack, category=attack),
        finding(7, file="caf\udce9.py", title="\udcff\x00", evidence="\udcff"),
        finding(9, fingerprint="--><script>", title="::error::x"),
    ]
    report = str(write_report(tmp_path / "r.json", review(*hostile)))
    for _ in range(2):
        ended = publish(server, tmp_path, "--pr", "octo/demo#1", "--review", report)
        assert ended.exit_code == 0
        assert not any(line.startswith("::") for line in ended.stdout.splitlines())
        assert "\x1b" not in ended.stdout
    assert len(pull.review_comments) == 2
    assert len(pull.issue_comments) == 1
    for one in (*pull.issue_comments, *pull.review_comments):
        assert "![x](" not in one.body
        assert "<img" not in one.body
        assert " @octo" not in one.body
