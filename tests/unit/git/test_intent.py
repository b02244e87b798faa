from __future__ import annotations

import asyncio

import pytest

from codeloupe.git.guidance import read_intent
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.change import Intent
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)
from tests.repository import GitRepository


def _read(repository: GitRepository, request: ScopeRequest, context: str = "") -> Intent:
    async def go() -> Intent:
        opened = await open_repository(repository.path)
        sides = await resolve_scope(opened, request, base_branch=None)
        return await read_intent(opened, sides, context=context)

    return asyncio.run(go())


@pytest.fixture
def branched(repository: GitRepository) -> GitRepository:
    repository.commit("Begin\n\nThe base.")
    repository.checkout("feature/x", new=True)
    repository.commit("Add x\n\nSince y needs it.\n\nSigned-off-by: Ada Example <ada@example.invalid>\n")
    repository.commit("Mend x")
    return repository


def test_a_branch_has_its_name_and_the_messages_since_its_base(branched: GitRepository) -> None:
    intent = Intent(title="feature/x", messages=("Mend x", "Add x\n\nSince y needs it."))
    assert _read(branched, DefaultScope()) == intent
    assert _read(branched, BaseScope("main")) == intent


def test_a_commit_has_its_subject_and_body(branched: GitRepository) -> None:
    assert _read(branched, CommitScope("HEAD~1")) == Intent(title="Add x", messages=("Since y needs it.",))
    assert _read(branched, CommitScope("HEAD")) == Intent(title="Mend x")
    assert _read(branched, CommitScope("main")) == Intent(title="Begin", messages=("The base.",))


def test_a_range_has_the_messages_of_its_commits(branched: GitRepository) -> None:
    assert _read(branched, RangeScope("main..HEAD")).messages == ("Mend x", "Add x\n\nSince y needs it.")
    assert _read(branched, RangeScope("HEAD~1..HEAD")) == Intent(title="Mend x")
    assert _read(branched, RangeScope("HEAD..HEAD")) == Intent()


@pytest.mark.parametrize("request_", [StagedScope(), UncommittedScope()])
def test_what_is_not_committed_has_no_words_but_the_caller_s(branched: GitRepository, request_: ScopeRequest) -> None:
    assert _read(branched, request_, "ticket 7") == Intent(context="ticket 7")


def test_merges_are_told_only_when_one_is_asked_for(branched: GitRepository) -> None:
    branched.checkout("main")
    branched.commit("Elsewhere")
    branched.checkout("feature/x")
    branched.git("merge", "--quiet", "--no-ff", "-m", "Merge main", "main")
    assert "Merge main" not in _read(branched, BaseScope("main")).messages
    assert _read(branched, CommitScope("HEAD")).title == "Merge main"


def test_trailers_that_name_people_are_left_out_and_others_stay(repository: GitRepository) -> None:
    repository.commit(
        "Subject\n\nWhy: because.\nFixes: #12\nCo-Authored-By: Ada Example <ada@example.invalid>\n"
        "Reviewed-by: Ada Example\nChange-Id: I0\nCc: ada@example.invalid\n"
    )
    assert _read(repository, CommitScope("HEAD")).messages == ("Why: because.\nFixes: #12",)


def test_a_great_many_and_endless_messages_are_limited(repository: GitRepository) -> None:
    words = ["base", *(f"Subject {number}\n\n{'x' * 5_000}" for number in range(25))]
    stream = [
        f"commit refs/heads/main\ncommitter A <a@example.invalid> {number} +0000\ndata {len(text)}\n{text}\n"
        for number, text in enumerate(words)
    ]
    stream.insert(1, "reset refs/heads/base\nfrom refs/heads/main\n")
    repository.git("fast-import", "--quiet", stdin="".join(stream).encode())
    messages = _read(repository, RangeScope("base..HEAD")).messages
    assert [message.partition("\n")[0] for message in messages] == [f"Subject {number}" for number in range(24, 4, -1)]
    assert max(map(len, messages)) < 2_100


def test_odd_messages_do_no_harm(repository: GitRepository) -> None:
    repository.commit()
    repository.branch("base")
    repository.commit("")
    tree = repository.git("write-tree").decode().strip()
    person = b"Ada Example <ada@example.invalid> 1700000000 +0000"
    raw = b"tree %s\nparent %s\nauthor %s\ncommitter %s\n\ncaf\xe9 \x1b[31m\r\n\r\nbody\n" % (
        tree.encode(),
        repository.head().encode(),
        person,
        person,
    )
    sha = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw).decode().strip()
    messages = _read(repository, RangeScope(f"base..{sha}"))
    assert "caf\ufffd \x1b[31m" in (messages.title, *messages.messages)[0]
