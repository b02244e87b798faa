from __future__ import annotations

import asyncio

from codeloupe.git.repository import open_repository, read_blobs
from tests.repository import GitRepository


def test_blobs_are_read_byte_for_byte_as_many_as_have_room(repository: GitRepository) -> None:
    contents = {"a": b"x\n", "b": b"", "c": b"\0\n\xff" * 100, "d": b"y" * 50}
    for name, content in contents.items():
        repository.write(name, content)
    repository.commit()
    blobs = {name: repository.git("rev-parse", f"HEAD:{name}").decode().strip() for name in contents}
    tree = repository.git("rev-parse", "HEAD^{tree}").decode().strip()

    async def read(*names: str, max_bytes: int = 10_000) -> dict[str, bytes]:
        return await read_blobs(await open_repository(repository.path), names, max_bytes=max_bytes)

    everything = {blobs[name]: content for name, content in contents.items()}
    assert asyncio.run(read(*blobs.values(), *blobs.values())) == everything
    # What is not here, and what is no blob, is not there.
    assert asyncio.run(read("0" * 39 + "1", tree, blobs["a"])) == {blobs["a"]: b"x\n"}
    assert asyncio.run(read()) == {}
    few = asyncio.run(read(*blobs.values(), max_bytes=60))
    assert set(few) == {blobs["a"], blobs["b"], blobs["d"]}
