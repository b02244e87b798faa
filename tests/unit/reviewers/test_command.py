import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.config.schema import ReviewFormat
from codeloupe.model.change import Change, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.events import Event, LaneFinished, Warned
from codeloupe.model.finding import Claim, Finding, Severity, Source
from codeloupe.model.ports import Plan, ReviewerResult
from codeloupe.model.scope import UncommittedScope
from codeloupe.reviewers.answers import RawClaim
from codeloupe.reviewers.command import CommandReviewer, placed, reporters_of
from tests.children import assert_all_gone, recorded_pids, until_recorded
from tests.endings import with_enough_time
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.reviewers.review_tasks import INFO, failure, review_now, reviewed

pytestmark = pytest.mark.program

ITEM = {"file_path": "a.py", "line_start": 2, "line_end": 2, "priority": 1, "title": "[P1] wrong", "body": "why"}
NIT = {**ITEM, "priority": 3}
ODD = {**ITEM, "title": "odd", "priority": "7"}


@pytest.fixture(scope="module")
def edit(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """`a.py` with a second line that is not committed. Each test has a copy."""
    repository = GitRepository(tmp_path_factory.mktemp("edit") / "repository")
    repository.commit_files({"a.py": "x = 1\n"})
    repository.write("a.py", "x = 1\ny = x / 0\n")
    return repository


@pytest.fixture
def edited(edit: GitRepository, tmp_path: Path) -> GitRepository:
    return edit.copied_to(tmp_path / "repository")


def python(body: str, output_format: ReviewFormat = "findings") -> CommandReviewer:
    """A reviewer that runs some Python."""
    program = f"import json, os, sys, time\n{body}"
    argv = (sys.executable, "-I", "-S", "-c", program)
    return CommandReviewer(argv, info=INFO, output_format=output_format)


def printing(
    text: str, *, exit_code: int = 0, stderr: str = "", output_format: ReviewFormat = "findings"
) -> CommandReviewer:
    return python(f"print({text!r})\nsys.stderr.write({stderr!r})\nsys.exit({exit_code})", output_format)


def answer(*items: dict[str, Any], verdict: str = "FAIL") -> str:
    return json.dumps({"verdict": verdict, "findings": items})


def review(reviewer: CommandReviewer, repository: GitRepository, **more: Any) -> ReviewerResult:
    return review_now(reviewer, UncommittedScope(), repository.path, **more)


def test_findings_are_placed_on_lines_of_the_change(edited: GitRepository) -> None:
    events: list[Event] = []
    outcome = review(printing(answer(ITEM)), edited, events=events)
    [claim] = outcome.claims
    assert (claim.file, claim.line_start, claim.severity) == ("a.py", 2, Severity.HIGH)
    assert (claim.reporter, claim.source, claim.anchored) == ("command", Source.EXTERNAL, True)
    assert outcome.completed == {"command": frozenset(("a.py",))}
    assert (outcome.units_total, outcome.units_failed, outcome.errors) == (1, (), ())
    [finished] = [event for event in events if isinstance(event, LaneFinished)]
    assert (finished.lane, finished.findings, finished.failure) == ("command", 1, None)
    # So are the lines of a linter, with its exit code.
    line = "a.py:2:5: error: division by zero"
    outcome = review(printing(line, exit_code=1, stderr="1 problem", output_format="lines"), edited)
    assert [(claim.line_start, claim.anchored) for claim in outcome.claims] == [(2, True)]
    assert outcome.units_failed == ()
    outcome = review(printing(answer(verdict="PASS")), edited)
    assert (outcome.claims, outcome.units_failed, outcome.errors) == ((), (), ())


def test_the_diff_is_on_stdin_and_the_files_are_where_it_runs(edited: GitRepository) -> None:
    diff = edited.git("diff", "--full-index").decode()
    body = "sys.stdin.buffer.read().decode() + open('a.py').read()"
    reviewer = python(f"print(json.dumps({{'verdict': 'FAIL', 'findings': [{{**{ITEM!r}, 'body': {body}}}]}}))")
    [claim] = review(reviewer, edited).claims
    assert claim.body == diff + "x = 1\ny = x / 0"


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


@each(
    ("reviewer", "findings", "reason"),
    [
        (printing("", exit_code=2, stderr="no configuration"), 0, "it ended with exit code 2: no configuration"),
        (printing('{"findings": []}', exit_code=2), 0, "it ended with exit code 2"),
        (python(f"print({answer(ITEM)!r}, flush=True)\nos.kill(os.getpid(), 9)"), 1, "it ended with signal 9"),
        *[
            (
                printing(answer(NIT, verdict="NEEDS_WORK"), exit_code=code, stderr="crashed"),
                1,
                f"it ended with exit code {code}: crashed",
            )
            for code in (2, 3, 127, 139)
        ],
        (
            printing("a.py:2: warning: odd", exit_code=2, stderr="crashed", output_format="lines"),
            1,
            "it ended with exit code 2: crashed",
        ),
        (python(""), 0, "empty output"),
        (printing(answer()), 0, "invalid verdict: FAIL, but the findings give PASS"),
        (
            printing(answer({**ITEM, "file_path": "b.py"})),
            1,
            "its verdict is FAIL, but its findings on reviewed files give PASS",
        ),
        (printing(answer(ODD, verdict="PASS")), 0, "invalid severity: 7"),
        # One that cannot be read may be the worst.
        *[
            (printing(answer({**ODD, "priority": known}, ODD, verdict="PASS")), 1, "invalid severity: 7 (finding 2)")
            for known in (1, 2, 3)
        ],
        *[
            (python(f"sys.stdout.buffer.write({odd!r})"), 0, "invalid json: no JSON found")
            for odd in (b"\0\x1b]8;;x\a", b"\xed\xa0\x80")
        ],
        (python("sys.stdout.write('x' * 17_000_000)"), 0, "it wrote more than 16,777,216 bytes, so its output"),
    ],
)
def test_what_is_no_whole_review_is_a_failure(
    edited: GitRepository, reviewer: CommandReviewer, findings: int, reason: str
) -> None:
    outcome = review(reviewer, edited)
    assert (len(outcome.claims), outcome.completed) == (findings, {})
    assert failure(outcome).startswith(reason)
    assert outcome.errors[-1].message.startswith(f"command could not review: {reason}")


def test_output_that_cannot_be_read_is_kept_and_what_is_lost_is_told(edited: GitRepository) -> None:
    outcome = review(printing('{"verdict": "PASS"}'), edited)
    assert failure(outcome) == "missing field: findings"
    assert [(unit.unit, unit.files) for unit in outcome.units_failed] == [("command", ("a.py",))]
    [error] = outcome.errors
    assert (error.kind, error.detail.strip()) == ("invalid_answer", '{"verdict": "PASS"}')
    events: list[Event] = []
    outcome = review(printing(answer(ITEM, ODD)), edited, events=events)
    assert (len(outcome.claims), failure(outcome)) == (1, "invalid severity: 7 (finding 2)")
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


def test_a_program_that_is_not_there_is_named_and_one_of_the_reviewed_tree_is_none(
    edited: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = review(CommandReviewer(("no-such-reviewer",), info=INFO), edited)
    assert failure(outcome).startswith("the program no-such-reviewer was not found")
    assert outcome.errors[0].kind == "fatal"
    edited.write("my-linter", "#!/bin/sh\necho '{\"findings\": []}'\n", executable=True)
    monkeypatch.chdir(edited.path)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    outcome = review(CommandReviewer(("my-linter",), info=INFO), edited, tree=edited.path, exclude=("my-linter",))
    assert failure(outcome).startswith("the program my-linter was not found")
    with pytest.raises(ValueError, match="at least the name"):
        CommandReviewer((), info=INFO)


def test_no_credential_reaches_the_program_and_one_that_it_prints_is_masked(
    edited: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "swordfish-" * 3
    monkeypatch.setenv("SOME_API_KEY", secret)
    monkeypatch.setenv("LINTER_MODE", "strict")
    script = "sys.stderr.write(' '.join(sorted(os.environ))); sys.exit(9)"
    names = failure(review(python(script), edited)).split()
    assert {"PATH", "HOME"} <= set(names)
    assert not {"SOME_API_KEY", "LINTER_MODE"} & set(names)
    outcome = review(printing(f"no json, {secret}", exit_code=1, stderr=secret), edited)
    assert secret not in repr(outcome)
    assert secret not in outcome.errors[0].detail


TOKEN = "ghp_" + "a1B2" * 9


@pytest.mark.defect("A7")
@each(
    "reviewer",
    [
        # Problems are cut at column 80, and the raw output is cut at 64 KiB.
        printing("x" * 60 + f" {TOKEN} failed", output_format="lines"),
        printing(answer({**ITEM, "severity": "x" * 60 + f" {TOKEN}"})),
        printing("x" * 65_520 + f" {TOKEN} failed", output_format="lines"),
        printing(answer({**ITEM, "id": TOKEN})),
        printing(
            json.dumps({"consensus_verdict": "FAIL", "aggregated_findings": [{**ITEM, "reviewer": f"bob {TOKEN}"}]}),
            output_format="review-gate",
        ),
        printing(json.dumps({"diagnostics": [], TOKEN: 1}), output_format="rdjson"),
    ],
)
def test_no_part_of_a_secret_that_a_program_prints_is_kept(edited: GitRepository, reviewer: CommandReviewer) -> None:
    outcome = review(reviewer, edited)
    assert outcome.claims or outcome.errors
    assert "ghp_" not in f"{outcome!r}{[error.detail for error in outcome.errors]}"


CHANGED = FileChange("src/a.py", "src/a.py", FileStatus.MODIFIED, hunks=(Hunk(1, 1, 1, 2, b" one\n+two\n", added=1),))
GONE = FileChange("gone.py", None, FileStatus.DELETED, hunks=(Hunk(1, 1, 0, 0, b"-x\n", deleted=1),))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A change of line 2 of `src/a.py`, and a file that is gone."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_bytes(b"one\ntwo\r\nkey = '" + b"ghp_" + b"a1B2" * 9 + b"'\n")
    change = Change(Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "a..b"), (CHANGED, GONE))
    return Plan(change=change, files=change.files, snapshot=tmp_path, trusted=True, timeout_seconds=1.0)


def place(plan: Plan, **fields: Any) -> Claim:
    [claim] = placed([RawClaim(severity=Severity.HIGH, title="t", **fields)], plan, reviewer="linter")
    return claim


def test_a_line_that_is_named_becomes_the_evidence_with_secrets_masked_and_who_saw_it(plan: Plan) -> None:
    for file in ("src/a.py", "./src/a.py", "a.py", "b/src/a.py", "/checkout/src/a.py"):
        found = place(plan, file=file, line_start=2)
        assert (found.file, found.line_start, found.evidence, found.reporter) == ("src/a.py", 2, "two", "linter")
        assert (found.anchored, found.outside_change) == (True, False)
    found = place(plan, file="src/a.py", line_start=3, reporter="codex")
    assert (found.evidence, found.reporter, found.outside_change) == ("key = '[redacted]'", "linter/codex", True)
    assert place(plan, file="src/a.py", line_start=1, quote="two").line_start == 2


@each(
    "claim",
    [
        *[{"file": "src/a.py", "line_start": line} for line in (None, 10)],
        *[{"file": name, "line_start": 1} for name in ("gone.py", "nowhere.py", "../tree/other.py", "/etc/hosts")],
        *[{"file": "src/a.py\0", "line_start": 1, "quote": "not there"}, {"line_start": 2}],
    ],
)
def test_what_has_no_place_is_kept_without_one(plan: Plan, claim: dict[str, Any]) -> None:
    found = place(plan, **claim)
    assert (found.title, found.anchored) == ("t", False)


def test_a_reviewer_completes_for_all_names_that_it_reports_under(plan: Plan) -> None:
    now = place(plan, file="src/a.py", line_start=2, reporter="codex")
    claims = [replace(now, reporter=name) for name in ("linter/gemini", "other/claude", "linter2")]
    known = tuple(Finding(claims=(claim,), severity=claim.severity) for claim in claims)
    reporters = reporters_of(replace(plan, known=known), "linter", [now])
    assert reporters == {"linter", "linter/codex", "linter/gemini"}
