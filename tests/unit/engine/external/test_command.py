from __future__ import annotations

import ast
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.engine.external.command import CommandReviewer
from codeloupe.git.diff import parse_diff
from codeloupe.model.events import Event, LaneFinished, Warned
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.ports import ReviewerOutcome
from codeloupe.model.scope import CommitScope, DiffScope, UncommittedScope
from tests.children import assert_all_gone, recorded_pids, until_recorded
from tests.endings import with_enough_time
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.engine.external.review_tasks import INFO, review_now, reviewed

ITEM = {"file_path": "a.py", "line_start": 2, "line_end": 2, "priority": 1, "title": "[P1] wrong", "body": "why"}
ODD = {**ITEM, "title": "odd", "priority": "7"}


@pytest.fixture(scope="module")
def edit(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """`a.py` with a second line that is not committed. Each test has a copy."""
    repository = GitRepository(tmp_path_factory.mktemp("edit") / "repository")
    repository.write("a.py", "x = 1\n")
    repository.commit()
    repository.write("a.py", "x = 1\ny = x / 0\n")
    return repository


@pytest.fixture
def edited(edit: GitRepository, tmp_path: Path) -> GitRepository:
    return edit.copied_to(tmp_path / "repository")


def python(body: str, **options: Any) -> CommandReviewer:
    """A reviewer that runs some Python."""
    program = f"import json, os, sys, time\n{body}"
    return CommandReviewer((sys.executable, "-I", "-S", "-c", program), info=INFO, **options)


def printing(text: str, *, exit_code: int = 0, stderr: str = "") -> CommandReviewer:
    return python(f"print({text!r})\nsys.stderr.write({stderr!r})\nsys.exit({exit_code})")


def answer(*items: dict[str, Any], verdict: str = "FAIL") -> str:
    return json.dumps({"verdict": verdict, "findings": items})


def review(reviewer: CommandReviewer, repository: GitRepository, **more: Any) -> ReviewerOutcome:
    return review_now(reviewer, UncommittedScope(), repository.path, **more)


def failure(outcome: ReviewerOutcome) -> str:
    [unit] = outcome.units_failed
    assert (unit.unit, unit.files) == ("command", ("a.py",))
    return unit.reason


def test_findings_are_placed_on_lines_of_the_change(edited: GitRepository) -> None:
    events: list[Event] = []
    outcome = review(printing(answer(ITEM)), edited, events=events)
    [finding] = outcome.findings
    assert (finding.file, finding.line_start, finding.severity) == ("a.py", 2, Severity.HIGH)
    assert (finding.reviewer, finding.anchored, finding.can_block) == ("command", True, True)
    assert (outcome.units_total, outcome.units_failed, outcome.errors) == (1, (), ())
    [finished] = [event for event in events if isinstance(event, LaneFinished)]
    assert (finished.lane, finished.findings, finished.failure) == ("command", 1, None)


def test_the_diff_is_on_stdin_and_the_files_are_where_it_runs(edited: GitRepository) -> None:
    diff = edited.git("diff", "--full-index").decode()
    body = "sys.stdin.buffer.read().decode() + open('a.py').read()"
    reviewer = python(f"print(json.dumps({{'findings': [{{**{ITEM!r}, 'body': {body}}}]}}))")
    [finding] = review(reviewer, edited).findings
    assert finding.body == diff + "x = 1\ny = x / 0"


def test_it_runs_in_the_whole_tree_where_there_is_one_but_not_in_that_of_an_untrusted_change(
    edited: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviewer = python("sys.stderr.write(f'{os.getcwd()} {os.listdir()}'); sys.exit(4)")
    assert str(edited.path) in failure(review(reviewer, edited, tree=edited.path))
    assert failure(review(reviewer, edited, trusted=False, tree=edited.path)).endswith(" []")
    monkeypatch.chdir(edited.path)
    edited.write("review.sh", "#!/bin/sh\necho '{\"findings\": []}'\n", executable=True)
    relative = CommandReviewer(("./review.sh",), info=INFO)
    assert review(relative, edited, exclude=("review.sh",)).units_failed == ()
    untrusted = failure(review(relative, edited, exclude=("review.sh",), trusted=False))
    assert "may lead into the untrusted change" in untrusted


def test_lines_of_a_linter_with_its_exit_code_are_findings(edited: GitRepository) -> None:
    outcome = review(printing("a.py:2:5: error: division by zero", exit_code=1, stderr="1 problem"), edited)
    [finding] = outcome.findings
    assert (finding.line_start, finding.severity, finding.anchored) == (2, Severity.HIGH, True)
    assert outcome.units_failed == ()


@each(
    ("reviewer", "findings", "reason"),
    [
        (printing("", exit_code=2, stderr="no configuration"), 0, "it ended with exit code 2: no configuration"),
        (printing('{"findings": []}', exit_code=2), 0, "it ended with exit code 2"),
        (python(f"print({answer(ITEM)!r}, flush=True)\nos.kill(os.getpid(), 9)"), 1, "it ended with signal 9"),
        (python(""), 0, "empty output"),
        (python("sys.exit(3)", silence_is_clean=True), 0, "it ended with exit code 3"),
        (printing(answer()), 0, "verdict FAIL without findings"),
        (
            printing(answer({**ITEM, "file_path": "b.py"})),
            *(1, "its verdict is FAIL, but no finding on the reviewed files says why"),
        ),
        (printing(json.dumps({"findings": [ODD]})), 0, "invalid severity: 7"),
        # One that cannot be read may be the worst.
        *[
            (printing(answer({**ODD, "priority": known}, ODD, verdict="PASS")), 1, "invalid severity: 7 (finding 2)")
            for known in (1, 2, 3)
        ],
        (python("sys.stdout.write('x' * 17_000_000)"), 0, "it wrote more than 16,777,216 bytes, so its output"),
    ],
)
def test_what_is_no_whole_review_is_a_failure(
    edited: GitRepository, reviewer: CommandReviewer, findings: int, reason: str
) -> None:
    outcome = review(reviewer, edited)
    assert len(outcome.findings) == findings
    assert failure(outcome).startswith(reason)
    assert outcome.errors[-1].message.startswith(f"command could not review: {reason}")


@each("reviewer", [printing(answer(verdict="PASS")), python("", silence_is_clean=True)])
def test_an_empty_report_is_a_clean_review_and_silence_where_that_is_said(
    edited: GitRepository, reviewer: CommandReviewer
) -> None:
    outcome = review(reviewer, edited)
    assert (outcome.findings, outcome.units_failed, outcome.errors) == ((), (), ())


def test_output_that_cannot_be_read_is_kept_and_what_is_lost_is_told(edited: GitRepository) -> None:
    outcome = review(printing('{"verdict": "PASS"}'), edited)
    assert failure(outcome) == "missing field: findings"
    [error] = outcome.errors
    assert (error.kind, error.detail.strip()) == ("invalid_answer", '{"verdict": "PASS"}')
    events: list[Event] = []
    odd = {"title": "odd", "file_path": "a.py", "priority": "7"}
    outcome = review(printing(answer(ITEM, odd)), edited, events=events)
    assert (len(outcome.findings), failure(outcome)) == (1, "missing field: line_start (finding 2)")
    notes = [error.message for error in outcome.errors if error.kind == "external_note"]
    assert [event.message for event in events if isinstance(event, Warned)] == notes
    assert "invalid severity: 7 (finding 2)" in notes[-1]


def test_a_program_that_takes_too_long_is_ended_with_all_it_started(edited: GitRepository, tmp_path: Path) -> None:
    script = (
        f"open({str(tmp_path / 'one.pid')!r}, 'w').write(str(os.getpid()))\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    open({str(tmp_path / 'two.pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    outcome = with_enough_time(
        lambda seconds: review(python(script), edited, timeout_seconds=seconds),
        ready=lambda _: len(recorded_pids(tmp_path)) == 2,
    )
    assert failure(outcome) == "timeout"
    assert (outcome.errors[0].kind, "did not finish within " in outcome.errors[0].message) == ("timeout", True)
    assert_all_gone(recorded_pids(tmp_path))


@pytest.mark.requirement("C8")
def test_a_cancellation_ends_the_program(edited: GitRepository, tmp_path: Path) -> None:
    reviewer = python(f"open({str(tmp_path / 'one.pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")

    async def go() -> None:
        task = asyncio.ensure_future(reviewed(reviewer, UncommittedScope(), edited.path))
        await until_recorded(tmp_path, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert_all_gone(recorded_pids(tmp_path))


def test_a_program_that_never_reads_its_input_is_fine(repository: GitRepository) -> None:
    repository.write("a.py", "x = 1\n" * 15_000)
    repository.commit()
    assert review_now(printing('{"findings": []}'), CommitScope("HEAD"), repository.path).units_failed == ()


def test_a_program_that_is_not_there_is_named_and_one_of_the_reviewed_tree_is_none(
    edited: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = review(CommandReviewer(("no-such-reviewer",), info=INFO), edited)
    assert failure(outcome).startswith("there is no program no-such-reviewer")
    assert outcome.errors[0].kind == "fatal"
    edited.write("my-linter", "#!/bin/sh\necho '{\"findings\": []}'\n", executable=True)
    monkeypatch.chdir(edited.path)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    outcome = review(CommandReviewer(("my-linter",), info=INFO), edited, tree=edited.path, exclude=("my-linter",))
    assert failure(outcome).startswith("there is no program my-linter")
    with pytest.raises(ValueError, match="at least the name"):
        CommandReviewer((), info=INFO)


def test_no_credential_reaches_the_program_unless_it_is_named_and_one_that_it_prints_is_masked(
    edited: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "swordfish-" * 3
    monkeypatch.setenv("SOME_API_KEY", secret)
    monkeypatch.setenv("LINTER_MODE", "strict")
    script = "sys.stderr.write(' '.join(sorted(os.environ))); sys.exit(9)"
    names = failure(review(python(script), edited)).split()
    assert {"PATH", "HOME"} <= set(names)
    assert not {"SOME_API_KEY", "LINTER_MODE"} & set(names)
    assert "LINTER_MODE" in failure(review(python(script, environment_names=("LINTER_MODE",)), edited)).split()
    outcome = review(printing(f"no json, {secret}", exit_code=1, stderr=secret), edited)
    assert secret not in repr(outcome)
    assert secret not in outcome.errors[0].detail


def test_a_file_of_which_only_the_diff_is_known_is_reviewed(tmp_path: Path) -> None:
    diff = b"--- a/a.py\n+++ b/a.py\n@@ -1 +1,2 @@\n x = 1\n+y = x / 0\n"
    reviewer = python("sys.stderr.write(repr(sys.stdin.read())); sys.exit(9)")
    shown = failure(review_now(reviewer, DiffScope("d", diff), tmp_path)).partition(": ")[2]
    assert parse_diff(ast.literal_eval(shown).encode())[0].hunks == parse_diff(diff)[0].hunks


@each("text", ["{" * 100_000, "[" * 100_000, "\0\x1b]8;;x\a", '{"findings": [' + "1," * 50_000, "\ud800"])
def test_hostile_output_harms_nobody(edited: GitRepository, text: str) -> None:
    outcome = review(python(f"sys.stdout.buffer.write({text.encode('utf-8', 'surrogatepass')!r})"), edited)
    assert outcome.units_failed
    assert all(isinstance(finding, Finding) for finding in outcome.findings)
