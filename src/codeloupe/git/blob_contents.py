"""The content of some blobs, read at once and within a limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codeloupe.git.command import Place, git
from codeloupe.git.engine import DIFF_ATTRIBUTES, in_engine, temporary_engine
from codeloupe.git.repository import Repository


async def blob_sizes(place: Place, names: Sequence[str]) -> dict[str, int]:
    """The sizes of those blobs that are here. Raises GitFailed when git cannot tell."""
    if not names:
        return {}
    output = await git(place, "cat-file", "--batch-check", stdin=_lines(names))
    facts = (line.decode("ascii").split(" ") for line in output.split(b"\n"))
    return {words[0]: int(words[2]) for words in facts if words[1:2] == ["blob"]}


async def read_blobs(repository: Repository, names: Iterable[str], *, max_bytes: int) -> dict[str, bytes]:
    """The content of those blobs that are here, in order, as many as have room in the limit. Raises GitFailed."""
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        place = in_engine(git_dir)
        wanted: list[str] = []
        left = max_bytes
        # Asked for first, so that an enormous one is never read.
        for name, size in (await blob_sizes(place, list(dict.fromkeys(names)))).items():
            if size <= left:
                wanted.append(name)
                left -= size
        output = await git(place, "cat-file", "--batch", stdin=_lines(wanted)) if wanted else b""
    found: dict[str, bytes] = {}
    position = 0
    for name in wanted:
        end = output.index(b"\n", position)
        size = int(output[position:end].rsplit(b" ", 1)[1])
        found[name] = output[end + 1 : end + 1 + size]
        position = end + 1 + size + 1
    return found


def _lines(names: Iterable[str]) -> bytes:
    return b"".join(name.encode("ascii") + b"\n" for name in names)
