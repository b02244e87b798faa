"""Makes the demo's repository: two commits on two branches, by real git, in a directory that the caller owns.

The sources carry `.txt` behind their names, so that no tool takes them for the project's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from codeloupe.git.command import Place, git

_IDENTITY = ("user.name=Demo", "user.email=demo@example.invalid", "commit.gpgSign=false", "init.defaultBranch=main")
# Put together here, so that no file of ours looks as if it held a key.
_AWS_KEY = "AKIA" + "QX7ZP3LMN5" + "TVRW2K"


async def make_repository(root: Path) -> None:
    """A shop in four languages on `main`, and a faulty change to it on the branch `feature`, which is checked out."""
    place = Place(root / ".git", work_tree=root, settings=_IDENTITY)
    await git(place, "init", "--quiet", "--template=")
    await _commit(place, root, "before", "A small shop")
    await git(place, "checkout", "--quiet", "-b", "feature")
    await _commit(place, root, "after", "Search by customer, print invoices, save the cart")


async def _commit(place: Place, root: Path, state: str, message: str) -> None:
    for name, text in _sources(state):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    await git(place, "add", "--all")
    await git(place, "commit", "--quiet", f"--message={message}")


def _sources(state: str) -> Iterator[tuple[str, str]]:
    top = files("codeloupe.cli").joinpath("demo_files", state)
    for folder in sorted(top.iterdir(), key=_name):
        for file in sorted(folder.iterdir(), key=_name):
            text = file.read_text(encoding="utf-8").replace("@AWS_KEY@", _AWS_KEY)
            yield f"{folder.name}/{file.name.removesuffix('.txt')}", text


def _name(entry: Traversable) -> str:
    return entry.name
