from __future__ import annotations

import asyncio
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from codeloupe.errors import RevisionError
from codeloupe.git.commits import list_commits
from codeloupe.git.repository import open_repository
from codeloupe.model.change import Commit
from codeloupe.model.sweep import CommitQuery
from tests.long_history import make_long_history
from tests.repository import GitRepository

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
    repository.write("a.txt", "1\n2\n3\n")
    first = repository.commit("first")
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


def test_odd_paths_keep_every_byte(repository: GitRepository) -> None:
    names = {
        "a|b", "tab\there", "line\nbreak", "\x1b[31mred", '"quoted"', " space ", "-dash", "ünï",
        os.fsdecode(b"caf\xe9"), "1\t2\tthree", "\n5\t6\tseven", "a" * 32, "-\t-\tx", "old => new", "{a => b}/c",
    }  # fmt: skip
    for name in names:
        repository.write(name, "x\n")
    repository.commit()
    (commit,) = _list(repository.path)
    assert set(commit.files) == names
    assert (commit.insertions, commit.deletions) == (len(names), 0)


def test_a_message_and_a_path_that_imitate_records_are_text(repository: GitRepository) -> None:
    other = "b" * 40
    repository.write(f"{'0' * 32}{other}", "x\n")
    repository.commit(f"subject\n\n{'0' * 32}{other}\n%x00%H\n1\t2\tfile")
    (commit,) = _list(repository.path)
    assert commit.body == f"{'0' * 32}{other}\n%x00%H\n1\t2\tfile"
    assert commit.files == (f"{'0' * 32}{other}",)


def test_text_in_another_encoding_is_read_as_what_it_is(repository: GitRepository) -> None:
    words, author = "Grüße\n\nvon Zoë", "Zoë <zoë@example.invalid>"
    repository.git("config", "i18n.commitEncoding", "ISO-8859-1")
    by = f"--author={os.fsdecode(author.encode('latin-1'))}"
    repository.git("commit", "--quiet", "--allow-empty", by, "-F", "-", stdin=words.encode("latin-1"))
    raw = repository.git("cat-file", "commit", "HEAD")
    assert b"encoding ISO-8859-1" in raw
    assert author.encode("latin-1") in raw
    (commit,) = _list(repository.path)
    assert (commit.author, commit.email) == ("Zoë", "zoë@example.invalid")
    assert (commit.subject, commit.body) == ("Grüße", "von Zoë")


def test_bytes_that_are_no_text_at_all_do_not_stop_the_list(repository: GitRepository) -> None:
    for header in (b"", b"encoding UTF-8\n", b"encoding no-such-encoding\n", b"encoding ISO-8859-1\n"):
        author = b"Jos\xe9 <jos\xe9@example.invalid> 1700000000 +0000"
        sha = _raw_commit(repository, author=author, message=b"caf\xe9\n\nbod\xff\n", header=header)
        (commit,) = _list(repository.path)
        assert commit.sha == sha
        assert commit.author[:3] == "Jos"
        assert len(commit.author) == len("José")


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        (b"0 +0000", datetime(1970, 1, 1, tzinfo=UTC)),
        (b"1700000000 -1130", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (b"99999999999999999 +0000", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (b"18446744073709551615 +0000", None),
        (b"99999999999999999999999999 +0000", None),
        (b"-1 +0000", None),
        (b"garbage", None),
        (b"", None),
    ],
)
def test_any_date_that_a_commit_may_state_is_read(
    repository: GitRepository, date: bytes, expected: datetime | None
) -> None:
    sha = _raw_commit(repository, author=b"A <a@example.invalid> " + date, message=b"x\n")
    (commit,) = _list(repository.path)
    assert commit.sha == sha
    assert commit.time.tzinfo is UTC
    assert expected is None or commit.time == expected


@pytest.mark.parametrize("author", [b"", b"<>", b" <> 1 +0000", b"no brackets 1 +0000", b"A <a <b> c> 1 +0000"])
def test_a_malformed_author_does_not_stop_the_list(repository: GitRepository, author: bytes) -> None:
    sha = _raw_commit(repository, author=author, message=b"x\n")
    assert [commit.sha for commit in _list(repository.path)] == [sha]


def test_a_nul_in_a_message_does_not_begin_a_new_field(repository: GitRepository) -> None:
    sha = _raw_commit(repository, author=_PERSON.encode(), message=b"sub\0ject\n\nbo\0dy\n")
    (commit,) = _list(repository.path)
    assert (commit.sha, commit.author, commit.files) == (sha, "A", ())
    assert commit.subject == "sub"


def test_renames_and_binary_files_are_counted_as_git_counts_them(repository: GitRepository) -> None:
    repository.write("old name.txt", "".join(f"{number}\n" for number in range(50)))
    repository.write("image.bin", b"\0\1\2")
    repository.commit()
    (repository.path / "old name.txt").rename(repository.path / "new\tname.txt")
    repository.write("new\tname.txt", "".join(f"{number}\n" for number in range(49)) + "x\ny\n")
    repository.write("image.bin", b"\0\1\2\3")
    repository.write("z.py", "x\n")
    repository.commit()
    newest = _list(repository.path)[0]
    assert newest.files == ("image.bin", "new\tname.txt", "z.py")
    assert (newest.insertions, newest.deletions) == (3, 1)


def test_a_merge_counts_against_its_first_parent(repository: GitRepository) -> None:
    repository.write("a.txt", "a\n")
    repository.commit()
    repository.checkout("feature", new=True)
    repository.write("b.txt", "1\n2\n")
    side = repository.commit()
    repository.checkout("main")
    repository.write("c.txt", "c\n")
    first = repository.commit()
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge", "feature")
    merge = next(commit for commit in _list(repository.path) if len(commit.parents) == 2)
    assert merge.parents == (first, side)
    assert (merge.files, merge.insertions, merge.deletions) == (("b.txt",), 2, 0)


def test_the_numbers_are_those_of_git_on_a_history_of_many_kinds(tmp_path: Path) -> None:
    make_long_history(tmp_path / "long", commits=40, seed=3)
    repository = GitRepository(tmp_path / "long")
    words = ("log", "--numstat", "--format=tformat:commit %H")
    expected: dict[str, list[int]] = {}
    for line in repository.git(*words).decode().splitlines():
        if line.startswith("commit "):
            expected[line.split()[1]] = [0, 0, 0]
        elif line:
            added, deleted, _ = line.split("\t")
            totals = list(expected.values())[-1]
            totals[0] += 1
            totals[1] += int(added) if added != "-" else 0
            totals[2] += int(deleted) if deleted != "-" else 0
    seen = {commit.sha: [len(commit.files), commit.insertions, commit.deletions] for commit in _list(repository.path)}
    assert seen == expected
    assert list(seen) == list(expected)


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


@pytest.mark.parametrize("date", ["yesterdya", "2 dayz ago", "", "  ", "last mnday", "today\0", "--all", "x"])
@pytest.mark.parametrize("end", ["since", "until"])
def test_a_misspelt_date_is_refused_and_not_taken_for_now(history: GitRepository, date: str, end: str) -> None:
    with pytest.raises(RevisionError, match="is not a date that git understands") as caught:
        _list(history.path, **{end: date})
    assert "2 days ago" in caught.value.hint


@pytest.mark.parametrize(
    "date",
    [
        "yesterday", "last Monday", "2 weeks ago", "2.weeks.ago", "1 year 3 months ago", "2023-01-02",
        "2023-01-02T03:04:05Z", "Mon, 2 Jan 2023 03:04:05 +0100", "2 Jan 2023 03:04 CEST", "@1700000000",
        "noon yesterday", "1st of May 2023",
    ],
)  # fmt: skip
def test_every_usual_way_to_write_a_date_is_taken(history: GitRepository, date: str) -> None:
    assert isinstance(_list(history.path, since=date), tuple)


@pytest.mark.parametrize("revision", ["gone", "-x", "--all", "gone..main", "main..--output=sprung", ""])
def test_an_unknown_revision_is_refused(history: GitRepository, revision: str) -> None:
    with pytest.raises(RevisionError):
        _list(history.path, revision=revision)
    assert not list(history.path.rglob("sprung"))


def test_replaced_and_grafted_history_is_listed_as_it_is(history: GitRepository, tmp_path: Path) -> None:
    history = history.copied_to(tmp_path / "replaced")
    expected = [commit.sha for commit in _list(history.path)]
    history.git("replace", "HEAD", "HEAD~3")
    (history.path / ".git" / "info").mkdir(exist_ok=True)
    (history.path / ".git" / "info" / "grafts").write_text(f"{expected[0]}\n")
    environment = {"PATH": os.environ["PATH"]}
    plain = subprocess.run(
        ("git", "log", "--format=%s"), cwd=history.path, env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert "c2" not in plain
    assert [commit.sha for commit in _list(history.path)] == expected


def test_a_commit_with_an_old_date_hides_none_that_lies_behind_it(repository: GitRepository) -> None:
    repository.write("a.txt", "1\n")
    first = repository.commit("first")
    tree = repository.git("write-tree").decode().strip()
    old = f"tree {tree}\nparent {first}\nauthor {_PERSON}\ncommitter A <a@example.invalid> 1 +0000\n\nold\n"
    sha = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=old.encode()).decode().strip()
    repository.git("update-ref", "refs/heads/main", sha)
    last = repository.commit("last")
    since = {"since": "2023-01-01"}
    assert [commit.sha for commit in _list(repository.path, **since)] == [last, first]
    assert [commit.sha for commit in _list(repository.path, **since, max_count=1)] == [last]
    assert [commit.files for commit in _list(repository.path, **since)] == [(), ("a.txt",)]
