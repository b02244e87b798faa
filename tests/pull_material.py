"""A project on a forge: a bare repository with pull requests in it, as GitHub and GitLab keep them, and a clone."""

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Self

from tests.repository import GitRepository

BASE_CODE = "def total(prices):\n    return sum(prices)\n"
# A finding of the analysers: an undefined name.
FAULTY_CODE = "def average(prices):\n    return sum(prices) / cuont(prices)\n"
NUMBER = 7


class Forge:
    """A bare repository `owner/shop.git` below `root`, and the author's working copy of it.

    `work` begins with two commits on `main`. Nothing of a pull request is in the branches of the bare one.
    """

    def __init__(self, root: Path, work: GitRepository, *, path: str = "owner/shop.git") -> None:
        self.root = root
        self.bare = root / path
        self.work = work
        files = {"shop/total.py": BASE_CODE, "notes/old.txt": "a text that only the first commit has\n"}
        work.commit_files(files, "the shop")
        work.remove("notes/old.txt")
        work.commit_files({"README.md": "a shop\n"}, "a readme")
        self.bare.mkdir(parents=True)
        self._git("init", "--quiet", "--bare", "--template=", "--initial-branch=main")
        # As the forges have it: filters are allowed.
        self._git("config", "uploadpack.allowFilter", "true")
        self.push("main:refs/heads/main")

    def copy(self, folder: Path) -> Self:
        """The same project again, below another folder."""
        other = copy.copy(self)
        other.root = folder / "forge"
        other.bare = other.root / self.bare.relative_to(self.root)
        other.work = self.work.copied_to(folder / "repository")
        shutil.copytree(self.root, other.root, symlinks=True)
        return other

    def push(self, *refs: str) -> None:
        """Put refs of the working copy on the forge."""
        self.work.git("push", "--quiet", "--force", str(self.bare), *refs)

    def open(self, head: str, *, number: int = NUMBER, merge: bool = True, family: str = "pull") -> None:
        """Open a pull request at a commit, or move it there; with `merge`, the forge tries to merge it into main."""
        self.push(f"{head}:refs/{family}/{number}/head")
        self._git("update-ref", "-d", f"refs/{family}/{number}/merge")
        if merge:
            self.push(f"{self.merged(head)}:refs/{family}/{number}/merge")

    def merged(self, head: str, base: str = "main") -> str:
        """A commit that merges a head into a branch, as a forge makes it."""
        tree = self.work.git("rev-parse", f"{head}^{{tree}}").decode().strip()
        words = ("commit-tree", tree, "-p", base, "-p", head, "-m", f"Merge {head} into {base}")
        return self.work.git(*words).decode().strip()

    def clone(self, target: Path, url: str, *words: str) -> Path:
        """A clone of it, whose origin is `url`."""
        run = ("git", "-c", "protocol.file.allow=always", "clone", "--quiet", *words, self.bare.as_uri(), str(target))
        subprocess.run(run, check=True, capture_output=True)
        subprocess.run(("git", "-C", str(target), "remote", "set-url", "origin", url), check=True, capture_output=True)
        return target

    def _git(self, *words: str) -> None:
        subprocess.run(("git", "-C", str(self.bare), *words), check=True, capture_output=True)


def forge_with_topic(place: Path) -> Forge:
    """A forge with pull request 7 of branch `topic`, with one faulty file, that left main before its last commit."""
    forge = Forge(place / "forge", GitRepository(place / "work"))
    work, message = forge.work, "Average prices\n\nFor the report."
    head = work.commit_files({"shop/average.py": FAULTY_CODE}, message, branch="topic")
    work.checkout("main")
    work.commit_files({"CHANGES.md": "something else\n"}, "main goes on")
    forge.push("main:refs/heads/main")
    forge.open(head)
    return forge
