import json
from datetime import UTC, datetime, timedelta

import pytest

from codeloupe.cli.baseline import configure, run
from codeloupe.cli.parser import Parser
from codeloupe.errors import UsageError
from codeloupe.model.baseline import BASELINE_NAME, BaselineEntry
from codeloupe.model.finding import Suppression, SuppressionKind
from codeloupe.model.review import Review, ReviewError
from codeloupe.reports.json_v1 import render_json
from codeloupe.store.baseline import read_working_file
from tests.repository import GitRepository
from tests.unit.reports.examples import finding, review

ONE = "11111111aaaa22223333444455556666"
TWO = "22222222bbbb22223333444455556666"
FOUND = review(finding(fingerprint=ONE, file="a.py", line_start=3), finding(fingerprint=TWO, file="b.py"))
LATER = str(datetime.now(UTC).date() + timedelta(days=30))


def baseline(repository: GitRepository, *words: str) -> int:
    """Run the verb as the program does."""
    parser = Parser()
    configure(parser)
    arguments = parser.parse_args([*words, "--repo", str(repository.path)])
    return run(arguments)


def report(repository: GitRepository, made: Review = FOUND) -> list[str]:
    """The option that takes a review from a file."""
    path = repository.path.parent / "report.json"
    path.write_text(render_json(made))
    return ["--from", str(path)]


def entries(repository: GitRepository) -> list[BaselineEntry]:
    return list(read_working_file(repository.path).baseline.entries)


def test_an_entry_is_renewed_when_it_is_named_or_expired_and_kept_when_all_are_adopted(
    repository: GitRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'version: 1\nentries:\n- {{fingerprint: "{TWO}", file: b.py, reason: old, expires: 2000-01-01}}\n'
    repository.write(BASELINE_NAME, text)
    source = report(repository)
    baseline(repository, "add", "a.py:3", "--reason", "first", *source)
    words = ["add", ONE, "--reason", " legacy  code ", "--owner", "me", "--expires", LATER]
    baseline(repository, *words, *source)
    assert "Renewed 1 entry" in capsys.readouterr().out
    source = report(repository, review(*FOUND.findings, complete=False))
    baseline(repository, "add", "--all", "--reason", "third", *source)
    assert (
        "was not complete: findings in code that it did not review are not in the baseline" in capsys.readouterr().err
    )
    known = {each.fingerprint: (each.reason, each.owner, str(each.expires)) for each in entries(repository)}
    assert known == {ONE: ("legacy code", "me", LATER), TWO: ("third", "", "None")}
    baseline(repository, "add", "--all", "--reason", "fourth", *source)
    assert "Nothing to add" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "--reason", "x"], "fingerprints and --all are both missing"),
        (["add", ONE, "--all", "--reason", "x"], "fingerprints and --all exclude each other"),
        (["add", ONE, "--reason", " "], "--reason is empty"),
        (["add", ONE, "--reason", "x" * 5000], "--reason is empty or too long"),
        (["add", ONE, "--reason", "x", "--owner", "x" * 5000], "--owner is too long"),
        (["add", ONE, "--reason", "x", "--expires", "soon"], "--expires: 'soon' is not a date"),
        (["add", ONE, "--reason", "x", "--expires", "2000-01-01"], "--expires: 2000-01-01 is in the past"),
        (["add", "abcdef", "--reason", "x"], "no finding 'abcdef' in "),
    ],
)
def test_a_wrong_call_is_told_and_nothing_is_written(repository: GitRepository, words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        baseline(repository, *words, *report(repository))
    assert caught.value.message.startswith(message)
    assert caught.value.hint
    assert not (repository.path / BASELINE_NAME).exists()


def used_and_unused() -> Review:
    aside = Suppression(kind=SuppressionKind.BASELINE, reason="x")
    told = ReviewError("baseline_unused", f"x: {BaselineEntry(fingerprint=TWO, reason='x', line=9).in_short()}")
    return review(finding(fingerprint=ONE, suppression=aside), errors=(told,))


def test_the_list_marks_what_is_used_unused_and_expired_and_pruning_removes_it(
    repository: GitRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline(repository, "add", "--all", "--reason", "x", *report(repository))
    path = repository.path / BASELINE_NAME
    before = path.read_text() + "  - {fingerprint: abcdef, reason: x, expires: 2000-01-01}\n"
    path.write_text(before)
    capsys.readouterr()
    source = report(repository, used_and_unused())
    baseline(repository, "list", "--json", *source)
    document = json.loads(capsys.readouterr().out)
    assert [entry["state"] for entry in document["entries"]] == ["used", "unused", "expired"]
    baseline(repository, "list", "--color", "never", *source)
    assert "3 entries: 1 used, 1 unused, 1 expired" in capsys.readouterr().out
    assert baseline(repository, "prune", "--dry-run", *source) == 0
    assert "Would remove 2 entries" in capsys.readouterr().out
    assert path.read_text() == before
    assert baseline(repository, "prune", "--json", *source) == 0
    assert [each.fingerprint for each in entries(repository)] == [ONE]
    capsys.readouterr()
    baseline(repository, "prune", *source)
    assert "Nothing to remove" in capsys.readouterr().out


def test_without_a_saved_review_nothing_can_be_added_but_listed_and_pruned(
    repository: GitRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write(BASELINE_NAME, "version: 1\nentries:\n- {fingerprint: abcdef, reason: x, expires: 2000-01-01}\n")
    with pytest.raises(UsageError, match="is stored"):
        baseline(repository, "add", ONE, "--reason", "x")
    assert baseline(repository, "list") == 0
    assert "cannot determine which entries are used: no review made in" in capsys.readouterr().err
    assert baseline(repository, "prune") == 0
    assert "only expired entries were checked" in capsys.readouterr().err
    assert entries(repository) == []


def test_a_review_that_is_named_must_be_there(repository: GitRepository) -> None:
    for verb in ("list", "prune"):
        with pytest.raises(UsageError):
            baseline(repository, verb, "--review", "abcdef")
        with pytest.raises(UsageError, match="cannot read the report"):
            baseline(repository, verb, "--from", "gone.json")
