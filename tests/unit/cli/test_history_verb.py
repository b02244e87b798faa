"""`codeloupe history`, verb by verb, on a real repository and a real database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from codeloupe.cli import history as history_options
from codeloupe.cli import history as verb
from codeloupe.cli.parser import Parser
from codeloupe.engine.history import opened_history
from codeloupe.errors import NotARepository, OutputError, StoreError, UsageError
from codeloupe.git.identity import find_identity
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Policy
from tests.repository import GitRepository
from tests.unit.store.history_samples import commit_review, identifier, named, record, sweep_record

Save = Callable[..., None]


@pytest.fixture
def shop(repository: GitRepository, monkeypatch: pytest.MonkeyPatch) -> GitRepository:
    repository.write("a.py", "x = 1\n")
    repository.commit()
    monkeypatch.chdir(repository.path)
    return repository


@pytest.fixture
def name(shop: GitRepository) -> str:
    """What the history calls the repository that is worked in."""
    with opened_history() as history:
        return asyncio.run(find_identity(shop.path, history)).names[0]


@pytest.fixture
def save(name: str) -> Save:
    """Saves a review of the repository that is worked in."""

    def saved(number: int, *findings: Finding, raw_outputs: dict[str, str] | None = None, **changes: Any) -> None:
        with opened_history() as history:
            history.save(record(number, *findings, **{"repository": name, **changes}), raw_outputs=raw_outputs or {})

    return saved


@pytest.fixture
def save_sweep(name: str) -> Save:
    def saved(number: int, *commits: Any, **changes: Any) -> None:
        with opened_history() as history:
            history.save_sweep(sweep_record(number, *commits, **{"repository": name, **changes}))

    return saved


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a verb and returns its exit code and what it wrote."""

    def ran(*words: str) -> tuple[int, str, str]:
        parser = Parser(prog="codeloupe history")
        history_options.configure(parser)
        exit_code = verb.run(parser.parse_args(words))
        captured = capsys.readouterr()
        return exit_code, captured.out, captured.err

    return ran


Run = Callable[..., tuple[int, str, str]]


class TestList:
    def test_the_reviews_of_this_repository_are_listed_and_no_others(self, save: Save, run: Run) -> None:
        save(1)
        save(2, branch="other")
        save(3, repository="root:elsewhere", repository_label="elsewhere")
        out = run("list")[1]
        assert [line.split()[0] for line in out.splitlines()] == ["ID", "00000002", "00000001"]
        assert "elsewhere" in run("list", "--all-repositories")[1]
        assert "00000001" not in run("list", "--branch", "other")[1]
        assert "on branch none is saved" in run("list", "--branch", "none")[1]

    def test_more_than_are_shown_is_said(self, save: Save, run: Run) -> None:
        for number in range(1, 5):
            save(number)
        _, out, err = run("list", "--limit", "3")
        assert len(out.splitlines()) == 4
        assert "--limit 6 shows more" in err
        assert run("list", "--limit", "4")[2] == ""

    @pytest.mark.parametrize(
        "words", [["list", "--limit", "0"], ["trends", "--weeks", "-1"], ["prune", "--keep", "-1"]]
    )
    def test_a_number_that_makes_no_sense_is_told(self, shop: GitRepository, run: Run, words: list[str]) -> None:
        with pytest.raises(UsageError, match="must be at least"):
            run(*words)

    def test_a_place_that_is_none_is_told(self, shop: GitRepository, run: Run) -> None:
        with pytest.raises(NotARepository, match="is not a directory"):
            run("list", "--repo", "nowhere")


class TestShow:
    def test_a_review_is_shown_as_it_was_reported(self, save: Save, run: Run) -> None:
        save(1, named("f", title="Statement is built"))
        for words in (["show", "0000"], ["show", "last"], ["show"]):
            exit_code, out, err = run(*words)
            assert (exit_code, err) == (0, "")
            assert out.startswith(
                f"Review {identifier(1)}, saved 2026-03-03 09:00, on branch topic, by codeloupe 0.1\n"
            )
            assert "HIGH P1  Statement is built" in out
            assert "FAIL  1 finding at or above fail_on=high" in out

    def test_a_review_with_an_id_of_its_own_kind_is_shown_too(self, save: Save, run: Run) -> None:
        save(1, review_id="nightly-7")
        assert run("show", "last")[1].startswith("Review nightly-7, ")
        assert json.loads(run("render", "last", "--format", "json")[1])["review_id"] == "nightly-7"

    def test_a_review_of_which_a_finding_is_lost_is_incomplete(self, save: Save, run: Run) -> None:
        save(1, named("f", severity=Severity.CRITICAL))
        with opened_history() as history, history._database.writing() as connection:
            connection.execute("UPDATE findings SET payload = x'00'")
        _, out, err = run("show", "last")
        assert "finding 1 of review" in err
        assert "INCOMPLETE" in out
        assert run("render", "last")[0] == 3

    def test_a_sweep_is_shown_with_its_commits(self, save_sweep: Save, run: Run) -> None:
        save_sweep(9, commit_review(1, named("a")), commit_review(2, review=None, verdict=None, failure="timeout"))
        out = run("show", "last")[1]
        assert "fix: number 1" in out
        assert "INCOMPLETE" in out
        its = run("show", identifier(1001))[1]
        assert f"part of sweep {identifier(9)[:12]}" in its
        with pytest.raises(UsageError, match="is a sweep"):
            run("show", "last", "--raw")

    def test_a_sweep_is_rendered_again_in_each_of_its_formats_and_judged_anew(
        self, save_sweep: Save, run: Run, tmp_path: Path
    ) -> None:
        save_sweep(9, commit_review(1, named("a", severity=Severity.HIGH)))
        sweep = identifier(9)
        assert "fix: number 1" in run("render", sweep)[1]
        code, out, _ = run("render", sweep, "--format", "json")
        assert (code, json.loads(out)["sweep_id"]) == (0, sweep)
        assert run("render", sweep, "--format", "markdown")[1].startswith("# Commit review")
        code, _, _ = run("render", sweep, "--format", "xml", "--fail-on", "P1", "-o", str(tmp_path / "sweep.xml"))
        assert code == 1
        assert 'exit-code="1"' in (tmp_path / "sweep.xml").read_text(encoding="utf-8")
        for wrong in (("--format", "sarif"), ("--fail-on", "low"), ("--min-severity", "high")):
            with pytest.raises(UsageError, match="is a sweep"):
                run("render", sweep, *wrong)

    def test_a_sweep_that_was_not_finished_or_not_reviewed_whole_does_not_pass_when_it_is_rendered(
        self, save_sweep: Save, run: Run
    ) -> None:
        save_sweep(8, commit_review(1), finished=False)
        code, out, _ = run("render", identifier(8), "--format", "json")
        assert (code, json.loads(out)["exit_code"]) == (3, 3)
        assert json.loads(out)["summary"].endswith("not finished")
        assert run("render", identifier(8), "--on-incomplete", "pass")[0] == 0

    def test_raw_output_is_shown_without_what_a_terminal_would_obey(self, save: Save, run: Run) -> None:
        save(1, raw_outputs={"a.py (security)": '{"findings":\n []}\x1b[31m', "b.py": "::error::x"})
        out = run("show", "last", "--raw")[1]
        assert out == '=== a.py (security)\n{"findings":\n []}\\x1b[31m\n\n=== b.py\n: :error::x\n'
        save(2)
        assert run("show", "last", "--raw")[1] == "No raw output was saved with this review.\n"


class TestRender:
    @pytest.mark.parametrize(
        ("words", "exit_code"),
        [
            ([], 1),
            (["--fail-on", "critical"], 0),
            (["--fail-on", "P0"], 0),
            (["--fail-on", "low"], 1),
            (["--fail-on", "critical", "--min-severity", "critical"], 0),
        ],
    )
    def test_another_policy_gives_its_own_exit_code(
        self, save: Save, run: Run, words: list[str], exit_code: int
    ) -> None:
        save(1, named("f"))
        ended, out, _ = run("render", "last", "--format", "json", *words)
        assert (ended, json.loads(out)["exit_code"]) == (exit_code, exit_code)

    def test_what_was_not_reviewed_may_pass_when_asked_and_it_is_said(self, save: Save, run: Run) -> None:
        save(1, complete=False, exit_code=3)
        assert run("render", "last")[0] == 3
        exit_code, out, err = run("render", "last", "--on-incomplete", "pass")
        assert exit_code == 0
        assert "INCOMPLETE" in out
        assert "not everything was reviewed" in err
        assert run("render", "last", "--on-incomplete", "fail")[0] == 3

    def test_what_was_not_kept_cannot_be_judged(self, save: Save, run: Run) -> None:
        save(1, hidden_findings=3, policy=Policy(min_severity=Severity.HIGH))
        with pytest.raises(UsageError, match="3 findings below high were not kept"):
            run("render", "last", "--fail-on", "low")

    def test_it_can_be_written_to_a_file(self, save: Save, run: Run, tmp_path: Path) -> None:
        save(1, named("f"))
        target = tmp_path / "report.json"
        exit_code, out, err = run("render", "last", "--format", "json", "-o", str(target))
        assert (exit_code, out, err) == (1, "", f"wrote {target}\n")
        assert json.loads(target.read_text())["review_id"] == identifier(1)
        with pytest.raises(OutputError):
            run("render", "last", "-o", str(tmp_path / "no" / "folder"))

    def test_an_unknown_format_or_severity_is_told_with_what_there_is(self, save: Save, run: Run) -> None:
        save(1)
        with pytest.raises(UsageError, match="'pdf' is not a format") as caught:
            run("render", "last", "--format", "pdf")
        assert "the formats are text, concise, json" in caught.value.hint
        with pytest.raises(UsageError, match="--fail-on: not a severity: 'worst'"):
            run("render", "last", "--fail-on", "worst")


class TestTrends:
    def test_all_ways_to_tell_them_or_some(self, save: Save, run: Run) -> None:
        save(1, named("a"), named("b"))
        save(2, named("a", expert="tests"))
        save(3, repository="root:elsewhere")
        out = run("trends")[1]
        assert [line.split("  ")[0] for line in out.splitlines() if line.isupper()] == ["WEEK OF", "EXPERT", "REVIEWER"]
        assert "█" in out
        out = run("trends", "--by", "expert")[1]
        assert "WEEK OF" not in out
        document = json.loads(run("trends", "--json", "--by", "reviewer", "--by", "week")[1])
        assert list(document["trends"]) == ["reviewer", "week"]
        assert document["trends"]["reviewer"][0]["reviews"] == 2
        everywhere = json.loads(run("trends", "--json", "--by", "reviewer", "--all-repositories")[1])
        assert everywhere["trends"]["reviewer"][0]["reviews"] == 3

    def test_only_the_last_weeks_are_shown(self, save: Save, run: Run) -> None:
        save(1)
        save(29)
        document = json.loads(run("trends", "--json", "--by", "week", "--weeks", "2")[1])
        assert [row["key"] for row in document["trends"]["week"]] == ["2026-03-23", "2026-03-30"]


class TestPrune:
    def test_what_goes_is_told_and_a_dry_run_changes_nothing(self, save: Save, save_sweep: Save, run: Run) -> None:
        for number in (1, 2, 3):
            save(number, named("f", body="x" * 3000))
        save_sweep(4, commit_review(1))
        out = run("prune", "--keep", "1", "--dry-run")[1]
        assert out.startswith("Would remove 3 reviews with 3 findings, about ")
        assert len(run("list")[1].splitlines()) == 5
        assert run("prune", "--keep", "1")[1].startswith("Removed 3 reviews with 3 findings; the database is ")
        assert len(run("list")[1].splitlines()) == 2
        assert run("prune", "--keep", "0")[1].startswith("Removed 1 review (1 sweep among them) with 0 findings")
        assert run("prune", "--keep", "0")[1] == "Nothing to remove.\n"

    def test_age_and_number_together(self, save: Save, run: Run) -> None:
        now = datetime.now(UTC)
        for number, days in ((1, 400), (2, 100), (3, 80), (4, 1)):
            save(number, saved_at=now - timedelta(days=days))
        assert json.loads(run("prune", "--older-than", "90d", "--keep", "3", "--json")[1])["reviews"] == 1
        assert json.loads(run("prune", "--older-than", "90", "--json")[1])["reviews"] == 1
        assert json.loads(run("prune", "--older-than", "12w", "--dry-run", "--json")[1])["reviews"] == 0
        assert json.loads(run("prune", "--older-than", "2M", "--json")[1])["reviews"] == 1
        assert json.loads(run("prune", "--older-than", "99999y", "--json")[1])["reviews"] == 0
        assert json.loads(run("prune", "--older-than", "0d", "--json")[1])["reviews"] == 1

    def test_other_repositories_are_left_alone_unless_all_are_meant(self, save: Save, run: Run) -> None:
        save(1)
        save(2, repository="root:elsewhere")
        run("prune", "--keep", "0")
        assert "00000002" in run("list", "--all-repositories")[1]
        run("prune", "--keep", "0", "--all-repositories")
        assert "No review is saved yet" in run("list", "--all-repositories")[1]

    @pytest.mark.parametrize("age", ["", "soon", "90x", "-3d", "1.5d", "9" * 30, "d90"])
    def test_an_age_that_is_none_is_told(self, shop: GitRepository, run: Run, age: str) -> None:
        with pytest.raises(UsageError, match="is no age"):
            run("prune", f"--older-than={age}")


def test_a_database_that_cannot_be_used_is_told(shop: GitRepository, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (shop.path / "codeloupe.sqlite3").write_bytes(b"something else entirely" * 100)
    monkeypatch.setenv("CODELOUPE_HOME", str(shop.path))
    for words in (["list"], ["show"], ["trends"], ["prune", "--keep", "1"]):
        with pytest.raises(StoreError, match="is not a database"):
            run(*words)


class TestDismiss:
    FINGERPRINT = "0123456789ab" + "c" * 20
    OTHER = "0123456789ff" + "d" * 20

    @pytest.fixture
    def saved(self, save: Save) -> None:
        save(1, named(self.FINGERPRINT, file="a.py"), named(self.OTHER))

    def dismissed(self, shop: GitRepository) -> list[tuple[str, str]]:
        with opened_history() as history:
            names = asyncio.run(find_identity(shop.path, history)).names
            return [(one.fingerprint, one.reason) for one in history.dismissals(names)]

    def test_a_finding_is_dismissed_by_the_beginning_of_its_fingerprint_and_taken_back(
        self, run: Run, saved: None, shop: GitRepository
    ) -> None:
        code, out, _ = run("dismiss", self.FINGERPRINT[:12].upper(), "--reason", "  it is a\nconstant ")
        assert code == 0
        assert "Dismissed 0123456789ab in a.py" in out
        assert self.dismissed(shop) == [(self.FINGERPRINT, "it is a constant")]
        assert "it is a constant" in run("dismiss")[1]
        assert "counts again" in run("dismiss", "0123456", "--undo")[1]
        assert self.dismissed(shop) == []
        assert "Nothing is dismissed" in run("dismiss")[1]

    @pytest.mark.parametrize(
        ("words", "told"),
        [
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
        ],
    )
    def test_what_cannot_be_dismissed_is_told_in_words(
        self, run: Run, saved: None, shop: GitRepository, words: tuple[str, ...], told: str
    ) -> None:
        with pytest.raises(UsageError, match=told):
            run("dismiss", *words)
        assert self.dismissed(shop) == []

    def test_a_secret_in_the_reason_is_not_kept(self, run: Run, saved: None, shop: GitRepository) -> None:
        secret = "ghp_" + "a1B2" * 9
        run("dismiss", self.OTHER, "--reason", f"the token {secret} is a sample")
        ((_, reason),) = self.dismissed(shop)
        assert secret not in reason
