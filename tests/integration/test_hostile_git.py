"""A repository in which everything that git could be made to run is set to run, and everything hidden that it can hide.

Each program leaves a mark when it is started. The first half shows that plain git starts every one of them, so that
the second half, in which the git room goes through the same repository and none may be started, could fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from codeloupe.errors import GitFailed, RevisionError
from codeloupe.git.blobs import read_file_at
from codeloupe.git.commits import CommitQuery, list_commits
from codeloupe.git.reading import read_change
from codeloupe.git.repository import find_base_branch, open_repository, resolve
from codeloupe.git.scopes import resolve_scope
from codeloupe.git.snapshot import exported, tree_to_read
from codeloupe.intake import take_in
from codeloupe.model.change import Change
from codeloupe.model.commit import Commit
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    DiffScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)
from codeloupe.review.selection import SelectionRules
from tests.repository import GitRepository

_ATTRIBUTES = """\
[attr]quiet -diff -text -merge
*.conv diff=conv
*.command diff=command
*.filtered filter=plain
*.processed filter=process ident
*.merged merge=evil
minus.py -diff
binary.py binary
macro.py quiet
"""
_SOURCES = (
    "a.py", "x.conv", "x.command", "x.filtered", "x.processed", "x.merged", "x.attributed", "minus.py", "binary.py",
    "macro.py",
)  # fmt: skip
_SCOPES = (
    DefaultScope(),
    UncommittedScope(),
    StagedScope(),
    BaseScope("main"),
    RangeScope("main..feature"),
    RangeScope("main...feature"),
    CommitScope("feature"),
    CommitScope("main"),
    CommitScope("merged"),
)
# What plain git has to be asked for to start each program.
_TRIGGERS = {
    "fsmonitor": "status",
    "hooks-path": "update-ref refs/heads/made HEAD",
    "clean": "add --all",
    "process": "add --all",
    "by-info-attributes": "add --all",
    "smudge": "checkout HEAD -- x.filtered",
    "included-external-diff": "diff",
    "diff-command": "diff",
    "textconv": "show --textconv HEAD",
    "merge-driver": "-c core.hooksPath=/dev/null merge other",
    "ssh": "ls-remote ssh://host.invalid/x",
    "proxy": "ls-remote git://host.invalid/x",
    "other-protocol": "ls-remote https://host.invalid/x",
    "credential": "credential fill",
    "ask-pass": "credential fill",
    "pager": "--paginate log",
    "editor": "-c core.hooksPath=/dev/null commit --allow-empty",
    "gpg": "log signed",
    "alias": "evil",
    "archive": "archive --format=evil HEAD",
    "alternate-refs": "receive-pack .",
    "lazy-fetch": "show partial",
    "submodule-update": "submodule update module",
    "submodule-fsmonitor": "status --ignore-submodules=none",
    "nested-fsmonitor": "-C nested status",
    "usual-hooks": "-c core.hooksPath=.git/hooks update-ref refs/heads/made HEAD",
}
_VARIABLES = {
    "GIT_EXTERNAL_DIFF": "diff",
    "GIT_PAGER": "--paginate log",
    "GIT_SSH_COMMAND": "ls-remote ssh://host.invalid/x",
    "GIT_ASKPASS": "-c credential.helper= credential fill",
    "GIT_EDITOR": "commit --allow-empty",
    "GIT_PROXY_COMMAND": "ls-remote git://host.invalid/x",
}


@dataclass(frozen=True)
class Trap:
    """The repository, and the folders with its programs and with the marks they leave."""

    repository: GitRepository
    programs: Path
    marks: Path

    def program(self, name: str) -> Path:
        """A program that leaves a mark and passes on what it is given."""
        program = self.programs / name
        program.write_text(f"#!/bin/sh\ntouch '{self.marks / name}'\ncat \"$@\" 2>/dev/null\nexit 0\n")
        program.chmod(0o755)
        return program

    def sprung(self) -> set[str]:
        """The programs that were started."""
        return {mark.name for mark in self.marks.iterdir()}


@pytest.fixture
def clean(tmp_path: Path) -> Trap:
    """A repository with a change in every scope, and no program in it yet."""
    repository = GitRepository(tmp_path / "repository")
    trap = Trap(repository, tmp_path / "programs", tmp_path / "marks")
    trap.programs.mkdir()
    trap.marks.mkdir()
    repository.write(".gitattributes", _ATTRIBUTES)
    for name in _SOURCES:
        repository.write(name, "".join(f"{name} {number}\n" for number in range(20)))
    _add_submodule(repository, tmp_path / "library")
    repository.commit("root")
    _commit_on(repository, "other", "x.merged", "other\n")
    _commit_on(repository, "partial", "lost.py", "lost\n")
    _commit_on(repository, "merged", "y.py", "y\n")
    repository.checkout("feature", new=True)
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge", "merged")
    repository.git("branch", "--force", "merged")
    for name in _SOURCES:
        _replace(repository, name, 3, "committed")
    repository.write("nul.py", b"\0\nimport committed\n")
    repository.commit("feature")
    _add_signed(repository)
    for name in _SOURCES:
        _replace(repository, name, 9, "staged")
    repository.git("add", "--all")
    for name in _SOURCES:
        _replace(repository, name, 15, "unstaged")
    repository.write("untracked.py", "import untracked\n")
    repository.write("A.PY", "import other_case\n")
    repository.write("untracked.filtered", "import untracked\n")
    subprocess.run(("git", "pull", "--quiet"), cwd=repository.path / "module", check=True, capture_output=True)
    nested = GitRepository(repository.path / "nested")
    nested.write("n.py", "n\n")
    nested.commit()
    return trap


def _replace(repository: GitRepository, name: str, number: int, word: str) -> None:
    file = repository.path / name
    file.write_text(file.read_text().replace(f"{name} {number}\n", f"import {word}\n"))


def _commit_on(repository: GitRepository, branch: str, name: str, content: str) -> None:
    repository.checkout(branch, new=True)
    repository.write(name, content)
    repository.commit(branch)
    repository.checkout("main")


def _add_submodule(repository: GitRepository, place: Path) -> None:
    library = GitRepository(place)
    library.write("lib.py", "1\n")
    library.commit()
    repository.git("submodule", "--quiet", "add", str(library.path), "module")
    library.commit("second")


def _add_signed(repository: GitRepository) -> None:
    tree = repository.git("rev-parse", "HEAD^{tree}").decode().strip()
    person = "A <a@example.invalid> 1700000000 +0000"
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n"
    raw = f"tree {tree}\nauthor {person}\ncommitter {person}\n{signature}\nsigned\n".encode()
    sha = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw).decode().strip()
    repository.git("branch", "signed", sha)


@pytest.fixture
def trap(clean: Trap) -> Trap:
    """The same repository with every program set to be started, and settings that would bend what git prints."""
    git_dir = clean.repository.path / ".git"
    programs = {name: clean.program(name) for name in _TRIGGERS}
    (git_dir / "config").write_text((git_dir / "config").read_text() + _configuration(programs))
    (clean.programs / "excludes").write_text("*\n* -diff\n")
    (git_dir / "included").write_text(f"[diff]\n\texternal = {programs['included-external-diff']}\n")
    for folder, name in ((clean.programs / "hooks", "hooks-path"), (git_dir / "hooks", "usual-hooks")):
        folder.mkdir()
        for hook in ("reference-transaction", "post-index-change", "pre-commit", "post-checkout", "pre-auto-gc"):
            shutil.copy(programs[name], folder / hook)
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("x.attributed filter=attributed\n*.py -diff\n")
    lender = GitRepository(clean.programs / "lender")
    lender.commit("lent")
    (git_dir / "objects" / "info").mkdir(exist_ok=True)
    (git_dir / "objects" / "info" / "alternates").write_text(f"{lender.path}/.git/objects\n")
    for place, name in (
        (git_dir / "modules" / "module", "submodule"),
        (clean.repository.path / "nested" / ".git", "nested"),
    ):
        with (place / "config").open("a") as config:
            config.write(f"[core]\n\tfsmonitor = {programs[f'{name}-fsmonitor']}\n")
    lost = clean.repository.git("-c", "core.fsmonitor=false", "rev-parse", "partial:lost.py").decode().strip()
    (git_dir / "objects" / lost[:2] / lost[2:]).unlink()
    return clean


def _configuration(programs: dict[str, Path]) -> str:
    return f"""
[core]
    repositoryFormatVersion = 1
    fsmonitor = {programs["fsmonitor"]}
    hooksPath = {programs["fsmonitor"].parent}/hooks
    sshCommand = {programs["ssh"]}
    gitProxy = {programs["proxy"]}
    askPass = {programs["ask-pass"]}
    pager = {programs["pager"]}
    editor = {programs["editor"]}
    alternateRefsCommand = {programs["alternate-refs"]}
    excludesFile = {programs["fsmonitor"].parent}/excludes
    attributesFile = {programs["fsmonitor"].parent}/excludes
    ignoreCase = true
    trustctime = false
    checkStat = minimal
    quotePath = false
    abbrev = 4
    untrackedCache = true
[include]
    path = included
[extensions]
    partialClone = evil
[remote "evil"]
    url = .
    promisor = true
    partialCloneFilter = blob:none
    uploadpack = {programs["lazy-fetch"]}
[filter "plain"]
    clean = {programs["clean"]}
    smudge = {programs["smudge"]}
    required = true
[filter "process"]
    process = {programs["process"]}
[filter "attributed"]
    clean = {programs["by-info-attributes"]}
[diff "command"]
    command = {programs["diff-command"]}
[diff "conv"]
    textconv = {programs["textconv"]}
    cachetextconv = true
[diff]
    algorithm = minimal
    context = 0
    interHunkContext = 50
    renames = false
    noprefix = true
    mnemonicPrefix = true
    ignoreSubmodules = all
    submodule = log
    relative = true
    suppressBlankEmpty = true
    orderFile = {programs["fsmonitor"].parent}/excludes
    colorMoved = zebra
[color]
    ui = always
[merge "evil"]
    driver = {programs["merge-driver"]}
[credential]
    helper = {programs["credential"]}
[url "ext::{programs["other-protocol"]} x"]
    insteadOf = https://
[protocol "ext"]
    allow = always
[gpg]
    program = {programs["gpg"]}
[log]
    showSignature = true
    showRoot = false
    diffMerges = off
    date = relative
[format]
    pretty = oneline
[i18n]
    logOutputEncoding = UTF-16
[status]
    showUntrackedFiles = no
[alias]
    evil = !{programs["alias"]}
[tar "evil"]
    command = {programs["archive"]}
[submodule "module"]
    update = !{programs["submodule-update"]}
    ignore = all
[gc]
    auto = 1
"""


def _plain_git(folder: Path, words: str, **variables: str) -> str:
    """git as a user would start it on a terminal, with nothing switched off."""
    person = {
        f"GIT_{role}_{what}": "a@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TERM": "vt100", **person, **variables}
    master, terminal = os.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            ("git", *words.split()),
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        with process:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(b"protocol=https\nhost=host.invalid\n\n")
                process.stdin.close()
            return _read_to_end(screen)


def _read_to_end(screen: IO[bytes]) -> str:
    shown = b""
    with contextlib.suppress(OSError):  # a terminal that nobody writes to any more is an error, not an end
        while chunk := screen.read(65536):
            shown += chunk
    return shown.decode("utf-8", "replace")


@pytest.mark.parametrize("name", _TRIGGERS)
def test_plain_git_starts_the_program(trap: Trap, name: str) -> None:
    if name == "merge-driver":
        _plain_git(trap.repository.path, "reset --hard")
    _plain_git(trap.repository.path, _TRIGGERS[name])
    assert name in trap.sprung()


@pytest.mark.parametrize("name", _VARIABLES)
def test_plain_git_starts_what_a_variable_names(clean: Trap, name: str) -> None:
    _plain_git(clean.repository.path, _VARIABLES[name], **{name: str(clean.program(name))})
    assert clean.sprung() == {name}


def test_plain_git_hides_code_by_attributes_and_by_its_configuration(trap: Trap) -> None:
    shown = _plain_git(trap.repository.path, "diff --no-ext-diff main -- *.py")
    assert "macro.py" in shown
    assert "import" not in shown
    assert "untracked.py" not in _plain_git(trap.repository.path, "status --short")


async def _see_everything(path: Path) -> tuple[dict[str, Change], dict[str, dict[str, bytes]], tuple[Commit, ...]]:
    """Go through the git room: every scope, its change, its files as they were exported, and the commits."""
    repository = await open_repository(path)
    await find_base_branch(repository, None)
    await resolve(repository, "feature")
    changes: dict[str, Change] = {}
    contents: dict[str, dict[str, bytes]] = {}
    for request in _SCOPES:
        sides = await resolve_scope(repository, request, base_branch=None)
        change = changes[str(request)] = await read_change(repository, sides)
        paths = [file.new_path for file in change.files if file.new_path is not None and not file.is_submodule]
        for chosen in (paths, None):
            async with exported(repository, sides, paths=chosen) as snapshot:
                assert not snapshot.missing
                contents[f"{request} {chosen is None}"] = _files(snapshot.root)
        async with tree_to_read(repository, sides):
            pass
        await read_file_at(repository, sides.base, "a.py")
    return changes, contents, await list_commits(repository, CommitQuery())


def _files(root: Path) -> dict[str, bytes]:
    files = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def test_no_program_is_started_and_nothing_is_seen_otherwise_than_without_them(
    clean: Trap, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = asyncio.run(_see_everything(clean.repository.path))
    trap: Trap = request.getfixturevalue("trap")
    for name in _VARIABLES:
        monkeypatch.setenv(name, str(trap.program(name)))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(trap.program("from-environment")))

    seen = asyncio.run(_see_everything(trap.repository.path))

    assert trap.sprung() == set()
    assert seen[0] == expected[0]
    assert seen[1] == expected[1]
    assert seen[2] == expected[2]


def test_no_code_is_hidden(trap: Trap) -> None:
    changes, contents, _ = asyncio.run(_see_everything(trap.repository.path))
    words = {
        str(DefaultScope()): ("committed", "staged", "unstaged"),
        str(UncommittedScope()): ("staged", "unstaged"),
        str(StagedScope()): ("staged",),
        str(RangeScope("main..feature")): ("committed",),
    }
    for scope, expected in words.items():
        bodies = {file.path: b"".join(hunk.body for hunk in file.hunks).decode() for file in changes[scope].files}
        for name in _SOURCES:
            assert [
                word for word in ("committed", "staged", "unstaged") if f"+import {word}\n" in bodies[name]
            ] == list(expected)
            assert f"import {expected[-1]}\n".encode() in contents[f"{scope} False"][name]
    by_default = {file.path: file for file in changes[str(DefaultScope())].files}
    assert b"+import committed\n" in by_default["nul.py"].hunks[0].body
    assert {"untracked.py", "A.PY", "untracked.filtered"} <= set(by_default)
    assert changes[str(DefaultScope())].nested_repositories == ("nested/",)
    assert trap.sprung() == set()


@pytest.mark.parametrize("request_", [CommitScope("partial"), RangeScope("main..partial")])
def test_what_a_partial_clone_lacks_is_an_error_and_is_not_fetched(trap: Trap, request_: ScopeRequest) -> None:
    async def read() -> Change:
        repository = await open_repository(trap.repository.path)
        return await read_change(repository, await resolve_scope(repository, request_, base_branch=None))

    with pytest.raises(GitFailed) as caught:
        asyncio.run(read())
    assert "git fetch" in caught.value.hint
    assert trap.sprung() == set()


def test_a_diff_is_completed_without_starting_anything(trap: Trap) -> None:
    blobs = [
        trap.repository.git("-c", "core.fsmonitor=false", "rev-parse", name).decode().strip() for name in ("main:a.py",)
    ]
    lost = trap.repository.git("-c", "core.fsmonitor=false", "rev-parse", "partial:lost.py").decode().strip()
    section = "diff --git a/{0} b/{0}\nindex {1}..{2} 100644\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-{3}\n+import x\n"
    data = section.format("a.py", blobs[0], "1" * 40, "a.py 0") + section.format("lost.py", lost, "2" * 40, "lost")

    async def complete() -> frozenset[str]:
        request = DiffScope("-", data.encode())
        async with take_in(request, trap.repository.path, base_branch=None, rules=SelectionRules()) as intake:
            return intake.without_content

    assert asyncio.run(complete()) == {"a.py", "lost.py"}
    assert trap.sprung() == set()


def _default_change(path: Path) -> Change:
    async def read() -> Change:
        repository = await open_repository(path)
        return await read_change(repository, await resolve_scope(repository, DefaultScope(), base_branch=None))

    return asyncio.run(read())


@pytest.fixture
def forked(repository: GitRepository) -> GitRepository:
    """On `feature`, one commit with evil.py ahead of `main`, which went on by two."""
    repository.write("a.py", "a\n")
    repository.commit("root")
    repository.checkout("feature", new=True)
    repository.write("evil.py", "import evil\n")
    repository.commit("evil")
    repository.checkout("main")
    repository.commit("meanwhile")
    repository.commit("later")
    repository.checkout("feature")
    return repository


def test_replaced_objects_hide_nothing(forked: GitRepository) -> None:
    before = _default_change(forked.path).files
    harmless = forked.git("hash-object", "-w", "--stdin", stdin=b"harmless\n").decode().strip()
    forked.git("replace", forked.git("rev-parse", "HEAD:evil.py").decode().strip(), harmless)
    forked.git("replace", forked.head(), "main~2")
    assert "evil" not in _plain_git(forked.path, "log -p feature")
    assert _default_change(forked.path).files == before
    assert b"+import evil\n" in before[0].hunks[0].body


def test_grafted_parents_hide_nothing(forked: GitRepository) -> None:
    before = _default_change(forked.path).files
    (forked.path / ".git" / "info").mkdir(exist_ok=True)
    main, feature = (forked.git("rev-parse", name).decode().strip() for name in ("main", "feature"))
    (forked.path / ".git" / "info" / "grafts").write_text(f"{main} {feature}\n")
    assert _plain_git(forked.path, "merge-base main feature").strip() == feature
    assert _default_change(forked.path).files == before


def test_a_forged_commit_graph_hides_nothing(forked: GitRepository) -> None:
    before = _default_change(forked.path).files
    # git reads the commits that it is asked about themselves, and those before them from the graph.
    child, feature = (forked.git("rev-parse", name).decode().strip() for name in ("main~1", "feature"))
    forked.git("commit-graph", "write", "--reachable")
    _forge_parent(forked.path / ".git" / "objects" / "info" / "commit-graph", child, feature)
    assert _plain_git(forked.path, "merge-base main feature").strip() == feature
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
    assert "import evil" not in _plain_git(forked.path, "diff HEAD")
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
    assert "host.py" in _plain_git(forked.path, "status --short")
    assert _default_change(forked.path) == before
