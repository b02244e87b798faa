"""`codeloupe history` as a user runs it: the installed program, real streams, real exit codes."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from codeloupe.history import Saved, keeping_sweep, opened_history, store_review
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review, Verdict
from tests.program import codeloupe as started_codeloupe
from tests.repository import GitRepository
from tests.unit.reports.examples import review
from tests.unit.store.history_samples import commit_review, identifier, named, sweep_record
from tests.warm_program import codeloupe


@pytest.fixture
def shop(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"})
    return repository


def store(shop: GitRepository, made: Review) -> None:
    saved = Saved(repo=shop.path, raw_outputs={"a.py": "said"})
    assert asyncio.run(store_review(made, saved, opened=opened_history, emit=lambda _: None)) == made


def kept(shop: GitRepository, number: int, *findings: Finding) -> str:
    made = review(*findings, review_id=identifier(number))
    store(shop, made)
    return made.review_id


def test_every_verb_works_on_a_history_and_says_nothing_on_stderr(shop: GitRepository) -> None:
    one = kept(shop, 1, named("a"))
    kept(shop, 2)
    calls = f"list,list --json,list --all-repositories,show {one},show {one} --raw,render {one} --fail-on critical"
    calls += f",render {one} --format json --fail-on critical,compare {one} last,trends,prune --keep 9 --dry-run"
    for words in calls.split(","):
        ended = started_codeloupe("history", *words.split(), cwd=shop.path)
        assert (ended.exit_code, ended.stderr) == (0, ""), words
        assert ended.stdout


def test_a_history_is_found_again_from_a_clone_that_lies_elsewhere(shop: GitRepository, tmp_path: Path) -> None:
    kept(shop, 1)
    shop.git("clone", "--quiet", "--template=", shop.path.as_uri(), str(tmp_path / "clone"))
    shutil.rmtree(shop.path)
    entries = codeloupe("history", "list", "--json", cwd=tmp_path / "clone").json()["entries"]
    assert [entry["id"] for entry in entries] == [identifier(1)]
    assert codeloupe("history", "list", "--json", cwd=tmp_path).json()["entries"] == []


def test_a_gate_is_closed_and_opened_anew_at_no_cost(shop: GitRepository) -> None:
    made = review(named("a", severity=Severity.MEDIUM), verdict=Verdict.NEEDS_WORK, exit_code=0)
    store(shop, made)
    codes = {
        severity: codeloupe("history", "render", "last", "--fail-on", severity, cwd=shop.path).exit_code
        for severity in ("critical", "high", "medium", "low")
    }
    assert codes == {"critical": 0, "high": 0, "medium": 1, "low": 1}


def test_mistakes_are_told_with_what_to_do_and_an_empty_history_is_none(shop: GitRepository) -> None:
    ended = codeloupe("history", "list", cwd=shop.path)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "`codeloupe review` makes the first entry" in ended.stdout
    assert codeloupe("history", "show", cwd=shop.path).exit_code == 2
    kept(shop, 0xABCD0001)
    kept(shop, 0xABCD0002)
    for words, told in (
        (("show", "abcd"), identifier(0xABCD0002)[:12]),
        (("show", "ffff"), "no entry of the history begins with 'ffff'"),
        ((), "history needs a command: list, show"),
    ):
        ended = codeloupe("history", *words, cwd=shop.path)
        assert (ended.exit_code, ended.stdout) == (2, ""), words
        assert told in ended.stderr
        assert "hint:" in ended.stderr


def test_a_sweep_is_one_entry_and_its_commits_are_shown(shop: GitRepository) -> None:
    async def sweep() -> None:
        whole = sweep_record(9, commit_review(1, named("a")), commit_review(2)).sweep
        async with keeping_sweep(sweep_record(9).sweep, repo=shop.path) as keeper:
            for commit in whole.commits:
                await keeper.keep_commit(commit)
            await keeper.finish(whole)

    asyncio.run(sweep())
    (entry,) = codeloupe("history", "list", "--json", cwd=shop.path).json()["entries"]
    assert (entry["kind"], entry["commits"]) == ("sweep", 2)
    shown = codeloupe("history", "show", "last", cwd=shop.path)
    assert shown.exit_code == 0
    assert "fix: number 1" in shown.stdout
    assert codeloupe("history", "show", identifier(1001), cwd=shop.path).exit_code == 0


def test_hostile_words_reach_no_terminal_and_no_ci_log(shop: GitRepository) -> None:
    hostile = "\x1b]0;owned\x07\u202e\n::error::owned\r"
    shop.git("checkout", "--quiet", "-b", "x\u202e")
    kept(shop, 1, named("a", title=hostile, file=f"{hostile}\udcff.py", body=hostile, expert=hostile))
    kept(shop, 2)
    for words in (("list",), ("show", identifier(1)), ("compare", identifier(1), "last"), ("trends",)):
        ended = codeloupe("history", *words, cwd=shop.path)
        shown = ended.stdout + ended.stderr
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(shown), words
        assert "\n::" not in shown


def test_a_terminal_without_unicode_gets_none_colour_comes_when_asked_for_and_json_is_one_document(
    shop: GitRepository,
) -> None:
    kept(shop, 1, named("a"), named("b"))
    for words in ("list", "trends", "compare last"):
        ended = started_codeloupe("history", *words.split(), cwd=shop.path, environment={"PYTHONIOENCODING": "ascii"})
        assert ended.exit_code == 0
        assert ended.stdout.isascii()
    assert "\x1b[" in codeloupe("history", "list", "--color", "always", cwd=shop.path).stdout
    plain = codeloupe("history", "trends", cwd=shop.path, environment={"NO_COLOR": "1", "FORCE_COLOR": "1"}).stdout
    assert "\x1b[" not in plain
    for words in ("list", "compare last", "trends", "prune --keep 5"):
        document = json.loads(codeloupe("history", *words.split(), "--json", cwd=shop.path).stdout)
        assert document["schema_version"] == 1
