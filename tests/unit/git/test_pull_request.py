import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codeloupe.errors import CodeloupeError, GitFailed, ProcessTimedOut, UsageError
from codeloupe.git.pull_request import RemoteRepository, fetch_pull_request, make_engine, parse_pull_request
from codeloupe.git.repository import private_directory
from codeloupe.model.change import Change
from codeloupe.model.scope import FetchedScope, PullRequestScope
from tests.diff_checks import read_scope
from tests.pull_material import Forge, forge_with_topic
from tests.pull_server import Instead, PullServer
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.program


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    return forge_with_topic(tmp_path_factory.mktemp("made"))


@pytest.fixture
def forge(made: Forge, tmp_path: Path) -> Forge:
    """A copy of it, which a test may change."""
    return made.copy(tmp_path / "made")


@contextmanager
def fetched(name: str, repo: Path) -> Iterator[tuple[FetchedScope, Path]]:
    with private_directory() as directory:
        yield asyncio.run(fetch_pull_request(PullRequestScope(name), repo=repo, into=directory))


def change_of(fetched: tuple[FetchedScope, Path]) -> Change:
    return read_scope(fetched[1], fetched[0])


def files_of(name: str, repo: Path) -> list[str]:
    with fetched(name, repo) as pull_request:
        return [file.path for file in change_of(pull_request).files]


def missing_in(repo: Path) -> int:
    words = ("git", "-C", str(repo), "rev-list", "--objects", "--all", "--missing=print")
    variables = {**os.environ, "GIT_ALLOW_PROTOCOL": "none"}
    listed = subprocess.run(words, check=True, capture_output=True, env=variables).stdout
    return sum(line.startswith(b"?") for line in listed.split(b"\n"))


def packed_in(repo: Path) -> int:
    words = ("git", "-C", str(repo), "count-objects", "--verbose")
    counted = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return int(dict(line.split(": ") for line in counted.splitlines() if ": " in line)["in-pack"])


def test_by_its_url_only_commits_and_two_trees_are_fetched(forge: Forge, tmp_path: Path) -> None:
    work = forge.work
    with PullServer(forge.root) as server, fetched(f"{server.url}/owner/shop/pull/7", tmp_path) as pull_request:
        scope = pull_request[0]
        change = change_of(pull_request)
        missing = missing_in(pull_request[1])
        asked = list(server.asked)
    assert scope.head == work.git("rev-parse", "topic").decode().strip()
    assert scope.base == work.git("merge-base", "topic", "main").decode().strip()
    assert scope.description.endswith(f"/owner/shop/pull/7 against main ({scope.base[:12]} to {scope.head[:12]})")
    assert (change.scope.kind, change.scope.base, change.scope.head) == ("pull_request", scope.base, scope.head)
    assert [file.path for file in change.files] == ["shop/average.py"]
    # Of the first commit there is neither the tree nor the file that only it has.
    assert missing > 0
    assert not any("Authorization" in request.headers for request in asked)


def test_by_its_number_the_clones_remote_is_asked_and_only_what_is_new_travels(forge: Forge, tmp_path: Path) -> None:
    with PullServer(forge.root) as server:
        clone = forge.clone(tmp_path / "clone", f"{server.url}/owner/shop.git")
        with fetched("7", clone) as pull_request:
            new = packed_in(pull_request[1])
            missing = missing_in(pull_request[1])
            files = [file.path for file in change_of(pull_request).files]
    assert files == ["shop/average.py"]
    assert missing == 0
    # The head, the try to merge, and their new trees and file; nothing of what the clone has.
    assert 0 < new <= 6


def test_by_owner_name_and_number_the_clones_remote_or_its_host_is_asked(forge: Forge, tmp_path: Path) -> None:
    with PullServer(forge.root) as server:
        clone = forge.clone(tmp_path / "clone", f"{server.url}/owner/shop.git")
        other = forge.clone(tmp_path / "other", f"{server.url}/owner/shop.git")
        words = ("git", "-C", str(other), "remote", "set-url", "origin", f"{server.url}/ada/shop.git")
        subprocess.run(words, check=True)
        for name, place in (("Owner/shop#7", clone), ("owner/shop#7", other)):
            with fetched(name, place) as pull_request:
                assert [file.path for file in change_of(pull_request).files] == ["shop/average.py"]
                assert "/owner/shop/pull/7 against main" in pull_request[0].description


def test_the_users_own_name_for_an_address_is_understood(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = forge.clone(tmp_path / "clone", "house:owner/shop.git")
    settings = tmp_path / "settings" / "git" / "config"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[url "{forge.root}/"]\n\tinsteadOf = house:\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(settings.parent.parent))
    assert files_of("7", clone) == ["shop/average.py"]


def test_a_url_is_fetched_the_way_the_clone_goes_to_the_same_repository(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = forge.clone(tmp_path / "clone", "git@forge.invalid:owner/shop.git")
    log = tmp_path / "ssh.log"
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    # What a server would run for the client, with all that the client said.
    program.write_text(
        f'#!/bin/sh\nenv > {log}; printf "%s\\n" "$@" >> {log}\n'
        f'for last in "$@"; do :; done\ncd {forge.root} && exec sh -c "$last"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GITHUB_TOKEN", "x" * 20)
    assert files_of("https://forge.invalid/owner/shop/pull/7", clone) == ["shop/average.py"]
    said = log.read_text()
    assert "BatchMode=yes" in said
    assert "git@forge.invalid" in said
    assert "GITHUB_TOKEN" not in said


def test_a_try_to_merge_tells_the_branch_it_goes_to(forge: Forge, tmp_path: Path) -> None:
    """The pull request goes to a release branch, from which it came, and the default branch is another one."""
    work = forge.work
    base = work.commit_files({"release.txt": "only on the release branch\n"}, "release", branch="release")
    head = work.commit_files({"fix.py": "x = 1\n"}, "fix", branch="fix")
    forge.push("release:refs/heads/release")
    forge.push(f"{head}:refs/pull/8/head", f"{forge.merged(head, 'release')}:refs/pull/8/merge")
    clone = forge.clone(tmp_path / "clone", str(forge.bare))
    with fetched("8", clone) as pull_request:
        assert pull_request[0].base == base
        assert [file.path for file in change_of(pull_request).files] == ["fix.py"]


def test_a_try_to_merge_another_head_is_not_believed(forge: Forge, tmp_path: Path) -> None:
    """After a push the forge has not merged anew: its old try began from a main that the new head has taken in."""
    work = forge.work
    old_merge = forge.merged(work.git("rev-parse", "topic").decode().strip(), "main~1")
    work.checkout("topic")
    work.git("merge", "--quiet", "--no-edit", "main")
    head = work.head()
    forge.push(f"{head}:refs/pull/7/head", f"{old_merge}:refs/pull/7/merge")
    clone = forge.clone(tmp_path / "clone", str(forge.bare))
    # With the old try as its base the change would hold what main did meanwhile.
    assert files_of("7", clone) == ["shop/average.py"]


def test_a_merge_request_of_gitlab_is_found_by_number_and_by_url(forge: Forge, tmp_path: Path) -> None:
    head = forge.work.git("rev-parse", "topic").decode().strip()
    forge.open(head, number=9, family="merge-requests")
    with PullServer(forge.root) as server:
        clone = forge.clone(tmp_path / "clone", f"{server.url}/owner/shop.git")
        assert files_of("9", clone) == ["shop/average.py"]
        with fetched(f"{server.url}/owner/shop/-/merge_requests/9", tmp_path) as pull_request:
            assert "/owner/shop/-/merge_requests/9 against main" in pull_request[0].description


@pytest.mark.parametrize("filters", ["none", "blobs"])
def test_a_server_without_this_filter_sends_everything(forge: Forge, tmp_path: Path, filters: str) -> None:
    settings = {"uploadpack.allowFilter": "false"}
    if filters == "blobs":
        settings = {"uploadpackfilter.allow": "false", "uploadpackfilter.blob:none.allow": "true"}
    for key, value in settings.items():
        subprocess.run(("git", "-C", str(forge.bare), "config", key, value), check=True)
    with PullServer(forge.root) as server, fetched(f"{server.url}/owner/shop/pull/7", tmp_path) as pull_request:
        assert [file.path for file in change_of(pull_request).files] == ["shop/average.py"]
        assert missing_in(pull_request[1]) == 0


@each(
    ("instead", "kind", "words"),
    [
        (Instead(403), UsageError, "requires a login"),
        (Instead(503), GitFailed, "could not be reached: The requested URL returned error: 503"),
        (Instead(302, "http://127.0.0.1:9/elsewhere"), UsageError, "cannot be fetched"),
        (Instead(302, "file:///etc/passwd"), UsageError, "cannot be fetched"),
    ],
)
def test_a_server_that_refuses_is_told_in_words(
    tmp_path: Path, instead: Instead, kind: type[CodeloupeError], words: str
) -> None:
    with PullServer(tmp_path, refuse=lambda _path: instead) as server, pytest.raises(CodeloupeError) as caught:
        files_of(f"{server.url}/owner/shop/pull/7", tmp_path)
    assert type(caught.value) is kind
    assert words in caught.value.message


def test_a_clone_that_lacks_something_is_not_leant_on_and_upstream_comes_before_origin(
    forge: Forge, tmp_path: Path
) -> None:
    for number, how in enumerate(("--depth=1", "--filter=blob:none")):
        clone = forge.clone(tmp_path / str(number), str(forge.bare), how, "--no-checkout")
        assert files_of("7", clone) == ["shop/average.py"]
    broken = forge.clone(tmp_path / "broken", str(forge.bare))
    (broken / ".git" / "refs" / "heads" / "broken").write_text("1" * 40 + "\n")
    assert files_of("7", broken) == ["shop/average.py"]
    fork = Forge(tmp_path / "other", GitRepository(tmp_path / "fork"), path="ada/shop.git")
    clone = fork.clone(tmp_path / "clone", str(fork.bare))
    subprocess.run(("git", "-C", str(clone), "remote", "add", "upstream", str(forge.bare)), check=True)
    assert files_of("7", clone) == ["shop/average.py"]


@pytest.mark.parametrize("seconds_between_looks", [0.001, 60.0])
def test_a_server_that_never_answers_or_sends_too_much_is_left(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds_between_looks: float
) -> None:
    monkeypatch.setattr("codeloupe.git.pull_request._SECONDS_BETWEEN_LOOKS", seconds_between_looks)

    def call(server: PullServer, *words: str, **limits: float) -> None:
        address = parse_pull_request(f"{server.url}/owner/shop/pull/7").address
        assert address is not None
        with private_directory() as directory:
            remote = RemoteRepository(address, make_engine(directory / "x", address), **limits)  # type: ignore[arg-type]  # numbers
            (remote.git_dir / "objects" / "pack" / "tmp_pack_x").write_bytes(b"x" * 11)
            asyncio.run(remote.call(*words))

    with PullServer(forge.root) as server, pytest.raises(GitFailed, match="sent more than 10 bytes"):
        call(server, "fetch", "origin", "refs/pull/7/head", limit_bytes=10)
    hanging = PullServer(tmp_path, refuse=lambda _path: Instead(200, hang=True))
    with hanging as server, pytest.raises(ProcessTimedOut, match="did not finish within 0.3 s"):
        call(server, "ls-remote", "--", f"{server.url}/owner/shop.git", timeout_seconds=0.3)
