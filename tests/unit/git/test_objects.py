"""Reading objects through one `git cat-file --batch`."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from codeloupe.errors import GitFailed, OutputTooLarge
from codeloupe.git.objects import ObjectReader, reading_objects
from codeloupe.git.repository import open_repository
from tests.repository import GitRepository

_Result = TypeVar("_Result")
_CONTENTS = {"a": b"x\n", "b": b"", "c": b"\0\n\xff" * 100_000, "d": b"blob 5\nfoo missing\n"}


class Started(list[subprocess.Popen[bytes]]):
    """The processes that were started."""

    @property
    def readers(self) -> list[subprocess.Popen[bytes]]:
        """Return those that read objects."""
        return [one for one in self if "cat-file" in one.args]  # type: ignore[operator]  # a list of words


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    processes = Started()

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *words: object, **options: object) -> None:
            super().__init__(*words, **options)  # type: ignore[call-overload]  # passed on
            processes.append(self)

    monkeypatch.setattr("codeloupe.system.process.subprocess.Popen", Popen)
    return processes


@pytest.fixture
def blobs(repository: GitRepository) -> dict[str, str]:
    repository.commit_files(_CONTENTS)
    return {name: repository.git("rev-parse", f"HEAD:{name}").decode().strip() for name in _CONTENTS}


def with_reader(path: Path, use: Callable[[ObjectReader], Awaitable[_Result]]) -> _Result:
    async def go() -> _Result:
        async with reading_objects(await open_repository(path)) as reader:
            return await use(reader)

    return asyncio.run(go())


def test_one_process_answers_all_questions_and_is_gone_after_them(
    repository: GitRepository, blobs: dict[str, str], started: Started
) -> None:
    async def use(reader: ObjectReader) -> list[dict[str, bytes]]:
        questions = [reader.read([blobs[name]]) for name in "abcd"]
        return [*await asyncio.gather(*questions), await reader.read([]), await reader.read(list(blobs.values()))]

    *each, none, all_of_them = with_reader(repository.path, use)
    assert each == [{blobs[name]: _CONTENTS[name]} for name in "abcd"]
    assert none == {}
    assert all_of_them == {blobs[name]: content for name, content in _CONTENTS.items()}
    (reader,) = started.readers
    assert reader.returncode is not None


def test_a_missing_object_and_a_tree_are_not_among_the_blobs(
    repository: GitRepository, blobs: dict[str, str], started: Started
) -> None:
    tree = repository.git("rev-parse", "HEAD^{tree}").decode().strip()
    head = repository.git("rev-parse", "HEAD").decode().strip()
    found = with_reader(repository.path, lambda reader: reader.read(["0" * 39 + "1", tree, head, blobs["a"]]))
    assert found == {blobs["a"]: b"x\n"}


def test_a_name_with_a_line_end_is_missing_and_the_next_answer_is_right(
    repository: GitRepository, blobs: dict[str, str]
) -> None:
    odd = [f"{blobs['a']}\n{blobs['d']}", "x\ry", "x blob 5", ""]

    async def use(reader: ObjectReader) -> list[dict[str, bytes]]:
        questions = (
            reader.read(odd),
            reader.read([blobs["b"]]),
            reader.read_fitting([*odd, *blobs.values()], max_bytes=3),
        )
        return [await question for question in questions]

    assert with_reader(repository.path, use) == [{}, {blobs["b"]: b""}, {blobs["a"]: b"x\n", blobs["b"]: b""}]


def test_readers_that_wait_at_the_end_of_the_context_start_no_process(
    repository: GitRepository, blobs: dict[str, str], started: Started
) -> None:
    async def use(reader: ObjectReader) -> list[asyncio.Task[dict[str, bytes]]]:
        await reader.read([blobs["a"]])
        os.kill(started.readers[0].pid, signal.SIGSTOP)
        waiting = [asyncio.create_task(reader.read([blobs[name]])) for name in "ab"]
        await asyncio.sleep(0)
        return waiting

    async def go() -> list[dict[str, bytes] | BaseException]:
        async with reading_objects(await open_repository(repository.path)) as reader:
            waiting = await use(reader)
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(go())] == [GitFailed, GitFailed]
    assert len(started.readers) == 1


def test_what_is_too_large_is_not_read_and_the_next_question_is_answered(
    repository: GitRepository, blobs: dict[str, str], started: Started
) -> None:
    async def use(reader: ObjectReader) -> tuple[dict[str, bytes], dict[str, bytes]]:
        with pytest.raises(OutputTooLarge):
            await reader.read(list(blobs.values()), max_bytes=1_000)
        return await reader.read([blobs["d"]]), await reader.read_fitting(blobs.values(), max_bytes=1_000)

    after, fitting = with_reader(repository.path, use)
    assert after == {blobs["d"]: _CONTENTS["d"]}
    assert set(fitting) == {blobs["a"], blobs["b"], blobs["d"]}
    assert all(reader.returncode is not None for reader in started.readers)


def test_a_killed_process_is_replaced(repository: GitRepository, blobs: dict[str, str], started: Started) -> None:
    async def use(reader: ObjectReader) -> dict[str, bytes]:
        await reader.read([blobs["a"]])
        os.kill(started.readers[0].pid, signal.SIGKILL)
        return await reader.read([blobs["d"]])

    assert with_reader(repository.path, use) == {blobs["d"]: _CONTENTS["d"]}
    assert len(started.readers) == 2


def test_a_broken_object_fails_its_own_question_only(
    repository: GitRepository, blobs: dict[str, str], started: Started
) -> None:
    broken = blobs["c"]
    file = repository.path / ".git" / "objects" / broken[:2] / broken[2:]
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:40])

    async def use(reader: ObjectReader) -> list[dict[str, bytes] | BaseException]:
        questions = [reader.read([blobs[name]]) for name in "acd"]
        return await asyncio.gather(*questions, return_exceptions=True)

    before, failed, after = with_reader(repository.path, use)
    assert (before, after) == ({blobs["a"]: b"x\n"}, {blobs["d"]: _CONTENTS["d"]})
    assert isinstance(failed, GitFailed)
    assert broken in failed.message


def test_a_cancelled_question_does_not_answer_the_next_one(
    repository: GitRepository, blobs: dict[str, str], started: Started
) -> None:
    async def use(reader: ObjectReader) -> dict[str, bytes]:
        await reader.read([blobs["a"]])
        question = asyncio.create_task(reader.read([blobs["c"]]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        question.cancel()
        await asyncio.gather(question, return_exceptions=True)
        return await reader.read([blobs["d"]])

    assert with_reader(repository.path, use) == {blobs["d"]: _CONTENTS["d"]}
    assert all(reader.returncode is not None for reader in started.readers)
