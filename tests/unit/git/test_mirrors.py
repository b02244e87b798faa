"""The cache of repositories: jobs find what clones have, fetch once, and lose nothing to those beside them."""

import asyncio
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

import codeloupe
from codeloupe import CommitScope, RangeScope, Settings
from codeloupe.errors import CodeloupeError, GitFailed, RemoteTooLarge, RevisionError, UsageError
from codeloupe.git import mirrors, pull_request
from codeloupe.git.commits import list_commits
from codeloupe.git.identity import find_identity
from codeloupe.git.mirrors import MirrorCache
from codeloupe.git.pull_request import RemoteAddress, fetch_pull_request, parse_remote
from codeloupe.git.repository import find_base_branch, open_repository, private_directory
from codeloupe.model.scope import PullRequestScope
from codeloupe.model.sweep import CommitQuery
from tests.diff_checks import read_scope
from tests.endings import PATIENCE_SECONDS, comes_to_pass
from tests.hostile_repository import arm, make_trap
from tests.identity_memory import Memory
from tests.pull_material import Forge, forge_with_topic
from tests.pull_server import Instead, PullServer
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.program

Seen = TypeVar("Seen")
ROOMY = 10**9
LARGE_BYTES = 300_000
# Made up, and in two parts, so that nobody takes it for a real one.
TOKEN = "made-up-" + "0123456789abcdef"

JOBS = """
import asyncio, sys
from pathlib import Path
from codeloupe.git.mirrors import MirrorCache
from codeloupe.git.pull_request import parse_remote
from codeloupe.git.repository import open_repository, resolve

async def job(cache, address, sha):
    async with cache.opened(address, revisions=[sha]) as clone:
        return await resolve(await open_repository(clone), sha)

async def jobs():
    cache, address = MirrorCache(Path(sys.argv[1]), max_bytes=10**9), parse_remote(sys.argv[2], Path("/"))
    print("ready", flush=True)
    return await asyncio.gather(*(job(cache, address, sys.argv[3]) for _ in range(int(sys.argv[4]))))

print(*set(asyncio.run(jobs())))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    return forge_with_topic(tmp_path_factory.mktemp("made"))


@pytest.fixture
def forge(made: Forge, tmp_path: Path) -> Forge:
    """A copy of it, which a test may change."""
    return made.copy(tmp_path / "made")


@pytest.fixture
def cache(tmp_path: Path) -> MirrorCache:
    return MirrorCache(tmp_path / "cache", max_bytes=ROOMY)


def at(place: Path | str) -> RemoteAddress:
    return parse_remote(str(place), Path("/"))


def shop(server: PullServer) -> RemoteAddress:
    return at(f"{server.url}/owner/shop.git")


def in_a_job(
    cache: MirrorCache,
    place: Path | RemoteAddress,
    look: Callable[[Path], Seen],
    *,
    revisions: Sequence[str] = (),
    head: str | None = None,
    refresh: bool = False,
) -> Seen:
    """What is seen in the clone of one job."""
    address = place if isinstance(place, RemoteAddress) else at(place)

    async def job() -> Seen:
        async with cache.opened(address, revisions=revisions, head=head, refresh=refresh) as clone:
            return await asyncio.to_thread(look, clone)

    return asyncio.run(job())


def git(place: Path, *words: str) -> str:
    done = subprocess.run(("git", *words), cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refs_of(place: Path) -> list[str]:
    form = "--format=%(refname) %(symref) %(objectname)"
    return [git(place, "symbolic-ref", "HEAD"), *git(place, "for-each-ref", form).splitlines()]


def history_of(place: Path) -> int:
    """How many commits there are, with everything that they lead to."""
    git(place, "rev-list", "--objects", "--all", "--quiet")
    return int(git(place, "rev-list", "--count", "--all"))


async def files_of(place: Path, sha: str) -> list[str]:
    change = await asyncio.to_thread(read_scope, place, CommitScope(sha))
    return [file.path for file in change.files]


def held_in(cache: MirrorCache) -> list[str]:
    """The mirrors in a cache by their folders, without their hash and number; and whatever else is left in it."""
    found = (path for path in cache._directory.iterdir() if path.suffix != ".lock")
    return sorted(path.name.rpartition("-")[0] if path.suffix[1:].isdigit() else path.name for path in found)


def packs_of(cache: MirrorCache) -> list[Path]:
    return sorted(cache._directory.glob("*/objects/pack/*.pack"))


def asked_of(server: PullServer) -> int:
    """How often git turned to a server since the last time: once to list, and once more to fetch."""
    count = sum(request.method == "GET" for request in server.asked)
    server.asked.clear()
    return count


def large(place: Path, seed: int = 0) -> GitRepository:
    """A repository that cannot be packed smaller."""
    repository = GitRepository(place)
    repository.commit_files({"large": random.Random(seed).randbytes(LARGE_BYTES)})
    return repository


class TestWhatAJobGets:
    def test_it_is_as_a_clone_before_its_files_and_is_gone_afterwards(
        self, forge: Forge, cache: MirrorCache, tmp_path: Path
    ) -> None:
        forge.work.git("tag", "--annotate", "-m", "one", "v1")
        forge.push("topic:refs/heads/team/topic", "v1")
        clone = forge.clone(tmp_path / "shop", str(forge.bare), "--no-checkout")

        def look(place: Path) -> Path:
            assert refs_of(place) == refs_of(clone)
            assert history_of(place) == history_of(clone)
            assert [entry.name for entry in place.iterdir()] == [".git"]
            assert place.parent.stat().st_mode & 0o777 == 0o700
            identities = [asyncio.run(find_identity(each, Memory())) for each in (place, clone)]
            # The third name is the place on the disk.
            assert identities[0].names[:2] == identities[1].names[:2]
            assert identities[0].names[0].startswith("commit:")
            assert identities[0].label == identities[1].label == "shop"
            git(place, "update-ref", "refs/heads/by-the-job", "HEAD")
            return place

        place = in_a_job(cache, forge.bare, look)
        assert not place.parent.exists()
        assert cache._directory.stat().st_mode & 0o777 == 0o700
        in_a_job(cache, forge.bare, lambda place: refs_of(place) == refs_of(clone))

    def test_reviews_sweeps_and_pull_requests_find_what_they_need(self, forge: Forge, cache: MirrorCache) -> None:
        head = forge.work.git("rev-parse", "topic").decode().strip()

        async def job() -> None:
            async with cache.opened(at(forge.bare), revisions=[head]) as clone:
                repository = await open_repository(clone)
                base = await find_base_branch(repository, None)
                assert base is not None
                assert (base.name, base.checked_out) == ("origin/main", True)
                assert len(await list_commits(repository, CommitQuery(since="2001-01-01"))) == 3
                with private_directory() as place:
                    scope, _ = await fetch_pull_request(PullRequestScope("7"), repo=clone, into=place)
                assert scope.head == head
                offline = Settings(reviewer_type="offline")
                for asked in (CommitScope(head), RangeScope(f"origin/main...{head}"), PullRequestScope("7")):
                    review = await codeloupe.review(asked, repo=clone, settings=offline)
                    assert {finding.file for finding in review.findings} == {"shop/average.py"}

        asyncio.run(job())

    def test_branches_tags_and_other_refs_are_there_by_name(self, forge: Forge, cache: MirrorCache) -> None:
        forge.push("topic:refs/heads/team/topic", "main:refs/tags/v1")
        head = forge.work.git("rev-parse", "topic").decode().strip()
        names = ("team/topic", "v1", "refs/pull/7/head", "HEAD")

        def look(clone: Path) -> None:
            assert [file.path for file in read_scope(clone, RangeScope("main...team/topic")).files]
            assert git(clone, "rev-parse", "refs/pull/7/head", "v1", "HEAD").split()[0] == head
            assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/team/topic"

        in_a_job(cache, forge.bare, look, revisions=names, head="team/topic")
        # What was fetched for one job alone is not kept up to date for others, and a commit can be checked out too.
        assert "refs/pull/" not in in_a_job(cache, forge.bare, lambda clone: git(clone, "for-each-ref"))
        assert in_a_job(cache, forge.bare, lambda clone: git(clone, "rev-parse", "HEAD"), head=head) == head

    @each(
        ("revision", "words"),
        [
            ("nowhere", "has no branch, tag or ref 'nowhere'"),
            ("refs/pull/999/head", "has no branch, tag or ref 'refs/pull/999/head'"),
            ("1" * 40, "does not have 111111111111"),
            ("main..topic", "is neither a commit nor a ref"),
            ("--upload-pack=x", "is neither a commit nor a ref"),
            ("", "is neither a commit nor a ref"),
        ],
    )
    def test_what_the_remote_does_not_have_is_an_error(
        self, forge: Forge, tmp_path: Path, revision: str, words: str
    ) -> None:
        cache = MirrorCache(tmp_path / "cache", max_bytes=ROOMY)
        with pytest.raises(RevisionError, match=words) as caught:
            in_a_job(cache, forge.bare, str, revisions=[revision])
        assert caught.value.hint

    def test_remotes_of_unusual_kinds(self, tmp_path: Path, cache: MirrorCache) -> None:
        usual = GitRepository(tmp_path / "usual")
        commits = [usual.commit(), usual.commit()]
        git(tmp_path, "clone", "--quiet", "--depth=1", usual.path.as_uri(), "shallow")
        with pytest.raises(UsageError, match="shallow clone"):
            in_a_job(cache, tmp_path / "shallow", str)
        usual.checkout(commits[0])
        assert in_a_job(cache, usual.path, lambda clone: git(clone, "rev-parse", "HEAD")) == commits[0]
        GitRepository(tmp_path / "empty")
        assert in_a_job(cache, tmp_path / "empty", refs_of) == ["refs/heads/none"]
        git(tmp_path, "init", "--quiet", "--object-format=sha256", "--template=", "sha256")
        long = GitRepository(tmp_path / "sha256").commit()
        assert in_a_job(cache, tmp_path / "sha256", lambda clone: git(clone, "rev-parse", "HEAD")) == long
        # The same address, with another repository in its place.
        shutil.rmtree(usual.path)
        (tmp_path / "sha256").rename(usual.path)
        assert in_a_job(cache, usual.path, lambda clone: git(clone, "rev-parse", "HEAD")) == long


class TestFetching:
    def test_a_commit_that_is_here_is_not_fetched_again(self, forge: Forge, cache: MirrorCache) -> None:
        head = forge.work.git("rev-parse", "main").decode().strip()
        with PullServer(forge.root) as server:
            assert in_a_job(cache, shop(server), history_of, revisions=[head]) == 3
            assert asked_of(server) == 2
            assert in_a_job(cache, shop(server), history_of, revisions=[head]) == 3
            assert asked_of(server) == 0
            # Nothing is new there.
            assert in_a_job(cache, shop(server), history_of) == 3
            assert asked_of(server) == 1
            newer = forge.work.commit_files({"new.py": "x = 1\n"})
            forge.push("main:refs/heads/main")
            assert in_a_job(cache, shop(server), history_of, revisions=["main"]) == 4
            assert asked_of(server) == 2
            # A commit, a tree and a file; what a change of them is based on may come too.
            assert min(int.from_bytes(pack.read_bytes()[8:12], "big") for pack in packs_of(cache)) <= 5
            assert in_a_job(cache, shop(server), history_of, revisions=[newer, head]) == 4
            assert asked_of(server) == 0

    def test_many_jobs_in_several_processes_make_one_fetch(self, forge: Forge, tmp_path: Path) -> None:
        head = forge.work.git("rev-parse", "main").decode().strip()
        all_wait = threading.Event()

        def refuse(_path: str) -> None:
            assert all_wait.wait(PATIENCE_SECONDS)

        with PullServer(forge.root, refuse=refuse) as server:
            words = (sys.executable, "-c", JOBS, str(tmp_path / "cache"), f"{server.url}/owner/shop.git", head, "7")
            processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
            try:
                assert [process.stdout and process.stdout.readline() for process in processes] == ["ready\n"] * 3
            finally:
                all_wait.set()
            assert [process.communicate()[0] for process in processes] == [f"{head}\n"] * 3
            assert asked_of(server) == 2

    def test_a_fetch_that_began_after_the_question_answers_it_and_no_older_one(
        self, forge: Forge, cache: MirrorCache
    ) -> None:
        goes_on = threading.Event()

        def refuse(_path: str) -> None:
            assert goes_on.wait(PATIENCE_SECONDS)

        async def count() -> int:
            async with cache.opened(shop(server)) as clone:
                return history_of(clone)

        async def jobs() -> list[int]:
            first = asyncio.ensure_future(count())
            assert await asyncio.to_thread(comes_to_pass, lambda: bool(server.asked))
            others = [asyncio.ensure_future(count()) for _ in range(3)]
            for _ in range(3):
                await asyncio.sleep(0)  # they have asked now, and wait
            goes_on.set()
            await first
            return await asyncio.gather(*others)

        with PullServer(forge.root, refuse=refuse) as server:
            asyncio.run(jobs())
            # The first one listed and fetched; of the others one listed.
            assert asked_of(server) == 3

    def test_force_pushed_and_deleted_branches_are_followed_while_old_commits_stay(
        self, forge: Forge, cache: MirrorCache
    ) -> None:
        work = forge.work
        old = work.git("rev-parse", "main").decode().strip()
        forge.push("topic:refs/heads/side")

        async def job() -> list[str]:
            async with cache.opened(at(forge.bare), revisions=[old]) as clone:
                work.git("reset", "--quiet", "--hard", "HEAD~1")
                new = work.commit_files({"other.py": "x = 1\n"})
                forge.push("main:refs/heads/main", ":refs/heads/side")
                git(forge.bare, "-c", "gc.pruneExpire=now", "gc", "--quiet")
                async with cache.opened(at(forge.bare)) as other:
                    assert git(other, "rev-parse", "origin/main") == new
                    assert "origin/side" not in git(other, "branch", "--all")
                assert await files_of(clone, old) == ["CHANGES.md"]
                assert git(clone, "rev-parse", "origin/main") == old
            async with cache.opened(at(forge.bare), revisions=[old]) as later:
                return await files_of(later, old)

        assert asyncio.run(job()) == ["CHANGES.md"]

    def test_one_that_was_killed_in_the_middle_of_a_fetch_hinders_nobody(
        self, tmp_path: Path, cache: MirrorCache
    ) -> None:
        head = large(tmp_path / "served" / "large").head()

        def refuse(_path: str) -> Instead | None:
            is_fetch = sum(request.method == "POST" for request in server.asked) == 2
            return Instead(200, first_bytes=LARGE_BYTES // 2) if is_fetch else None

        with PullServer(tmp_path / "served", refuse=refuse) as server:
            url = f"{server.url}/large/.git"
            words = (sys.executable, "-c", JOBS, str(cache._directory), url, head, "1")
            in_a_job(cache, GitRepository(tmp_path / "other").path, str)
            with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
                received = "codeloupe-*/objects/pack/tmp_pack_*"
                assert comes_to_pass(lambda: any(cache._directory.glob(received)))
                process.kill()
            assert any(cache._directory.glob(received))
            server.refuse = lambda _path: None
            assert in_a_job(cache, at(url), history_of, revisions=[head]) == 1
            assert len(held_in(cache)) == 2

    def test_a_job_that_is_cancelled_in_the_middle_of_a_fetch_leaves_nothing(
        self, forge: Forge, cache: MirrorCache
    ) -> None:
        async def job() -> None:
            async with cache.opened(shop(server)):
                pytest.fail("nothing was fetched")

        async def cancelled() -> None:
            task = asyncio.ensure_future(job())
            assert await asyncio.to_thread(comes_to_pass, lambda: bool(server.asked))
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

        with PullServer(forge.root, refuse=lambda _path: Instead(200, hang=True)) as server:
            asyncio.run(cancelled())
            assert held_in(cache) == []
            server.refuse = lambda _path: None
            assert in_a_job(cache, shop(server), history_of) == 3

    def test_a_mirror_of_many_packs_is_replaced_while_its_job_goes_on(
        self, forge: Forge, cache: MirrorCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mirrors, "_MOST_PACKS", 1)

        async def job() -> None:
            async with cache.opened(at(forge.bare)) as clone:
                forge.work.commit_files({"new.py": "x = 1\n"})
                forge.push("main:refs/heads/main")
                async with cache.opened(at(forge.bare)) as newer:
                    assert (history_of(newer), history_of(clone)) == (4, 3)
                assert held_in(cache) == ["shop", "shop"]
            async with cache.opened(at(forge.bare)) as newer:
                assert history_of(newer) == 4
            assert held_in(cache) == ["shop"]

        asyncio.run(job())


class TestDamage:
    @each("damage", ["cut", "empty", "overwritten", "gone", "index", "refs", "config"])
    def test_a_damaged_mirror_is_made_again(self, forge: Forge, tmp_path: Path, damage: str) -> None:
        cache = MirrorCache(tmp_path / "cache", max_bytes=ROOMY)
        head = forge.work.git("rev-parse", "main").decode().strip()
        in_a_job(cache, forge.bare, str)
        (pack,) = packs_of(cache)
        mirror = pack.parents[2]
        pack.chmod(0o600)
        match damage:
            case "cut":
                os.truncate(pack, pack.stat().st_size // 2)
            case "empty":
                os.truncate(pack, 0)
            case "overwritten":
                content = pack.read_bytes()
                pack.write_bytes(content[:12] + b"\xff" * (len(content) - 32) + content[-20:])
            case "gone":
                pack.unlink()
            case "index":
                pack.with_suffix(".idx").unlink()
            case "refs":
                (mirror / "remote-refs").unlink()
            case _:
                (mirror / "config").write_text("[")
        assert in_a_job(cache, forge.bare, history_of, revisions=[head]) == 3
        assert held_in(cache) == ["shop"]
        assert not mirror.exists()

    def test_damage_that_only_a_job_meets_is_mended_for_the_next(self, tmp_path: Path, cache: MirrorCache) -> None:
        repository = large(tmp_path / "large")

        def look(clone: Path) -> list[str]:
            return [file.path for file in read_scope(clone, CommitScope("HEAD")).files]

        in_a_job(cache, repository.path, str)
        (pack,) = packs_of(cache)
        pack.chmod(0o600)
        content = bytearray(pack.read_bytes())
        content[LARGE_BYTES // 2 : LARGE_BYTES // 2 + 100] = b"x" * 100
        pack.write_bytes(content)
        with pytest.raises(GitFailed):
            in_a_job(cache, repository.path, look, revisions=[repository.head()])
        assert in_a_job(cache, repository.path, look, revisions=[repository.head()]) == ["large"]
        assert held_in(cache) == ["large"]

    def test_a_pack_that_somebody_removed_is_missed(self, forge: Forge, cache: MirrorCache) -> None:
        """The tip of the branch is there, and what it leads to is not."""
        in_a_job(cache, forge.bare, str)
        (first,) = packs_of(cache)
        forge.work.commit_files({"new.py": "x = 1\n"})
        forge.push("main:refs/heads/main")
        in_a_job(cache, forge.bare, str)
        for file in first.parent.glob(f"{first.stem}.*"):
            file.unlink()
        assert in_a_job(cache, forge.bare, history_of, revisions=[forge.work.head()]) == 4

    def test_a_remote_that_cannot_be_reached_costs_no_mirror(self, forge: Forge, cache: MirrorCache) -> None:
        head = forge.work.git("rev-parse", "main").decode().strip()
        with PullServer(forge.root) as server:
            in_a_job(cache, shop(server), str)
            server.refuse = lambda _path: Instead(503)
            with pytest.raises(GitFailed, match="could not be reached") as caught:
                in_a_job(cache, shop(server), str)
            assert "check the network" in caught.value.hint
            assert in_a_job(cache, shop(server), history_of, revisions=[head]) == 3


class TestRoom:
    def test_the_mirror_that_was_not_used_for_longest_goes_and_none_in_use(self, tmp_path: Path) -> None:
        cache = MirrorCache(tmp_path / "cache", max_bytes=5 * LARGE_BYTES // 2)
        first, *others = (large(tmp_path / name, seed) for seed, name in enumerate("abcd"))
        places = [first.path, *(repository.path for repository in others)]

        async def jobs() -> None:
            async with cache.opened(at(places[0])):
                pass
            async with cache.opened(at(places[0]), revisions=[first.head()]) as clone:
                (used,) = cache._directory.glob("a-*.1")
                async with cache.opened(at(places[1])):
                    pass
                assert held_in(cache) == ["a", "b"]
                os.utime(used, (1, 1))
                async with cache.opened(at(places[2])) as fetched:
                    assert held_in(cache) == ["a", "c"]
                    async with cache.opened(at(places[1])):
                        assert held_in(cache) == ["a", "b", "c"]
                    assert (history_of(clone), history_of(fetched)) == (1, 1)
                os.utime(next(cache._directory.glob("b-*")), (1, 1))
            # Its use has just ended.
            async with cache.opened(at(places[3])):
                pass
            assert held_in(cache) == ["a", "d"]

        asyncio.run(jobs())

    def test_a_repository_that_is_larger_than_the_cache_is_refused_and_leaves_nothing(self, tmp_path: Path) -> None:
        cache = MirrorCache(tmp_path / "cache", max_bytes=LARGE_BYTES // 2)
        place = large(tmp_path / "large").path
        with pytest.raises(
            RemoteTooLarge, match=r"large exceeds the limit of the repository cache, 150,000 bytes"
        ) as caught:
            in_a_job(cache, place, str)
        assert "max_bytes" in caught.value.hint
        assert held_in(cache) == []

    def test_a_mirror_that_outgrew_the_cache_by_what_is_gone_at_the_remote_is_made_again(self, tmp_path: Path) -> None:
        cache = MirrorCache(tmp_path / "cache", max_bytes=3 * LARGE_BYTES // 2)
        repository = large(tmp_path / "large")
        in_a_job(cache, repository.path, str)
        repository.git("update-ref", "-d", "HEAD")
        newer = large(repository.path, seed=1).head()
        assert in_a_job(cache, repository.path, lambda clone: git(clone, "rev-parse", "HEAD")) == newer
        assert held_in(cache) == ["large"]
        assert len(packs_of(cache)) == 1

    @each("kind", ["open", "file"])
    def test_a_place_that_cannot_be_a_cache_is_an_error(self, forge: Forge, tmp_path: Path, kind: str) -> None:
        place = tmp_path / "cache"
        if kind == "open":
            place.mkdir()
            place.chmod(0o755)
        else:
            place.write_text("")
        with pytest.raises(
            UsageError, match=f"{place} cannot be used|cannot use the repository cache in {place}"
        ) as caught:
            in_a_job(MirrorCache(place, max_bytes=ROOMY), forge.bare, str)
        assert caught.value.hint


class TestSafety:
    def test_nothing_of_a_hostile_repository_runs(self, tmp_path: Path, cache: MirrorCache) -> None:
        trap = make_trap(tmp_path)
        head = trap.repository.head()
        arm(trap)
        place = trap.repository.path
        # An object is missing there, for which git would fetch.
        with pytest.raises(GitFailed):
            in_a_job(cache, place, str)
        (place / ".git" / "refs" / "heads" / "partial").unlink()

        def look(clone: Path) -> None:
            assert {"a.py", "minus.py"} <= {file.path for file in read_scope(clone, CommitScope(head)).files}
            assert "module" not in [entry.name for entry in clone.rglob("*")]

        in_a_job(cache, place, look, revisions=[head])
        assert trap.sprung() == set()
        assert "evil" not in "".join(path.read_text() for path in cache._directory.glob("*/config"))

    def test_a_token_opens_a_private_repository_and_is_seen_nowhere(
        self, forge: Forge, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        cache = MirrorCache(tmp_path / "cache", max_bytes=ROOMY, token_of=lambda _address: TOKEN)
        arguments: list[bytes] = []

        def refuse(_path: str) -> None:
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    arguments.append(file.read_bytes())
                except OSError:  # it has ended
                    continue

        async def job() -> None:
            async with cache.opened(shop(server)) as clone:
                with private_directory() as place:
                    await fetch_pull_request(PullRequestScope("7"), repo=clone, into=place)
                    files = [file for folder in (place, clone, cache._directory) for file in folder.rglob("*")]
                    assert len(files) > 20
                    assert [file for file in files if file.is_file() and TOKEN.encode() in file.read_bytes()] == []

        with PullServer(forge.root, refuse=refuse) as server:
            server.login = f"x-access-token:{TOKEN}"
            asyncio.run(job())
            assert any("Authorization" in request.headers for request in server.asked)
        assert any(b"credential.http://127.0.0.1" in line for line in arguments)
        assert not any(TOKEN.encode() in line for line in arguments)
        assert TOKEN not in caplog.text

    @each(
        ("token", "instead", "words"),
        [
            ("wrong", None, "rejected the token"),
            (TOKEN, Instead(403, text=f"the token {TOKEN} has expired"), "rejected the token"),
            (TOKEN, Instead(500, text=f"the token {TOKEN} broke me"), "could not be reached: .*"),
            (f"{TOKEN}\n", None, "contains an invalid character"),
            ("", None, "requires a login that your git does not have"),
        ],
    )
    def test_a_token_that_is_refused_is_not_repeated(
        self, forge: Forge, tmp_path: Path, token: str, instead: Instead | None, words: str
    ) -> None:
        cache = MirrorCache(tmp_path / "cache", max_bytes=ROOMY, token_of=lambda _address: token)
        with PullServer(forge.root, refuse=lambda _path: instead) as server:
            server.login = f"x-access-token:{TOKEN}"
            with pytest.raises(CodeloupeError, match=words) as caught:
                in_a_job(cache, shop(server), str)
        error = caught.value
        assert error.hint
        assert TOKEN not in f"{error} {error.hint} {getattr(error, 'stderr', '')} {error.__cause__}"

    def test_a_token_goes_to_no_other_host(self, forge: Forge, tmp_path: Path) -> None:
        with PullServer(forge.root) as other, PullServer(forge.root) as server:
            target = f"{other.url}/owner/shop.git/info/refs?service=git-upload-pack"
            server.login, server.refuse = f"x-access-token:{TOKEN}", lambda _path: Instead(302, target)
            other.login = server.login
            mine = server.url.removeprefix("http://")
            cache = MirrorCache(
                tmp_path / "cache",
                max_bytes=ROOMY,
                token_of=lambda address: TOKEN if address.name.startswith(f"{mine}/") else None,
            )
            with pytest.raises(UsageError, match="cannot be fetched: .* 302") as caught:
                in_a_job(cache, shop(server), str)
            assert "may have moved" in caught.value.hint
            with pytest.raises(UsageError, match="requires a login that your git does not have"):
                in_a_job(cache, shop(other), str)
            assert not any("Authorization" in request.headers for request in other.asked)
        # Over https git would follow a redirect, by itself.
        helper, redirects = pull_request._token_login(at("https://git.invalid:8443/owner/shop.git"))
        assert helper.startswith("credential.https://git.invalid:8443.helper=!")
        assert redirects == "http.followRedirects=false"

    def test_without_a_token_the_users_own_helper_is_asked(self, forge: Forge, cache: MirrorCache, home: Path) -> None:
        with PullServer(forge.root) as server:
            server.login = "ada:known"
            (home / "logins").write_text(server.url.replace("://", "://ada:known@") + "\n")
            (home / ".gitconfig").write_text(f"[credential]\n\thelper = store --file {home}/logins\n")
            assert in_a_job(cache, shop(server), history_of) == 3

    @each("name", ["refs/heads/../x", "refs/heads/.x", "refs/heads/x.lock", "refs/heads/a b", "refs/heads/x/", "-x"])
    def test_a_name_that_git_would_choke_on_is_no_ref(self, name: str) -> None:
        assert not mirrors._REF.fullmatch(name)
        assert mirrors._REF.fullmatch("refs/heads/team/topic-1.2")
