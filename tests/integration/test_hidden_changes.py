"""What makes plain git overlook a change: replaced, grafted and forged history, a lying monitor, another work tree."""

import asyncio
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import RevisionError
from codeloupe.git.changes import read_change
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.change import Change
from codeloupe.model.scope import DefaultScope
from tests.hidden_material import CHANGES, FILES, HARMLESS, LINE, LINKS, MADE_EXECUTABLE, MOVES, plant
from tests.hostile_repository import plain_git
from tests.repository import GitRepository
from tests.warm_program import codeloupe


def _default_change(path: Path) -> Change:
    async def read() -> Change:
        repository = await open_repository(path)
        return await read_change(repository, await resolve_scope(repository, DefaultScope(), base_branch=None))

    return asyncio.run(read())


@pytest.fixture
def forked(repository: GitRepository) -> GitRepository:
    """On `feature`, one commit with evil.py ahead of `main`, which went on by two."""
    repository.commit_files({"a.py": "a\n"}, "root")
    repository.commit_files({"evil.py": "import evil\n"}, "evil", branch="feature")
    repository.checkout("main")
    repository.commit("meanwhile")
    repository.commit("later")
    repository.checkout("feature")
    return repository


def test_replaced_objects_hide_nothing(forked: GitRepository) -> None:
    before = _default_change(forked.path).files
    harmless = forked.git("hash-object", "-w", "--stdin", stdin=b"harmless\n").decode().strip()
    forked.git("replace", "HEAD:evil.py", harmless)
    forked.git("replace", forked.head(), "main~2")
    assert "evil" not in plain_git(forked.path, "log -p feature")
    assert _default_change(forked.path).files == before
    assert b"+import evil\n" in before[0].hunks[0].body


def test_grafted_parents_hide_nothing(forked: GitRepository) -> None:
    before = _default_change(forked.path).files
    (forked.path / ".git" / "info").mkdir(exist_ok=True)
    main, feature = (forked.git("rev-parse", name).decode().strip() for name in ("main", "feature"))
    (forked.path / ".git" / "info" / "grafts").write_text(f"{main} {feature}\n")
    assert plain_git(forked.path, "merge-base main feature").split()[-1] == feature
    assert _default_change(forked.path).files == before


def test_a_forged_commit_graph_hides_nothing(forked: GitRepository) -> None:
    before = _default_change(forked.path).files
    # git reads the commits that it is asked about themselves, and those before them from the graph.
    child, feature = (forked.git("rev-parse", name).decode().strip() for name in ("main~1", "feature"))
    forked.git("commit-graph", "write", "--reachable")
    _forge_parent(forked.path / ".git" / "objects" / "info" / "commit-graph", child, feature)
    assert plain_git(forked.path, "merge-base main feature").split()[-1] == feature
    assert _default_change(forked.path).files == before


def _forge_parent(graph: Path, child: str, parent: str) -> None:
    """Write into a commit graph that `child` has that one parent, and is newer than it."""
    graph.chmod(0o600)
    data = bytearray(graph.read_bytes())
    rows = [struct.unpack_from(">4sQ", data, 8 + 12 * number) for number in range(data[6])]
    chunks: dict[bytes, int] = dict(rows)
    count = struct.unpack_from(">I", data, chunks[b"OIDF"] + 255 * 4)[0]
    names = [data[chunks[b"OIDL"] + 20 * i : chunks[b"OIDL"] + 20 * (i + 1)].hex() for i in range(count)]
    place = chunks[b"CDAT"] + 36 * names.index(child)
    struct.pack_into(">I", data, place + 20, names.index(parent))
    generation = struct.unpack_from(">I", data, place + 28)[0]
    struct.pack_into(">I", data, place + 28, generation + (10 << 2))
    graph.write_bytes(data)


def test_a_file_system_monitor_that_denies_every_change_hides_nothing(forked: GitRepository, tmp_path: Path) -> None:
    liar = tmp_path / "liar"
    liar.write_text("#!/bin/sh\nprintf 'token\\0'\n")
    liar.chmod(0o755)
    forked.git("config", "core.fsmonitor", str(liar))
    forked.git("config", "core.fsmonitorHookVersion", "2")
    forked.git("update-index", "--fsmonitor")
    forked.git("status")
    forked.write("a.py", "import evil\n")
    assert "+import evil" not in plain_git(forked.path, "diff --no-color HEAD")
    (file, _) = _default_change(forked.path).files
    assert file.path == "a.py"
    assert b"+import evil\n" in file.hunks[0].body


def test_a_cut_history_is_an_error_and_no_empty_change(forked: GitRepository) -> None:
    (forked.path / ".git" / "shallow").write_text(f"{forked.head()}\n")
    with pytest.raises(RevisionError, match="shallow clone"):
        _default_change(forked.path)


def test_a_work_tree_elsewhere_is_not_looked_at(forked: GitRepository, tmp_path: Path) -> None:
    before = _default_change(forked.path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "host.py").write_text("host = 'secret'\n")
    forked.git("config", "core.worktree", str(elsewhere))
    assert "host.py" in plain_git(forked.path, "status --short")
    assert _default_change(forked.path) == before


_ALL_FILES = (*FILES, *MOVES.values(), *MADE_EXECUTABLE, *LINKS, "module", "link.sh")
_HIDDEN_FILES = [name for name in _ALL_FILES if name not in HARMLESS]


def _reviewed(repository: GitRepository, *words: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code and text of a review by the analysers, and its JSON, where there is one."""
    report = repository.path.with_suffix(".json")
    report.unlink(missing_ok=True)
    shown = ("--reviewer", "offline", "-v", "--format", "text", "--format", "json", "-o", str(report))
    ended = codeloupe("review", *words, *shown, cwd=repository.path)
    return ended.exit_code, ended.stdout + ended.stderr, json.loads(report.read_bytes()) if report.exists() else {}


def _unaccounted(document: dict[str, Any], *, trusted: bool) -> list[str]:
    """The hidden files of which neither a finding nor a gap tells; of a trusted change a reason is enough."""
    told = {one["file"] for one in document["findings"] if trusted or one["suppression"] is None}
    told |= {one["file"] for one in document["coverage"]["skipped"] if trusted or not one.get("accepted")}
    told |= {file for unit in document["coverage"]["units_failed"] for file in unit["files"]}
    # Of a trusted change the edited line is all there is to read.
    return [name for name in _HIDDEN_FILES if name not in told and not (trusted and "edited" in name)]


@pytest.mark.defect("T1")
@pytest.mark.defect("T2")
@pytest.mark.defect("T3")
@pytest.mark.defect("T9")
@pytest.mark.defect("T15")
def test_nothing_that_a_stranger_hides_is_green(tmp_path: Path) -> None:
    assert len(_HIDDEN_FILES) + len(CHANGES) > 100
    hidden = GitRepository(tmp_path / "hidden")
    plant(hidden)
    exit_code, _, document = _reviewed(hidden, "main...HEAD", "--untrusted")
    assert exit_code == 1
    green = _unaccounted(document, trusted=False)
    for number, (name, plan) in enumerate(CHANGES.items()):
        repository = GitRepository(tmp_path / str(number))
        exit_code, text, _ = _reviewed(repository, *plan(repository), "--untrusted")
        green += [name] if exit_code == 0 or "PASS" in text else []
    assert green == []


@pytest.mark.defect("T1")
@pytest.mark.defect("T2")
@pytest.mark.defect("T3")
def test_what_a_trusted_change_leaves_unread_is_said(tmp_path: Path) -> None:
    hidden = GitRepository(tmp_path / "hidden")
    plant(hidden)
    _, text, document = _reviewed(hidden, "main...HEAD")
    unsaid = _unaccounted(document, trusted=True)
    unsaid += [one["file"] for one in document["coverage"]["skipped"] if one["reason"] not in text]
    for number, (name, plan) in enumerate(CHANGES.items()):
        repository = GitRepository(tmp_path / str(number))
        exit_code, text, document = _reviewed(repository, *plan(repository))
        said = exit_code or document["coverage"]["skipped"] or "against trunk" in text
        unsaid += [name] if not said or ("PASS" in text and document.get("nothing_to_review")) else []
    assert unsaid == []


@pytest.mark.defect("T3")
def test_a_sweep_reads_what_is_moved_or_made_executable(repository: GitRepository) -> None:
    repository.commit_files({"docs/a.txt": "# x\n" * 60 + LINE, "tool.txt": LINE}, "base")
    repository.checkout("change", new=True)
    repository.git("mv", "docs/a.txt", "conftest.py")
    repository.commit_staged("move")
    (repository.path / "tool.txt").chmod(0o755)
    repository.commit("mode")
    words = ("commits", "main..HEAD", "--untrusted", "--reviewer", "offline", "--format", "json")
    document = json.loads(codeloupe(*words, cwd=repository.path).stdout)
    assert [one["verdict"] for one in document["commits"]] == ["FIX", "FIX"]
