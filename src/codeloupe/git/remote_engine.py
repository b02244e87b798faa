"""A repository of our own into which a pull request is fetched: nothing in it is anybody else's but objects.

It may borrow the objects of the user's own clone, so that only what is new travels. It is laid out like a checkout
without files, so that it can be read as any repository is.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from codeloupe.errors import GitFailed
from codeloupe.git.command import Place, git, git_for_user, try_git
from codeloupe.git.remote_address import RemoteAddress
from codeloupe.git.repository import Repository

REMOTES = ("upstream", "origin")
# Tips beyond these would make the talk with the remote longer, not what it sends shorter.
_MOST_KNOWN_TIPS = 200
_SHA256_DIGITS = 64


class Known(Struct, frozen=True):
    """What the user's own clone has already: where its objects are, and the tips of its branches."""

    objects: Path
    tips: tuple[str, ...]
    object_format: str


def make_engine(root: Path, address: RemoteAddress) -> Path:
    """Make the empty repository at `root`, and return its git directory."""
    git_dir = root / ".git"
    for folder in ("objects/info", "objects/pack", "refs", "info"):
        (git_dir / folder).mkdir(parents=True)
    write_config(git_dir, address, object_format="sha1", partial=False)
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    return git_dir


def write_config(git_dir: Path, address: RemoteAddress, *, object_format: str, partial: bool) -> None:
    """Write the whole configuration. `partial` allows that objects are missing which nobody needs."""
    # Printable, and without what would end the quotes: an address was checked, a path may hold either.
    url = address.url.replace("\\", "\\\\").replace('"', '\\"')
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = false", "[extensions]"]
    lines += [f"\tobjectFormat = {object_format}"] if object_format != "sha1" else []
    lines += ["\tpartialClone = origin"] if partial else []
    lines += ['[remote "origin"]', f'\turl = "{url}"', *(["\tpromisor = true"] if partial else [])]
    (git_dir / "config").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")


def borrow_known(git_dir: Path, known: Known) -> None:
    """Let the engine read the objects of the user's clone, and tell a remote of its tips."""
    (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(known.objects) + b"\n")
    rows = (f"{sha} refs/known/{number}\n" for number, sha in enumerate(known.tips))
    (git_dir / "packed-refs").write_text("".join(rows), encoding="ascii")


async def name_branch(git_dir: Path, name: str, sha: str) -> None:
    """Check a branch out, so to say: history knows a pull request by the name of it, and a project by its root."""
    ref = f"refs/heads/{_as_ref(name)}"
    await git(Place(git_dir), "update-ref", ref, sha)
    (git_dir / "HEAD").write_text(f"ref: {ref}\n", encoding="ascii")


def object_format_of(sha: str) -> str:
    """How a repository names its objects, told by one of the names."""
    return "sha256" if len(sha) == _SHA256_DIGITS else "sha1"


async def find_remotes(repository: Repository) -> dict[str, str]:
    """The addresses of the remotes that may have the pull requests, the likeliest first, as the user's git has them."""
    found: dict[str, str] = {}
    for name in REMOTES:
        completed = await git_for_user(repository.place, "remote", "get-url", name)
        address = os.fsdecode(completed.stdout).split("\n", 1)[0]
        if completed.exit_code == 0 and address:
            found[name] = address
    return found


async def find_known(repository: Repository) -> Known | None:
    """What can be borrowed of the user's clone; None when it does not have the whole of its own history."""
    pattern = r"^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$"
    partial = await try_git(repository.place, "config", "--get-regexp", pattern)
    if repository.shallow or partial.exit_code == 0 or "\n" in str(repository.sources.objects):
        return None
    words = ("--sort=-committerdate", f"--count={_MOST_KNOWN_TIPS}", "--format=%(objecttype) %(objectname)")
    with suppress(GitFailed):  # with a broken ref, say: then everything is fetched
        output = await git(repository.place, "for-each-ref", *words, "refs/heads", "refs/remotes")
        rows = (line.split(" ") for line in output.decode("ascii", "replace").split("\n"))
        tips = tuple(dict.fromkeys(row[1] for row in rows if row[0] == "commit"))
        return Known(repository.sources.objects, tips, repository.sources.object_format) if tips else None
    return None


def _as_ref(name: str) -> str:
    """A name that git takes for a branch, near to what was given."""
    parts = (re.sub(r"[^A-Za-z0-9_.-]|\.(?=\.|$)|^[.-]+|\.lock$", "-", part) for part in name.split("/") if part)
    return "/".join(parts)
