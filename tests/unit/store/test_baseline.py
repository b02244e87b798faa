"""The file of the baseline: read, checked, written, and taken from the right revision."""

from __future__ import annotations

import asyncio
import os
import stat
from datetime import date
from pathlib import Path

import pytest

from codeloupe.errors import ConfigError, OutputError
from codeloupe.model.baseline import BASELINE_NAME, Baseline, BaselineEntry
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.store import baseline as file
from codeloupe.store.baseline import (
    FIELDS,
    decode_baseline,
    parse_baseline,
    read_baseline,
    read_working_file,
    write_working_file,
)
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.store.baseline_samples import ONE, TEXT, TWO

HINT = FIELDS["fingerprint"][2]
ENTRY = f"version: 1\nentries:\n- fingerprint: {ONE}\n  reason: legacy\n"


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_baseline("known.yaml", text)
    return caught.value


def test_entries_are_read_with_their_lines() -> None:
    baseline = parse_baseline("known.yaml", TEXT)
    assert baseline.name == "known.yaml"
    assert baseline.entries == (
        BaselineEntry(fingerprint=ONE, file="a.py", title="built from text", reason="legacy", line=5),
        BaselineEntry(
            fingerprint=TWO, file="b.py", reason="ours: fine", owner="payments", expires=date(2030, 12, 31), line=10
        ),
    )


@each(
    "text",
    ["", "\n", "# only a comment\n", "\ufeffversion: 1\nentries: []\n", "version: 1\n", "version: 1\nentries:\n"],
)
def test_a_text_without_entries_is_an_empty_baseline(text: str) -> None:
    assert parse_baseline("known.yaml", text).entries == ()


@each(
    ("text", "message", "hint"),
    [
        (
            ENTRY.replace("legacy", ""),
            "known.yaml:4: reason: expected why this finding does not count, found nothing",
            "few",
        ),
        (ENTRY.replace("legacy", "'...'"), "known.yaml:4: reason: expected why this finding", "few words"),
        (ENTRY.replace("  reason: legacy\n", ""), "known.yaml:3: this entry has no reason", "add `reason: `"),
        (
            ENTRY.replace(ONE, "xyz"),
            "known.yaml:3: fingerprint: expected the fingerprint of a finding, found 'xyz'",
            "add",
        ),
        (f"{ENTRY}  expires: tomorrow\n", "known.yaml:5: expires: expected a date such as 2030-12-31", "YYYY-MM-DD"),
        (f"{ENTRY}  expires: \uff12030-01-01\n", "known.yaml:5: expires: expected a date", "YYYY-MM-DD"),
        (f"{ENTRY}  expire: 2030-01-01\n", "known.yaml:5: expire: unknown key", "did you mean `expires`?"),
        (f"{ENTRY}  zzz: [{{a: b}}]\n", "known.yaml:5: zzz: unknown key", "the keys are fingerprint, file"),
        (f"{ENTRY}  reason: again\n", "known.yaml:5: reason: already given on line 4", "keep one"),
        (f"{ENTRY}entry: []\n", "known.yaml:5: entry: unknown key", "did you mean `entries`?"),
        (ENTRY.replace("1", "2", 1), "known.yaml:1: version: this codeloupe reads version 1, found '2'", "update"),
        ("entries: []\n", "known.yaml:1: `version: 1` is missing", "first line"),
        (
            f"{ENTRY}- fingerprint: {ONE}\n  reason: x\n",
            "known.yaml:5: the same fingerprint and file are on line 3",
            "keep",
        ),
        ("version: 1\nentries: none\n", "known.yaml:2: entries: expected a list", "- fingerprint"),
        ("version: 1\nentries: [abc]\n", "known.yaml:2: expected an entry with fingerprint", "key: value"),
        ("- a\n", "known.yaml:1: expected lines of `key: value`, found a list", "key: value"),
        (f"{ENTRY}  owner: [a]\n", "known.yaml:5: expected a plain text here", "quotes"),
        (
            f"{ENTRY}  owner: !!python/name:os.system x\n",
            "known.yaml:5: the tag '!!python/name:os.system' is not",
            "plain value",
        ),
        (f"{ENTRY}  owner: {'x' * 5000}\n", "known.yaml:5: a value longer than 4,096 characters", "shorten"),
        (f"{ENTRY}  owner: a\x1bb\n", "known.yaml:5:11: the character '\\x1b' is not allowed", "UTF-8"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_do(text: str, message: str, hint: str) -> None:
    error = refused(text)
    assert error.message.startswith(message)
    assert hint in error.hint
    assert error.exit_code == 2


def test_all_mistakes_are_told_at_once() -> None:
    error = refused("version: 1\nentries:\n- fingerprint: 12\n- reason: x\n  ownr: y\n")
    assert error.message.split("\n") == [
        "the baseline has 4 mistakes:",
        f"  known.yaml:3: fingerprint: expected {FIELDS['fingerprint'][1]}, found '12' ({HINT})",
        "  known.yaml:3: this entry has no reason (add `reason: `)",
        "  known.yaml:4: this entry has no fingerprint (add `fingerprint: `)",
        "  known.yaml:5: ownr: unknown key (did you mean `owner`?)",
    ]


def test_a_value_is_text_whatever_it_looks_like_and_an_empty_one_is_not_there() -> None:
    digits = "0" * 31 + "1"
    text = f"version: 1\nentries:\n- {{fingerprint: {digits}, reason: yes, owner: 007}}\n"
    text += f"- {{fingerprint: {digits}, file: b.py, reason: x, owner: null, expires: ~, title: ''}}\n"
    first, second = parse_baseline("x", text).entries
    assert (first.fingerprint, first.reason, first.owner) == (digits, "yes", "007")
    assert (second.file, second.owner, second.expires, second.title) == ("b.py", "", None, "")


def test_a_hostile_text_or_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("zzz: " + "[" * 500_000, "zzz: " + "{a: " * 100_000, "entries: " + "[" * 500_000, "? " * 200_000):
        assert "known.yaml" in refused(f"version: 1\n{text}").message
    with pytest.raises(ConfigError, match=r"a\\x1b\[31m:1"):
        parse_baseline("a\x1b[31m", "- x\n")
    monkeypatch.setattr(file, "MOST_ENTRIES", 100)
    many = "".join(f"- {{fingerprint: {number:032x}, reason: x}}\n" for number in range(101))
    assert refused(f"version: 1\nentries:\n{many}").message == "known.yaml:103: more than 100 entries"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / BASELINE_NAME)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_working_file(tmp_path)
    (tmp_path / BASELINE_NAME).unlink()
    (tmp_path / BASELINE_NAME).mkdir()
    with pytest.raises(ConfigError, match="not a regular file"):
        read_working_file(tmp_path)
    with pytest.raises(OutputError, match="cannot be written"):
        write_working_file(tmp_path, TEXT)
    assert [each.name for each in tmp_path.iterdir()] == [BASELINE_NAME]


def test_what_was_written_is_read_and_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_working_file(tmp_path, "")
    (tmp_path / BASELINE_NAME).chmod(0o662)
    write_working_file(tmp_path, TEXT)
    assert stat.S_IMODE((tmp_path / BASELINE_NAME).stat().st_mode) == 0o662
    found = read_working_file(tmp_path)
    assert found.text == TEXT
    assert [entry.fingerprint for entry in found.baseline.entries] == [ONE, TWO]
    assert [each.name for each in tmp_path.iterdir()] == [BASELINE_NAME]
    monkeypatch.setattr(file, "MAX_FILE_BYTES", 10)
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        read_working_file(tmp_path)


def test_a_symbolic_link_is_not_followed_when_read_and_replaced_when_written(tmp_path: Path) -> None:
    assert read_working_file(tmp_path) == file.BaselineFile()
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    (tmp_path / BASELINE_NAME).symlink_to(target)
    with pytest.raises(ConfigError, match="a symbolic link, which is not followed"):
        read_working_file(tmp_path)
    write_working_file(tmp_path, TEXT)
    assert target.read_text() == "precious"
    assert not (tmp_path / BASELINE_NAME).is_symlink()


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no such file or directory"):
        write_working_file(tmp_path / "gone", TEXT)
    with pytest.raises(ConfigError, match=r"base:known:2: not UTF-8 text \(byte 0xff\)"):
        decode_baseline("base:known", b"version: 1\n\xff")


def text(reason: str) -> str:
    return f"version: 1\nentries:\n- fingerprint: {'a' * 32}\n  reason: {reason}\n"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[GitRepository, str, str]:
    """A repository with another baseline in the base, the head, the index and the working tree. It is only read."""
    repository = GitRepository(tmp_path_factory.mktemp("history") / "repository")
    (repository.path / "below").mkdir()
    repository.write(BASELINE_NAME, text("of the base"))
    base = repository.commit()
    repository.write(BASELINE_NAME, text("of the head"))
    head = repository.commit()
    repository.write(BASELINE_NAME, text("of the index"))
    repository.git("add", BASELINE_NAME)
    repository.write(BASELINE_NAME, text("of the tree"))
    return repository, base, head


def read(repository: GitRepository, kind: ScopeKind, base: str | None, head: str | None, *, trusted: bool) -> Baseline:
    scope = Scope(kind, base, head, "a change")
    return asyncio.run(read_baseline(scope, repo=repository.path, trusted=trusted))


@pytest.mark.program
def test_of_a_trusted_change_it_is_the_reviewed_trees_and_what_the_working_tree_says_holds(
    history: tuple[GitRepository, str, str],
) -> None:
    repository, base, head = history
    for kind in ScopeKind:
        found = read(repository, kind, base, head, trusted=True)
        assert [entry.reason for entry in (*found.entries, *found.also)] == ["of the tree"], kind
    below = read_baseline(Scope(ScopeKind.BRANCH, base, None, ""), repo=repository.path / "below", trusted=True)
    assert len(asyncio.run(below).entries) == 1


def test_an_entry_of_the_reviewed_tree_alone_holds_and_is_not_lost(repository: GitRepository) -> None:
    repository.write(BASELINE_NAME, text("then"))
    then = repository.commit()
    repository.git("rm", "--quiet", BASELINE_NAME)
    now = repository.commit()
    repository.write(BASELINE_NAME, text("new").replace("a" * 32, "b" * 32))
    for sha, kept in ((then, ["then"]), (now, [])):
        found = read(repository, ScopeKind.COMMIT, None, sha, trusted=True)
        assert [entry.reason for entry in found.entries] == kept
        assert [entry.reason for entry in found.also] == ["new"]


@pytest.mark.program
def test_of_an_untrusted_change_it_is_the_bases(history: tuple[GitRepository, str, str]) -> None:
    repository, base, head = history
    for kind in ScopeKind:
        (entry,) = read(repository, kind, base, head, trusted=False).entries
        assert entry.reason == "of the base", kind
    assert read(repository, ScopeKind.DIFF_FILE, None, None, trusted=False).entries == ()
    assert read(repository, ScopeKind.COMMIT, None, head, trusted=False).entries == ()


def test_without_a_file_it_is_empty(repository: GitRepository) -> None:
    repository.write("a.py", "")
    sha = repository.commit()
    for kind in ScopeKind:
        for trusted in (True, False):
            assert read(repository, kind, sha, sha, trusted=trusted).entries == (), (kind, trusted)


def test_a_symbolic_link_in_a_commit_or_an_index_is_no_baseline(repository: GitRepository) -> None:
    repository.write("real", text("x"))
    (repository.path / BASELINE_NAME).symlink_to("real")
    sha = repository.commit()
    (repository.path / BASELINE_NAME).unlink()
    for kind in (ScopeKind.STAGED, ScopeKind.RANGE):
        assert read(repository, kind, sha, sha, trusted=True).entries == ()
        assert read(repository, kind, sha, sha, trusted=False).entries == ()


def test_a_mistake_in_a_revision_is_told_with_the_revision(repository: GitRepository) -> None:
    repository.write(BASELINE_NAME, "version: 1\nentrys: []\n")
    sha = repository.commit()
    with pytest.raises(ConfigError, match=f"{sha[:12]}:{BASELINE_NAME}:2: entrys: unknown key"):
        read(repository, ScopeKind.RANGE, sha, sha, trusted=False)
    with pytest.raises(ConfigError, match=f":{BASELINE_NAME}:2: entrys: unknown key"):
        read(repository, ScopeKind.STAGED, sha, None, trusted=True)
