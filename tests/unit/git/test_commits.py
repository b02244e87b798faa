import asyncio
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from codeloupe.errors import RevisionError
from codeloupe.git.commits import CommitChange, list_commits, only_own, read_commit_changes
from codeloupe.git.repository import open_repository
from codeloupe.model.change import Change, Commit, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.scope import CommitScope
from codeloupe.model.sweep import CommitQuery
from codeloupe.system.process import Command, Completed, run
from tests.diff_checks import read_scope
from tests.long_history import make_long_history
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.program

_PERSON = "A <a@example.invalid> 1700000000 +0000"


def _list(path: Path, **limits: object) -> tuple[Commit, ...]:
    async def go() -> tuple[Commit, ...]:
        return await list_commits(await open_repository(path), CommitQuery(**limits))  # type: ignore[arg-type]  # fields

    return asyncio.run(go())


def _raw_commit(repository: GitRepository, *, author: bytes, message: bytes, header: bytes = b"") -> str:
    """A commit as bytes, with what no git would write."""
    tree = repository.git("write-tree").strip()
    raw = b"tree %s\nauthor %s\ncommitter %s\n%s\n%s" % (tree, author, _PERSON.encode(), header, message)
    sha = repository.git("hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=raw).decode().strip()
    repository.git("update-ref", "refs/heads/main", sha)
    return sha


def test_every_field_is_as_it_was_written(repository: GitRepository) -> None:
    first = repository.commit_files({"a.txt": "1\n2\n3\n"}, "first")
    repository.write("a.txt", "1\ntwo\n3\n4\n")
    repository.write("folder/b.txt", "x\n")
    message = "Subject | with\ttab and \x1b[31mESC\x1b[0m\n\nBody | one\n\n  two\n--\x01\x02\n" + "f" * 32 + "\n\n\n"
    second = repository.commit(message)

    newest, oldest = _list(repository.path)

    assert newest == Commit(
        sha=second,
        author="Ada Example",
        email="ada@example.invalid",
        time=datetime.fromtimestamp(1_700_000_060, tz=UTC),
        subject="Subject | with\ttab and \x1b[31mESC\x1b[0m",
        body="Body | one\n\n  two\n--\x01\x02\n" + "f" * 32,
        files=("a.txt", "folder/b.txt"),
        insertions=3,
        deletions=1,
        parents=(first,),
    )
    assert (oldest.sha, oldest.parents, oldest.body) == (first, (), "")
    assert (oldest.files, oldest.insertions, oldest.deletions) == (("a.txt",), 3, 0)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Five commits, `c0` to `c4`, a minute apart; `c3` is by somebody else; `side` parted at `c1`. To be read only."""
    repository = GitRepository(tmp_path_factory.mktemp("history") / "repository")
    for number in range(5):
        author = ("-c", "user.name=Bob (he) [x].*") if number == 3 else ()
        repository.git(*author, "commit", "--quiet", "--allow-empty", "-m", f"c{number}")
        repository._commits += 1  # a minute later
        if number == 1:
            repository.branch("side")
    repository.checkout("side")
    repository.commit("s")
    repository.checkout("main")
    return repository


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, "c4 c3 c2 c1 c0"),
        ({"max_count": 2}, "c4 c3"),
        ({"max_count": 0}, ""),
        ({"revision": "main~2"}, "c2 c1 c0"),
        ({"revision": "main~2..main"}, "c4 c3"),
        ({"revision": "main~1.."}, "c4"),
        ({"revision": "..side"}, "s"),
        ({"revision": "side...main~1"}, "s c3 c2"),
        ({"since": "2023-11-14T22:16:00Z"}, "c4 c3"),
        ({"since": "@1700000180"}, "c4 c3"),
        ({"until": "2023-11-14T22:14:30Z"}, "c1 c0"),
        ({"since": "2023-11-14T22:14:00Z", "until": "2023-11-14T22:15:30Z"}, "c2 c1"),
        ({"author": "Bob (he) [x].*"}, "c3"),
        ({"author": "Ada", "max_count": 1}, "c4"),
        ({"author": "--all"}, ""),
        ({"author": ".*"}, "c3"),
    ],
)
def test_a_query_chooses_the_commits(history: GitRepository, limits: dict[str, object], expected: str) -> None:
    assert [commit.subject for commit in _list(history.path, **limits)] == expected.split()


def test_every_usual_way_to_write_a_date_is_taken_and_a_misspelt_one_not_taken_for_now(history: GitRepository) -> None:
    for date in (
        *("yesterday", "last Monday", "2 weeks ago", "2.weeks.ago", "1 year 3 months ago", "2023-01-02", "@1700000000"),
        *("2023-01-02T03:04:05Z", "Mon, 2 Jan 2023 03:04:05 +0100", "2 Jan 2023 03:04 CEST", "noon yesterday"),
        "1st of May 2023",
    ):
        assert isinstance(_list(history.path, since=date), tuple)
    for date in ("yesterdya", "2 dayz ago", "", "  ", "last mnday", "today\0", "--all", "x"):
        for end in ("since", "until"):
            with pytest.raises(RevisionError, match="is not a date that git understands") as caught:
                _list(history.path, **{end: date})
            assert "2 days ago" in caught.value.hint


def test_an_unknown_revision_is_refused(history: GitRepository) -> None:
    for revision in ("gone", "-x", "--all", "gone..main", "main..--output=sprung", ""):
        with pytest.raises(RevisionError):
            _list(history.path, revision=revision)
    assert not list(history.path.rglob("sprung"))


def test_a_commit_with_an_old_date_hides_none_that_lies_behind_it(repository: GitRepository) -> None:
    first = repository.commit_files({"a.txt": "1\n"}, "first")
    tree = repository.git("write-tree").decode().strip()
    old = f"tree {tree}\nparent {first}\nauthor {_PERSON}\ncommitter A <a@example.invalid> 1 +0000\n\nold\n"
    sha = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=old.encode()).decode().strip()
    repository.git("update-ref", "refs/heads/main", sha)
    last = repository.commit("last")
    since = {"since": "2023-01-01"}
    assert [commit.sha for commit in _list(repository.path, **since)] == [last, first]
    assert [commit.sha for commit in _list(repository.path, **since, max_count=1)] == [last]
    assert [commit.files for commit in _list(repository.path, **since)] == [(), ("a.txt",)]


def read(path: Path, *, query: CommitQuery | None = None) -> list[CommitChange]:
    asked = query or CommitQuery()

    async def go() -> list[CommitChange]:
        repository = await open_repository(path)
        commits = await list_commits(repository, asked)
        changes = read_commit_changes(repository, commits, merges=asked.looks_into_merges)
        return [change async for change in changes]

    return asyncio.run(go())


def by_subject(changes: list[CommitChange]) -> dict[str, CommitChange]:
    return {change.commit.subject: change for change in changes}


def changed(change: CommitChange) -> dict[str, str]:
    """The added and deleted lines of each file."""
    assert change.change is not None, change.problem
    return {
        file.path: " ".join(
            f"{'+' if line.kind == 'added' else '-'}{line.text.decode()}"
            for hunk in file.hunks
            for line in hunk.lines()
            if line.kind != "context"
        )
        for file in change.change.files
    }


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A repository with sixty commits, and their names, the oldest first. To be read only."""
    path = tmp_path_factory.mktemp("long") / "repository"
    return path, make_long_history(path, commits=60, seed=7)


def test_each_change_is_the_one_that_the_commit_alone_gives(long: tuple[Path, list[str]]) -> None:
    path, names = long
    changes = read(path)
    assert [change.commit.sha for change in changes] == names[::-1]
    for change in changes[::6]:
        assert change.change == read_scope(path, CommitScope(change.commit.sha))
    for change in changes:
        assert change.change is not None
        assert [file.path for file in change.change.files] == list(change.commit.files)
        assert sum(file.added for file in change.change.files if not file.binary) == change.commit.insertions
        assert sum(file.deleted for file in change.change.files if not file.binary) == change.commit.deletions


def test_many_commits_cost_a_few_processes(repository: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = (
        f"commit refs/heads/main\ncommitter A <a@example.invalid> {number} +0000\ndata 0\n"
        f"M 100644 inline a.txt\ndata 3\n{number}\n"
        for number in range(10, 70)
    )
    repository.git("fast-import", "--quiet", stdin="".join(commits).encode())
    started: list[str] = []

    async def counting(what: Command) -> Completed:
        started.append(" ".join(what.argv))
        return await run(what)

    monkeypatch.setattr("codeloupe.git.command.run_program", counting)
    assert len(read(repository.path)) == 60
    assert len([words for words in started if " log " in words]) == 1 + 2


def test_text_that_imitates_the_marks_and_odd_names_is_content(repository: GitRepository) -> None:
    mark = "f" * 32
    names = ['quo"ted', "tab\there", "line\nbreak", "ünï", os.fsdecode(b"caf\xe9"), f"{mark}{'a' * 40}", " "]
    for name in names:
        repository.write(name, f"{mark}{'b' * 40}\n\ndiff --git a/x b/x\n@@@ -1 -1 +1 @@@\n")
    repository.commit(f"subject {mark}\n\n{mark}{'c' * 40}\n")
    repository.commit("nothing")
    newest, oldest = read(repository.path)
    assert newest.change is not None
    assert newest.change.files == ()
    assert oldest.change == read_scope(repository.path, CommitScope(oldest.commit.sha))
    assert set(oldest.commit.files) == set(names)


def test_a_commit_that_cannot_be_read_takes_nothing_from_the_others(repository: GitRepository) -> None:
    for number in range(3):
        repository.commit_files({f"{number}.txt": f"{number}\n"}, f"c{number}")

    async def go() -> list[CommitChange]:
        opened = await open_repository(repository.path)
        commits = await list_commits(opened, CommitQuery())
        blob = repository.git("rev-parse", "HEAD~1:1.txt").decode().strip()
        (repository.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
        return [change async for change in read_commit_changes(opened, commits)]

    newest, middle, oldest = asyncio.run(go())
    assert changed(newest) == {"2.txt": "+2"}
    assert changed(oldest) == {"0.txt": "+0"}
    assert middle.change is None
    assert "unable to read" in middle.problem
    assert (middle.commit.files, middle.commit.insertions) == ((), 0)


def test_a_commit_at_the_edge_of_a_shallow_clone_is_unknown_and_not_the_whole_tree(
    repository: GitRepository, tmp_path: Path
) -> None:
    for number in range(3):
        repository.commit_files({f"{number}.txt": "x\n" * 100}, f"c{number}")
    clone = tmp_path / "clone"
    words = ("git", "clone", "--quiet", "--depth=2", f"file://{repository.path}", str(clone))
    subprocess.run(words, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    newest, edge = read(clone)
    assert changed(newest).keys() == {"2.txt"}
    assert edge.change is None
    assert "shallow clone" in edge.problem
    assert "git fetch --deepen=1" in edge.problem
    assert (edge.commit.files, edge.commit.insertions) == ((), 0)


@pytest.fixture
def merged(repository: GitRepository) -> GitRepository:
    """`main` with a merge of `side`: `a.txt` was changed on both sides, and by the merge itself, as was `new.txt`."""
    lines = [f"{number}" for number in range(1, 41)]
    repository.commit_files({"a.txt": "\n".join(lines) + "\n", "gone.txt": "x\n"}, "base")
    repository.checkout("side", new=True)
    lines[4] = "five"
    repository.write("a.txt", "\n".join(lines) + "\n")
    repository.write("side.txt", "s\n")
    repository.git("-c", "user.name=Bob", "add", "--all")
    repository.git("-c", "user.name=Bob", "commit", "--quiet", "-m", "side 1")
    repository.checkout("main")
    lines[4], lines[34] = "5", "thirtyfive"
    repository.commit_files({"a.txt": "\n".join(lines) + "\n"}, "main 1")
    repository.git("merge", "--quiet", "--no-ff", "--no-commit", "side")
    lines[4], lines[19] = "five", "by the merge"
    repository.write("a.txt", "\n".join(lines) + "\n")
    repository.write("new.txt", "n\n")
    repository.remove("gone.txt")
    repository.commit("merge")
    repository.commit_files({"a.txt": "\n".join(lines) + "\nend\n"}, "main 2")
    return repository


def test_a_merge_is_one_change_by_default_and_what_it_brought_in_is_not_there_again(merged: GitRepository) -> None:
    changes = by_subject(read(merged.path))
    assert list(changes) == ["main 2", "merge", "main 1", "base"]
    assert changed(changes["merge"]) == {
        "a.txt": "-5 +five -20 +by the merge",
        "gone.txt": "-x",
        "new.txt": "+n",
        "side.txt": "+s",
    }
    assert (changes["merge"].commit.insertions, changes["merge"].commit.deletions) == (4, 3)


@pytest.mark.parametrize("query", [CommitQuery(merges=True), CommitQuery(author="example.invalid")])
def test_with_merges_each_commit_is_there_and_a_merge_is_what_it_changed_itself(
    merged: GitRepository, query: CommitQuery
) -> None:
    changes = by_subject(read(merged.path, query=query))
    assert set(changes) == {"main 2", "merge", "main 1", "side 1", "base"}
    assert changed(changes["side 1"]) == {"a.txt": "-5 +five", "side.txt": "+s"}
    assert changed(changes["merge"]) == {"a.txt": "-20 +by the merge", "gone.txt": "-x", "new.txt": "+n"}
    assert (changes["merge"].commit.insertions, changes["merge"].commit.deletions) == (2, 2)
    assert changes["merge"].commit.files == ("a.txt", "gone.txt", "new.txt")
    assert list(by_subject(read(merged.path, query=CommitQuery(author="Bob")))) == ["side 1"]


@each("object_format", ["sha1", "sha256"])
def test_an_octopus_merge_and_a_repository_with_long_names_are_read(tmp_path: Path, object_format: str) -> None:
    repository = GitRepository(tmp_path / "repository")
    shutil.rmtree(repository.path / ".git")
    repository.git("init", "--quiet", "--template=", "--initial-branch=main", f"--object-format={object_format}")
    repository.commit("base")
    for name in ("one", "two"):
        repository.commit_files({f"{name}.txt": f"{name}\n"}, name, branch=name)
        repository.checkout("main")
    repository.git("merge", "--quiet", "--no-ff", "one", "two")
    repository.write("own.txt", "own\n")
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--amend", "-m", "merge")
    whole, own = (
        by_subject(read(repository.path, query=CommitQuery(merges=merges)))["merge"] for merges in (False, True)
    )
    assert changed(whole) == {"one.txt": "+one", "own.txt": "+own", "two.txt": "+two"}
    assert changed(own) == {"own.txt": "+own"}
    assert {len(name) for name in whole.commit.parents} == {40 if object_format == "sha1" else 64}
    assert len(whole.commit.parents) == 3


def test_where_two_diffs_disagree_on_the_place_the_whole_file_stays() -> None:
    hunk = Hunk(1, 1, 1, 1, b"-a\n+b\n", added=1, deleted=1)
    file = FileChange("a", "a", FileStatus.MODIFIED, hunks=(hunk,))
    change = Change(Scope(ScopeKind.COMMIT, None, "a" * 40, "merge"), (file,))
    assert only_own(change, {"a": ((500, 501),)}).files == (file,)
    assert only_own(change, {"b": None}).files == ()


def test_bytes_that_no_git_would_write_do_not_stop_the_list(repository: GitRepository) -> None:
    def only(**parts: bytes) -> Commit:
        sha = _raw_commit(repository, **{"author": _PERSON.encode(), "message": b"x\n", **parts})
        (commit,) = _list(repository.path)
        assert commit.sha == sha
        assert commit.time.tzinfo is UTC
        return commit

    for header in (b"", b"encoding UTF-8\n", b"encoding no-such-encoding\n", b"encoding ISO-8859-1\n"):
        author = b"Jos\xe9 <jos\xe9@example.invalid> 1700000000 +0000"
        found = only(author=author, message=b"caf\xe9\n\nbod\xff\n", header=header).author
        assert (found[:3], len(found)) == ("Jos", 4)
    for malformed in (b"", b"<>", b" <> 1 +0000", b"no brackets 1 +0000", b"A <a <b> c> 1 +0000"):
        only(author=malformed)
    with_nul = only(message=b"sub\0ject\n\nbo\0dy\n")
    assert (with_nul.author, with_nul.subject, with_nul.files) == ("A", "sub", ())
    dates = {
        b"0 +0000": datetime(1970, 1, 1, tzinfo=UTC),
        b"1700000000 -1130": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        b"99999999999999999 +0000": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    }
    for date in (*dates, b"18446744073709551615 +0000", b"9" * 26 + b" +0000", b"-1 +0000", b"garbage", b""):
        moment = only(author=b"A <a@example.invalid> " + date).time
        assert moment == dates.get(date, moment)
