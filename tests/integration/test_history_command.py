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
    calls = f"list,list --json,list --all,list --all-clones,show {one},show {one} --raw,render {one} --fail-on critical"
    calls += f",render {one} --format json --fail-on critical,compare {one} last,trends,prune --keep 9 --dry-run"
    for words in calls.split(","):
        ended = started_codeloupe("history", *words.split(), cwd=shop.path)
        assert (ended.exit_code, ended.stderr) == (0, ""), words
        assert ended.stdout


def review_here(folder: Path) -> str:
    """Review the change in a folder offline, and return the id of the review."""
    words = ("review", "--uncommitted", "--reviewer", "offline", "--format", "json")
    return str(codeloupe(*words, cwd=folder).json()["review_id"])


def ids_listed(folder: Path, *words: str) -> list[str]:
    entries = codeloupe("history", "list", "--json", *words, cwd=folder).json()["entries"]
    return [entry["id"] for entry in entries]


def shown(folder: Path, word: str) -> str:
    return codeloupe("history", "show", word, cwd=folder).stdout.split(",")[0].removeprefix("Review ")


@pytest.fixture
def three_trees(shop: GitRepository, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return a clone, a linked worktree of it, and another clone, each with a change."""
    linked, other = tmp_path / "linked", tmp_path / "other"
    shop.git("worktree", "add", "--quiet", "-b", "side", str(linked))
    shop.git("clone", "--quiet", "--template=", shop.path.as_uri(), str(other))
    for folder in (shop.path, linked, other):
        (folder / "b.py").write_text("y = 2\n")
    return shop.path, linked, other


@pytest.mark.defect("E6")
def test_each_work_tree_lists_its_own_reviews(three_trees: tuple[Path, Path, Path], tmp_path: Path) -> None:
    ids = {folder: review_here(folder) for folder in three_trees}
    for folder, review_id in ids.items():
        assert ids_listed(folder) == [review_id]
        assert shown(folder, "last") == review_id
        assert ids_listed(folder / "..", "--all") == list(reversed(ids.values()))
        assert ids_listed(folder, "--all-clones") == list(reversed(ids.values()))
        rendered = codeloupe("history", "render", "--format", "json", cwd=folder)
        assert rendered.json()["review_id"] == review_id
    assert ids_listed(three_trees[0], "--branch", "side") == []
    elsewhere = codeloupe("history", "list", cwd=tmp_path).stdout
    assert "`codeloupe history list --all` lists the others" in elsewhere


@pytest.mark.defect("E6")
def test_reviews_of_a_moved_or_removed_clone_stay_reachable(
    three_trees: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    _, linked, other = three_trees
    first, second = review_here(linked), review_here(other)
    moved = other.rename(tmp_path / "moved")
    shutil.rmtree(linked)
    missing = codeloupe("history", "show", cwd=moved)
    assert missing.exit_code == 2
    assert "no review made in moved is stored" in missing.stderr
    assert "history list --all" in missing.stderr
    assert ids_listed(moved, "--all") == ids_listed(moved, "--all-clones") == [second, first]
    for review_id in (first, second):
        assert shown(moved, review_id[:8]) == review_id


@pytest.mark.defect("E15")
def test_reviews_before_the_last_have_a_name_everywhere(shop: GitRepository) -> None:
    kept(shop, 1, named("gone", title="old defect", evidence="old()", file="old.py"))
    alone = codeloupe("history", "compare", cwd=shop.path)
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert "last~1 does not exist: 1 review of repository is stored" in alone.stderr
    kept(shop, 2)
    kept(shop, 3, named("here", title="fresh worry", evidence="fresh[0]", file="fresh.py"))
    for word, number in (("last", 3), ("last~0", 3), ("last~", 2), ("last~1", 2), ("last~2", 1)):
        assert shown(shop.path, word) == identifier(number), word
        rendered = codeloupe("history", "render", word, "--format", "json", cwd=shop.path)
        assert rendered.json()["review_id"] == identifier(number), word
    assert codeloupe("history", "compare", cwd=shop.path).stdout.count("fresh worry") == 1
    compared = codeloupe("history", "compare", "last~2", "--json", cwd=shop.path).json()
    assert [one["title"] for one in compared["fixed"]] == ["old defect"]
    added = codeloupe("baseline", "add", "--all", "--reason", "known", "--review", "last~2", cwd=shop.path)
    assert (added.exit_code, "old.py" in added.stdout) == (0, True)
    beyond = codeloupe("history", "show", "last~3", cwd=shop.path)
    assert (beyond.exit_code, "last~3 does not exist: 3 entries of repository are stored" in beyond.stderr) == (2, True)


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
    assert "`codeloupe review` creates the first entry" in ended.stdout
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


@pytest.mark.defect("E15")
def test_sweeps_do_not_hide_how_many_reviews_are_stored(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    repository.commit_files({"a.py": "x = 2\n"})
    codeloupe("review", "--commit", "HEAD", "--reviewer", "offline", cwd=repository.path)
    for _ in range(9):
        codeloupe("commits", "HEAD~1..HEAD", "--reviewer", "offline", cwd=repository.path)
    ended = codeloupe("history", "compare", cwd=repository.path)
    assert (ended.exit_code, "1 review" in ended.stderr) == (2, True), ended.stderr
