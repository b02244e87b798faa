"""`codeloupe history`, verb by verb, on a real repository and a real database."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from codeloupe.cli import history as verb
from codeloupe.cli.parser import Parser
from codeloupe.errors import OutputError, StoreError, UsageError
from codeloupe.git.identity import find_identity
from codeloupe.history import opened_history
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Coverage, FailedUnit
from tests.repository import GitRepository
from tests.unit.store.history_samples import commit_review, identifier, named, record, sweep_record

Save = Callable[..., None]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def shop(repository: GitRepository, monkeypatch: pytest.MonkeyPatch) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"})
    monkeypatch.chdir(repository.path)
    return repository


@pytest.fixture
def save(shop: GitRepository) -> Save:
    """Saves a review of the repository that is worked in, or of commits a sweep."""
    with opened_history() as history:
        name = asyncio.run(find_identity(shop.path, history)).names[0]

    def saved(number: int, *found: Any, raw_outputs: dict[str, str] | None = None, **changes: Any) -> None:
        with opened_history() as history:
            changes = {"repository": name, "work_tree": history.work_tree_of(shop.path), **changes}
            if found and not isinstance(found[0], Finding):
                history.save_sweep(sweep_record(number, *found, **changes))
            else:
                history.save(record(number, *found, **changes), raw_outputs=raw_outputs or {})

    return saved


@pytest.fixture
def run(shop: GitRepository, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a verb in the repository."""

    def ran(*words: str) -> Ended:
        parser = Parser(prog="codeloupe history")
        verb.configure(parser)
        exit_code = verb.run(parser.parse_args(words))
        return Ended(exit_code, *capsys.readouterr())

    return ran


def refused(run: Run, *rows: tuple[Sequence[str], str], kind: type[Exception] = UsageError) -> None:
    for words, said in rows:
        with pytest.raises(kind, match=said):
            run(*words)


def test_the_reviews_of_this_repository_are_listed_and_no_others(save: Save, run: Run) -> None:
    assert run("list", "--all").out.startswith("No review is stored")
    save(1)
    save(2, branch="other")
    save(3, repository="root:elsewhere", repository_label="elsewhere", work_tree="tree:elsewhere")
    save(4, repository_label="clone", work_tree="tree:clone")
    listed = run("list", "--limit", "2")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["ID", "00000002", "00000001"]
    assert listed.err == ""
    assert "--limit 2 shows more" in run("list", "--limit", "1").err
    everything = run("list", "--all").out
    assert "elsewhere" in everything
    assert "clone" in everything
    clones = run("list", "--all-clones").out
    assert "clone" in clones
    assert "elsewhere" not in clones
    assert "00000001" not in run("list", "--branch", "other").out
    assert "on branch none is stored" in run("list", "--branch", "none").out


def test_what_makes_no_sense_is_refused(run: Run) -> None:
    numbers = (["list", "--limit", "0"], ["trends", "--weeks", "-1"], ["prune", "--keep", "-1"])
    refused(
        run, *((words, "must be at least") for words in numbers), (["prune"], "no reviews are selected for removal")
    )
    ages = ("", "soon", "90x", "-3d", "1.5d", "9" * 30, "d90")
    refused(run, *((["prune", f"--older-than={age}"], "is not an age") for age in ages))
    refused(run, (["list", "--repo", "nowhere"], "no such directory"))


def test_a_review_is_shown_as_it_was_reported(save: Save, run: Run) -> None:
    save(1, named("f", title="Statement is built"))
    for words in (["show", "0000"], ["show"]):
        code, out, err = run(*words)
        assert (code, err) == (0, "")
        about = f"Review {identifier(1)}, saved 2026-03-03 09:00, on branch topic, by codeloupe 0.1\n"
        assert out.startswith(about)
        assert "HIGH P1  Statement is built" in out
        assert "FAIL  1 finding at or above fail_on=high" in out
    save(2, review_id="nightly-7")
    assert run("show", "last").out.startswith("Review nightly-7, ")


def test_a_review_of_which_a_finding_is_lost_is_incomplete(save: Save, run: Run) -> None:
    save(1, named("f", severity=Severity.CRITICAL))
    with opened_history() as history, history.database.writing() as connection:
        connection.execute("UPDATE findings SET payload = x'00'")
    shown = run("show", "last")
    assert "finding 1 of review" in shown.err
    assert "INCOMPLETE" in shown.out
    assert run("render", "last").code == 3


def test_raw_output_is_shown_without_what_a_terminal_would_obey(save: Save, run: Run) -> None:
    save(1, raw_outputs={"a.py (security)": '{"findings":\n []}\x1b[31m', "b.py": "::error::x"})
    expected = '=== a.py (security)\n{"findings":\n []}\\x1b[31m\n\n=== b.py\n: :error::x\n'
    assert run("show", "last", "--raw").out == expected
    save(2)
    assert run("show", "last", "--raw").out == "No raw output was saved with this review.\n"


def test_another_policy_gives_its_own_exit_code(save: Save, run: Run, tmp_path: Path) -> None:
    save(1, named("f"))
    target = tmp_path / "report.json"
    assert run("render", "last", "--format", "json", "-o", str(target)) == (1, "", f"wrote {target}\n")
    assert json.loads(target.read_text())["review_id"] == identifier(1)
    refused(run, (["render", "last", "-o", str(tmp_path / "no" / "folder")], "cannot write"), kind=OutputError)
    rows = (("", 1), ("--fail-on P0", 0), ("--fail-on low", 1), ("--fail-on P0 --min-severity P0", 0))
    for words, code in rows:
        ended = run("render", "last", "--format", "json", *words.split())
        document = json.loads(ended.out)
        assert (ended.code, document["exit_code"], document["review_id"]) == (code, code, identifier(1)), words
    gap = Coverage(files_total=1, units_failed=(FailedUnit("u", (), "timeout"),))
    save(2, complete=False, exit_code=3, coverage=gap)
    assert run("render", "last").code == run("render", "last", "--on-incomplete", "fail").code == 3
    passed = run("render", "last", "--on-incomplete", "pass")
    assert passed.code == 0
    assert "INCOMPLETE" in passed.out
    assert "not everything was reviewed" in passed.err
    refused(
        run,
        (["render", "last", "--format", "pdf"], "'pdf' is not a format"),
        (["render", "last", "--fail-on", "worst"], "--fail-on: not a severity: 'worst'"),
    )


def test_a_sweep_has_formats_of_its_own_and_does_not_pass_unfinished(save: Save, run: Run, tmp_path: Path) -> None:
    lost = commit_review(2, review=None, verdict=None, failure="timeout")
    save(9, commit_review(1, named("a", severity=Severity.HIGH)), lost)
    sweep = identifier(9)
    assert "INCOMPLETE" in run("show", "last").out
    assert f"part of sweep {sweep[:12]}" in run("show", identifier(1001)).out
    assert "fix: number 1" in run("render", sweep).out
    assert json.loads(run("render", sweep, "--format", "json").out)["sweep_id"] == sweep
    written = str(tmp_path / "sweep.xml")
    assert run("render", sweep, "--format", "xml", "--fail-on", "P1", "-o", written).code == 1
    assert 'exit-code="1"' in Path(written).read_text(encoding="utf-8")
    wrong = (["--format", "sarif"], ["--fail-on", "low"], ["--min-severity", "high"])
    refused(run, *((["render", sweep, *words], "is a sweep") for words in wrong), (["show", "--raw"], "is a sweep"))
    save(8, commit_review(1), finished=False)
    ended = run("render", identifier(8), "--format", "json")
    assert (ended.code, json.loads(ended.out)["exit_code"]) == (3, 3)
    assert json.loads(ended.out)["summary"].endswith("not finished")
    assert run("render", identifier(8), "--on-incomplete", "pass").code == 0


def test_two_reviews_are_compared_by_words_and_as_json(save: Save, run: Run) -> None:
    save(1, named("gone", title="old defect", evidence="old()", file="old.py"))
    save(2, named("here", title="fresh worry", evidence="fresh[0]", file="fresh.py", rule=None))
    out = run("compare", identifier(1)).out
    assert out == run("compare", identifier(1), "last").out
    assert "1 new, 1 fixed" in out
    document = json.loads(run("compare", "--json", identifier(1), identifier(2)).out)
    assert [finding["fingerprint"] for finding in document["fixed"]] == ["gone"]


def test_trends_are_of_all_kinds_or_some_and_of_the_last_weeks(save: Save, run: Run) -> None:
    save(1, named("a"), named("b"))
    save(29, named("a", expert="tests"))
    save(3, repository="root:elsewhere", work_tree="tree:elsewhere")
    out = run("trends").out
    assert [line.split("  ")[0] for line in out.splitlines() if line.isupper()] == ["WEEK OF", "EXPERT", "REVIEWER"]
    assert "█" in out
    assert "WEEK OF" not in run("trends", "--by", "expert").out
    trends = json.loads(run("trends", "--json", "--by", "reviewer", "--by", "week", "--weeks", "2").out)["trends"]
    assert list(trends) == ["reviewer", "week"]
    assert trends["reviewer"][0]["reviews"] == 2
    assert [row["key"] for row in trends["week"]] == ["2026-03-23", "2026-03-30"]
    everywhere = json.loads(run("trends", "--json", "--by", "reviewer", "--all").out)["trends"]
    assert everywhere["reviewer"][0]["reviews"] == 3


def test_what_is_removed_is_said_and_a_dry_run_changes_nothing(save: Save, run: Run) -> None:
    for number in (1, 2, 3):
        save(number, named("f", body="x" * 3000))
    save(4, commit_review(1))
    save(5, repository="root:elsewhere", work_tree="tree:elsewhere")
    dry = run("prune", "--keep", "1", "--dry-run").out
    assert dry.startswith("Would remove 3 reviews with 3 findings, about ")
    assert len(run("list").out.splitlines()) == 5
    assert run("prune", "--keep", "1").out.startswith("Removed 3 reviews with 3 findings; the database is ")
    assert run("prune", "--keep", "0").out.startswith("Removed 1 review (1 sweep among them) with 0 findings")
    assert run("prune", "--keep", "0").out == "Nothing to remove.\n"
    assert "00000005" in run("list", "--all").out
    run("prune", "--keep", "0", "--all")
    assert "No review is stored" in run("list", "--all").out
    for number, days in ((1, 400), (2, 100), (3, 80), (4, 1)):
        save(number, saved_at=datetime.now(UTC) - timedelta(days=days))
    rows = (("90d --keep 3", 1), ("90", 1), ("12w --dry-run", 0), ("2M", 1), ("99999y", 0), ("0d", 1))
    for words, count in rows:
        assert json.loads(run("prune", "--json", "--older-than", *words.split()).out)["reviews"] == count, words


def test_a_database_that_cannot_be_used_is_reported(
    shop: GitRepository, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.path / "codeloupe.sqlite3").write_bytes(b"something else entirely" * 100)
    monkeypatch.setenv("CODELOUPE_HOME", str(shop.path))
    verbs = (["list"], ["show"], ["trends"], ["prune", "--keep", "1"])
    refused(run, *((words, "is not a database") for words in verbs), kind=StoreError)


FINGERPRINT, OTHER = "0123456789ab" + "c" * 20, "0123456789ff" + "d" * 20


def dismissed(shop: GitRepository) -> list[tuple[str, str]]:
    with opened_history() as history:
        names = asyncio.run(find_identity(shop.path, history)).names
        return [(one.fingerprint, one.reason) for one in history.dismissals(names)]


def test_a_finding_is_dismissed_by_the_beginning_of_its_fingerprint_and_taken_back(
    run: Run, save: Save, shop: GitRepository
) -> None:
    save(1, named(FINGERPRINT, file="a.py"), named(OTHER))
    rows = [
        (("0123456789ab",), "a reason is required"),
        (("0123456789ab", "--reason", " "), "a reason is required"),
        (("0123456789ab", "--reason", "x" * 1001), "longer than"),
        (("012345", "--reason", "x"), "matches several"),
        (("fedcba9876", "--reason", "x"), "no saved finding of repository"),
        (("0123", "--reason", "x"), "is not a fingerprint"),
        (("nothing%", "--reason", "x"), "is not a fingerprint"),
        (("0123456789ab", "--undo"), "is not dismissed"),
        (("--undo",), "no finding was named"),
        (("--reason", "x"), "no finding was named"),
    ]
    refused(run, *((["dismiss", *words], said) for words, said in rows))
    assert dismissed(shop) == []
    code, out, _ = run("dismiss", FINGERPRINT[:12].upper(), "--reason", "  it is a\nconstant ")
    assert code == 0
    assert "Dismissed 0123456789ab in a.py" in out
    assert dismissed(shop) == [(FINGERPRINT, "it is a constant")]
    assert "it is a constant" in run("dismiss").out
    assert "counts again" in run("dismiss", "0123456", "--undo").out
    assert "Nothing is dismissed" in run("dismiss").out
    secret = "ghp_" + "a1B2" * 9
    run("dismiss", OTHER, "--reason", f"the token {secret} is a sample")
    ((_, reason),) = dismissed(shop)
    assert secret not in reason
