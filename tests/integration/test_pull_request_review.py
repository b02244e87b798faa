"""`codeloupe review --pr` through the front door: real git over loopback http, against a forge that may be hostile."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from codeloupe import review
from codeloupe.config.schema import Settings
from codeloupe.model.scope import PullRequestScope
from tests.agent_factories import assert_nothing_runs_in
from tests.endings import PATIENCE_SECONDS, comes_to_pass
from tests.program import PROGRAM, Ended
from tests.pull_material import FAULTY_CODE, Forge, forge_with_topic
from tests.pull_server import Instead, PullServer
from tests.warm_program import codeloupe

OFFLINE = ("--reviewer", "offline", "--format", "json")
TOKEN = "ghp_" + "x1Y2" * 9


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    """Made once; each test has a copy."""
    return forge_with_topic(tmp_path_factory.mktemp("original"))


@pytest.fixture
def forge(original: Forge, tmp_path: Path) -> Forge:
    return original.copy(tmp_path)


@pytest.fixture
def server(forge: Forge) -> Iterator[PullServer]:
    with PullServer(forge.root) as server:
        yield server


@pytest.fixture
def clone(forge: Forge, server: PullServer, tmp_path: Path) -> Path:
    return forge.clone(tmp_path / "clone", f"{server.url}/owner/shop.git")


def pull(where: Path, *words: str, name: str = "7", **variables: str) -> Ended:
    return codeloupe("review", "--pr", name, *OFFLINE, *words, cwd=where, environment=variables)


def listing(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in folder.rglob("*")}


def test_by_number_in_a_clone_it_is_reviewed_and_the_clone_is_left_alone(
    forge: Forge, server: PullServer, clone: Path
) -> None:
    before = listing(clone)
    ended = pull(clone, GITHUB_TOKEN=TOKEN, GH_TOKEN=TOKEN)
    document = ended.json()
    work = forge.work
    assert (ended.exit_code, document["complete"]) == (1, True), ended.stderr
    assert document["scope"] == {
        "kind": "pull_request",
        "base": work.git("merge-base", "main", "topic").decode().strip(),
        "head": work.git("rev-parse", "topic").decode().strip(),
        "description": document["scope"]["description"],
    }
    assert f"{server.url}/owner/shop/pull/7 against main" in document["scope"]["description"]
    assert [(finding["file"], finding["line_start"]) for finding in document["findings"]] == [("shop/average.py", 2)]
    assert listing(clone) == before
    assert "fetching pull request 7" in ended.stderr
    assert server.asked
    assert not any("Authorization" in request.headers for request in server.asked)


def test_it_is_never_trusted_whatever_anybody_set(forge: Forge, clone: Path) -> None:
    work = forge.work
    work.checkout("topic")
    work.write("shop/average.py", FAULTY_CODE.rstrip() + "  # codeloupe: ignore[correctness] mine\n")
    forge.open(work.commit("silenced"))
    ended = pull(clone, CODELOUPE_UNTRUSTED="false")
    assert ended.exit_code == 1
    assert "ignores_not_followed" in {error["kind"] for error in ended.json()["errors"]}


@pytest.mark.defect("E6")
def test_by_url_it_is_the_last_review_of_the_directory_that_asked(
    server: PullServer, clone: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    ended = pull(outside, name=f"{server.url}/owner/shop/pull/7/files")
    assert ended.exit_code == 1, ended.stderr
    last = codeloupe("history", "render", "last", "--format", "json", cwd=outside).json()
    assert last["review_id"] == ended.json()["review_id"]
    assert last["scope"]["kind"] == "pull_request"
    assert codeloupe("history", "list", "--json", cwd=clone).json()["entries"] == []
    (entry,) = codeloupe("history", "list", "--all-clones", "--json", cwd=clone).json()["entries"]
    assert entry["id"] == last["review_id"]


def test_round_after_round_it_is_known_again_and_a_moved_head_is_another_change(forge: Forge, clone: Path) -> None:
    work = forge.work
    first = pull(clone).json()
    again = pull(clone).json()
    assert [finding["status"] for finding in first["findings"]] == ["new"]
    assert [finding["status"] for finding in again["findings"]] == ["open"]
    assert "converged" in again["summary"]
    work.checkout("topic")
    work.write("shop/average.py", FAULTY_CODE.replace("cuont", "len"))
    work.write("shop/other.py", "def other():\n    return nmae\n")
    head = work.commit("mended, and another fault")
    forge.open(head)
    moved = pull(clone).json()
    assert (moved["scope"]["base"], moved["scope"]["head"]) == (first["scope"]["base"], head)
    statuses = {finding["file"]: finding["status"] for finding in moved["findings"]}
    assert statuses == {"shop/average.py": "fixed", "shop/other.py": "new"}
    work.remove("shop/other.py")
    forge.open(work.commit("without it"))
    gone = pull(clone)
    assert {finding["file"]: finding["status"] for finding in gone.json()["findings"]} == {"shop/other.py": "gone"}
    assert gone.exit_code == 0


def test_the_same_number_of_another_repository_is_another_pull_request(
    forge: Forge, server: PullServer, clone: Path, tmp_path: Path
) -> None:
    """A fork has the same root, and its own pull request 7."""
    pull(clone)
    forge.bare.parent.rename(forge.root / "fork")
    other = pull(tmp_path, name=f"{server.url}/fork/shop/pull/7")
    assert [finding["status"] for finding in other.json()["findings"]] == ["new"]


@pytest.mark.defect("V12")
def test_a_base_that_the_remote_does_not_tell_is_said_to_be_assumed(forge: Forge, clone: Path) -> None:
    known = pull(clone).json()
    assert "assumed" not in known["scope"]["description"]
    assert "assumed_base" not in {error["kind"] for error in known["errors"]}
    forge.open(forge.work.git("rev-parse", "topic").decode().strip(), merge=False)
    ended = pull(clone)
    assert "against main, which is assumed," in ended.json()["scope"]["description"]
    [told] = [error["message"] for error in ended.json()["errors"] if error["kind"] == "assumed_base"]
    assert "main was assumed" in told
    assert told in ended.stderr
    named = pull(clone, "--base", "main").json()
    assert "assumed" not in named["scope"]["description"]
    assert "assumed_base" not in {error["kind"] for error in named["errors"]}


@pytest.mark.defect("V12")
def test_findings_of_a_wrong_base_are_gone_with_the_right_one(forge: Forge, clone: Path) -> None:
    work = forge.work
    work.git("checkout", "--quiet", "-b", "stacked", "topic")
    work.write("shop/fine.py", "def fine():\n    return 1\n")
    forge.push("topic:refs/heads/topic")
    forge.open(work.commit("on top"), merge=False)
    assert pull(clone).exit_code == 1
    right = pull(clone, "--base", "topic")
    assert (right.exit_code, right.json()["verdict"]) == (0, "PASS")
    assert [(one["file"], one["status"], one["counts"]) for one in right.json()["findings"]] == [
        ("shop/average.py", "gone", False)
    ]


def test_a_preview_costs_a_fetch_and_nothing_else(clone: Path) -> None:
    shown = codeloupe("review", "--pr", "7", "--preview", "--format", "json", cwd=clone)
    assert [file["new_path"] for file in shown.json()["files"]] == ["shop/average.py"]


def test_a_program_can_ask_for_it_and_it_is_never_trusted(clone: Path, server: PullServer) -> None:
    settings = Settings(reviewer_type="offline", untrusted=False)
    scope = PullRequestScope(f"{server.url}/owner/shop/pull/7")
    outcome = asyncio.run(review(scope, repo=clone, settings=settings))
    assert outcome.scope.kind.value == "pull_request"
    assert [finding.file for finding in outcome.findings] == ["shop/average.py"]


def test_another_base_may_be_named(forge: Forge, clone: Path) -> None:
    forge.push("topic~1:refs/heads/older")
    named = pull(clone, "--base", "older")
    assert "against older" in named.json()["scope"]["description"]


@pytest.mark.defect("E16")
def test_an_unknown_base_suggests_the_nearest_branch_of_the_remote(forge: Forge, clone: Path) -> None:
    forge.push("topic~1:refs/heads/older")
    ended = pull(clone, "--base", "oldre")
    assert ended.exit_code == 2
    assert "hint: did you mean older? " in ended.stderr


@pytest.mark.parametrize(
    ("name", "where", "exit_code", "words"),
    [
        ("99", "clone", 2, "has no pull request 99"),
        ("7", "outside", 2, "not inside a git repository"),
        ("seven", "clone", 2, "does not name a pull request"),
        ("https://github.com/owner/shop", "clone", 2, "does not name a pull request"),
        ("http://127.0.0.1:9/owner/shop/pull/7", "outside", 3, "could not be reached"),
        ("https://host.invalid/owner/shop/pull/7", "outside", 3, "could not be reached"),
        ("{server}/private/shop/pull/7", "outside", 2, "requires a login"),
        ("{server}/nobody/shop/pull/7", "outside", 2, "shop not found"),
    ],
)
def test_mistakes_are_told_in_words_with_the_way_out(
    server: PullServer, clone: Path, tmp_path: Path, name: str, where: str, exit_code: int, words: str
) -> None:
    server.refuse = lambda path: Instead(401) if path.startswith("/private") else None
    place = clone if where == "clone" else tmp_path / "outside"
    place.mkdir(exist_ok=True)
    ended = pull(place, name=name.format(server=server.url))
    assert (ended.exit_code, ended.stdout) == (exit_code, ""), ended.stderr
    assert words in ended.stderr
    assert "hint: " in ended.stderr


def test_it_stands_alone_among_the_scopes(tmp_path: Path) -> None:
    for other in (("--staged",), ("--commit", "HEAD"), ("--uncommitted",), ("main..HEAD",)):
        ended = pull(tmp_path, *other)
        assert ended.exit_code == 2, other
        assert "--pr" in ended.stderr
        assert "exclude each other" in ended.stderr


def trapped(folder: Path, name: str) -> str:
    """A program that leaves a mark when it runs."""
    program = folder / name
    program.write_text(f"#!/bin/sh\ntouch {folder}/ran-{name}\nexit 1\n")
    program.chmod(0o755)
    return str(program)


def test_nothing_of_a_hostile_fork_or_of_the_users_settings_for_git_runs(
    forge: Forge, server: PullServer, clone: Path, tmp_path: Path
) -> None:
    traps = tmp_path / "traps"
    (traps / "hooks").mkdir(parents=True)
    for hook in ("reference-transaction", "post-checkout", "post-index-change", "pre-auto-gc"):
        (traps / "hooks" / hook).symlink_to(trapped(traps, hook))
    work = forge.work
    work.checkout("topic")
    work.write(".gitattributes", "* filter=evil diff=evil merge=evil -text\nshop/hidden.py -diff export-ignore\n")
    work.write("shop/hidden.py", "def hidden():\n    return nmae\n")
    work.write("hooks/post-checkout", (traps / "post-checkout").read_text(), executable=True)
    work.write(".gitmodules", f'[submodule "m"]\n\tpath = m\n\turl = ext::{traps}/post-checkout\n\tupdate = !false\n')
    work.git("update-index", "--add", "--cacheinfo", f"160000,{work.head()},m")
    (work.path / "link.py").symlink_to("/etc/passwd")
    head = work.commit("harmless")
    forge.open(head)
    driver, helper = trapped(traps, "driver"), trapped(traps, "helper")
    settings = Path(os.environ["XDG_CONFIG_HOME"], "git", "config")
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f'[filter "evil"]\n\tclean = {driver}\n\tsmudge = {driver}\n\tprocess = {driver}\n'
        f'[diff "evil"]\n\ttextconv = {driver}\n\tcommand = {driver}\n'
        f"[core]\n\thooksPath = {traps}/hooks\n\tfsmonitor = {driver}\n\taskPass = {driver}\n"
        f"[credential]\n\thelper = {helper}\n[init]\n\ttemplateDir = {traps}\n"
    )
    ended = pull(clone)
    document = ended.json()
    assert sorted(file.name for file in traps.glob("ran-*")) == []
    files = {finding["file"] for finding in document["findings"]}
    assert {"shop/average.py", "shop/hidden.py"} <= files, "an attribute hides nothing"
    assert "commit:" not in ended.stdout
    # A login is wanted: the user's own helper is asked, and nobody else.
    server.refuse = lambda _path: Instead(401)
    assert pull(clone).exit_code == 2
    assert sorted(file.name for file in traps.glob("ran-*")) == ["ran-helper"]


def test_an_interrupted_fetch_leaves_nothing_behind(server: PullServer, clone: Path) -> None:
    server.refuse = lambda _path: Instead(200, hang=True)
    words = (str(PROGRAM), "review", "--pr", "7", "--reviewer", "offline")
    with subprocess.Popen(words, cwd=clone, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert comes_to_pass(lambda: bool(server.asked))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, said
    assert_nothing_runs_in(Path(os.environ["TMPDIR"]))
    assert list(Path(os.environ["TMPDIR"]).iterdir()) == []


@pytest.mark.defect("V13")
def test_a_private_repository_is_fetched_with_the_login_of_the_users_own_git(
    server: PullServer, clone: Path, tmp_path: Path
) -> None:
    secret = "only-the-helper-" + "knows"
    server.login = f"ada:{secret}"
    refused = pull(clone)
    trap = tmp_path / "trap"
    for name in ("credential.helper", f"credential.{server.url}.helper", "core.askPass"):
        subprocess.run(("git", "config", name, f"!touch {trap}; false"), cwd=clone, check=True)
    home = Path(os.environ["HOME"])
    (home / "logins").write_text(server.url.replace("://", f"://ada:{secret}@") + "\n")
    (home / ".gitconfig").write_text(f'[credential "{server.url}"]\n\thelper = store --file {home}/logins\n')
    ended = pull(clone)
    assert ended.exit_code == 1, ended.stderr
    assert "requires a login that your git does not have" in refused.stderr
    assert not trap.exists()
    assert secret not in ended.stdout + ended.stderr
    state = [file for file in home.rglob("*") if file.is_file() and file.name not in ("logins", ".gitconfig")]
    assert [file for file in state if secret.encode() in file.read_bytes()] == []
