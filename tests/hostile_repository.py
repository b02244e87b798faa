"""A repository in which everything that git could be made to run is set to run, and hidden what can be hidden."""

import contextlib
import dataclasses
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

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
SOURCES = (
    "a.py", "x.conv", "x.command", "x.filtered", "x.processed", "x.merged", "x.attributed", "minus.py", "binary.py",
    "macro.py",
)  # fmt: skip
# What plain git has to be asked for to start each program.
TRIGGERS = {
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
VARIABLES = {
    "GIT_EXTERNAL_DIFF": "diff",
    "GIT_PAGER": "--paginate log",
    "GIT_SSH_COMMAND": "ls-remote ssh://host.invalid/x",
    "GIT_ASKPASS": "-c credential.helper= credential fill",
    "GIT_EDITOR": "commit --allow-empty",
    "GIT_PROXY_COMMAND": "ls-remote git://host.invalid/x",
}
_HOOKS = ("reference-transaction", "post-index-change", "pre-commit", "post-checkout", "pre-auto-gc")
_CONFIGURATION = """
[core]
    repositoryFormatVersion = 1
    fsmonitor = @folder@/fsmonitor
    hooksPath = @folder@/hooks
    sshCommand = @folder@/ssh
    gitProxy = @folder@/proxy
    askPass = @folder@/ask-pass
    pager = @folder@/pager
    editor = @folder@/editor
    alternateRefsCommand = @folder@/alternate-refs
    excludesFile = @folder@/excludes
    attributesFile = @folder@/excludes
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
    uploadpack = @folder@/lazy-fetch
[filter "plain"]
    clean = @folder@/clean
    smudge = @folder@/smudge
    required = true
[filter "process"]
    process = @folder@/process
[filter "attributed"]
    clean = @folder@/by-info-attributes
[diff "command"]
    command = @folder@/diff-command
[diff "conv"]
    textconv = @folder@/textconv
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
    orderFile = @folder@/excludes
    colorMoved = zebra
[color]
    ui = always
[merge "evil"]
    driver = @folder@/merge-driver
[credential]
    helper = @folder@/credential
[url "ext::@folder@/other-protocol x"]
    insteadOf = https://
[protocol "ext"]
    allow = always
[gpg]
    program = @folder@/gpg
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
    evil = !@folder@/alias
[tar "evil"]
    command = @folder@/archive
[submodule "module"]
    update = !@folder@/submodule-update
    ignore = all
[gc]
    auto = 1
"""


@dataclass(frozen=True)
class Trap:
    """The repository, and the folders with its programs and with the marks that they leave when they are started."""

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

    def copy(self, folder: Path) -> Self:
        """The same repository again; its programs work as they did, and leave their marks where they did."""
        for mark in self.marks.iterdir():
            mark.unlink()
        return dataclasses.replace(self, repository=self.repository.copied_to(folder / "repository"))


def make_trap(folder: Path) -> Trap:
    """A repository with a change in every scope, and no program in it yet."""
    trap = Trap(GitRepository(folder / "repository"), folder / "programs", folder / "marks")
    trap.programs.mkdir()
    trap.marks.mkdir()
    repository = trap.repository
    repository.write(".gitattributes", _ATTRIBUTES)
    for name in SOURCES:
        repository.write(name, "".join(f"{name} {number}\n" for number in range(20)))
    _add_submodule(repository, folder / "library")
    repository.commit("root")
    _commit_on(repository, "other", "x.merged", "other\n")
    _commit_on(repository, "partial", "lost.py", "lost\n")
    _commit_on(repository, "merged", "y.py", "y\n")
    repository.checkout("feature", new=True)
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge", "merged")
    repository.git("branch", "--force", "merged")
    _replace_lines(repository, 3, "committed")
    repository.commit_files({"nul.py": b"\0\nimport committed\n"}, "feature")
    _add_signed(repository)
    _replace_lines(repository, 9, "staged")
    repository.git("add", "--all")
    _replace_lines(repository, 15, "unstaged")
    for name in ("untracked.py", "A.PY", "untracked.filtered"):
        repository.write(name, "import untracked\n")
    repository.git("-C", "module", "pull", "--quiet")
    GitRepository(repository.path / "nested").commit()
    return trap


def _replace_lines(repository: GitRepository, number: int, word: str) -> None:
    for name in SOURCES:
        file = repository.path / name
        file.write_text(file.read_text().replace(f"{name} {number}\n", f"import {word}\n"))


def _commit_on(repository: GitRepository, branch: str, name: str, content: str) -> None:
    repository.commit_files({name: content}, branch, branch=branch)
    repository.checkout("main")


def _add_submodule(repository: GitRepository, place: Path) -> None:
    library = GitRepository(place)
    library.commit_files({"lib.py": "1\n"})
    repository.git("submodule", "--quiet", "add", str(library.path), "module")
    library.commit("second")


def _add_signed(repository: GitRepository) -> None:
    tree = repository.git("rev-parse", "HEAD^{tree}").decode().strip()
    person = "A <a@example.invalid> 1700000000 +0000"
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n"
    raw = f"tree {tree}\nauthor {person}\ncommitter {person}\n{signature}\nsigned\n".encode()
    sha = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw).decode().strip()
    repository.git("branch", "signed", sha)


def arm(trap: Trap) -> None:
    """Set every program to be started, and everything that bends or hides what git prints."""
    git_dir = trap.repository.path / ".git"
    lost = trap.repository.git("rev-parse", "partial:lost.py").decode().strip()
    (git_dir / "objects" / lost[:2] / lost[2:]).unlink()
    programs = {name: trap.program(name) for name in TRIGGERS}
    _append(git_dir / "config", _CONFIGURATION.replace("@folder@", str(trap.programs)))
    (git_dir / "included").write_text(f"[diff]\n\texternal = {programs['included-external-diff']}\n")
    (trap.programs / "excludes").write_text("*\n* -diff\n")
    for folder, name in ((trap.programs / "hooks", "hooks-path"), (git_dir / "hooks", "usual-hooks")):
        folder.mkdir()
        for hook in _HOOKS:
            shutil.copy(programs[name], folder / hook)
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("x.attributed filter=attributed\n*.py -diff\n")
    lender = GitRepository(trap.programs / "lender")
    lender.commit("lent")
    (git_dir / "objects" / "info").mkdir(exist_ok=True)
    (git_dir / "objects" / "info" / "alternates").write_text(f"{lender.path}/.git/objects\n")
    nested = trap.repository.path / "nested" / ".git"
    _append(git_dir / "modules" / "module" / "config", f"[core]\n\tfsmonitor = {programs['submodule-fsmonitor']}\n")
    _append(nested / "config", f"[core]\n\tfsmonitor = {programs['nested-fsmonitor']}\n")


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


def plain_git(folder: Path, words: str, **variables: str) -> str:
    """git as a user would start it on a terminal, with nothing switched off."""
    person = [f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    places = {name: os.environ[name] for name in ("PATH", "HOME")}
    environment = {**places, "TERM": "vt100", "PAGER": "cat", **dict.fromkeys(person, "a@example.invalid"), **variables}
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
            shown = b""
            with contextlib.suppress(OSError):  # a terminal that nobody writes to any more is an error, not an end
                while chunk := screen.read(65536):
                    shown += chunk
            return shown.decode("utf-8", "replace")
