from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.external.cerberus import CerberusReviewer, GatePlace
from codeloupe.model.change import Intent
from codeloupe.model.events import Event, LaneFinished, Warned
from codeloupe.model.finding import Severity
from codeloupe.model.ports import ReviewerOutcome, ReviewTask
from codeloupe.model.review import ReviewerInfo
from codeloupe.model.scope import CommitScope, DefaultScope, RangeScope, ScopeRequest, StagedScope, UncommittedScope
from tests.children import assert_all_gone, recorded_pids, until_recorded
from tests.endings import FAR_TOO_LONG_SECONDS, ends_soon
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.engine.external.fake_gate import FakeGate, ending
from tests.unit.engine.external.review_tasks import review_now, reviewed, taken_in

INFO = ReviewerInfo(type="cerberus", why="as requested")
FINDING = {
    "reviewer": "codex",
    "file_path": "a.py",
    "line_start": 2,
    "line_end": 2,
    "priority": 1,
    "title": "[P1] Division by zero",
    "body": "It always fails.",
}
SCOPE = RangeScope("HEAD~1..HEAD")


class Committed(GitRepository):
    """Two commits; the second adds a line to `a.py` and changes `notes.txt`. `task` is to review that."""

    task: ReviewTask


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Committed]:
    repository = Committed(tmp_path_factory.mktemp("commits") / "repository")
    repository.write("a.py", "x = 1\n")
    repository.write("notes.txt", "old\n")
    repository.commit()
    repository.write("a.py", "x = 1\ny = x / 0\n")
    repository.write("notes.txt", "new\n")
    repository.commit()
    with ExitStack() as stack:
        # It outlives the temporary directory of a single test.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
            repository.task = stack.enter_context(taken_in(SCOPE, repository.path))
        yield repository


@pytest.fixture
def committed(commits: Committed, tmp_path: Path) -> Committed:
    return commits.copied_to(tmp_path / "repository")


def reviewer(
    gate: FakeGate, repository: GitRepository, *arguments: str, session: str | None = None
) -> CerberusReviewer:
    place = GatePlace(repo=repository.path, state_directory=repository.path.parent / "state", session_id=session)
    return CerberusReviewer(gate.path, arguments, info=INFO, place=place)


def review(
    gate: FakeGate, repository: Committed, scope: ScopeRequest | None = None, *, session: str | None = None, **more: Any
) -> ReviewerOutcome:
    judge = reviewer(gate, repository, session=session)
    if scope is not None:
        return review_now(judge, scope, repository.path, **more)
    events: list[Event] = more.pop("events", [])
    return asyncio.run(judge.review(replace(repository.task, **more), events.append))


def failure(outcome: ReviewerOutcome) -> str:
    [unit] = outcome.units_failed
    return unit.reason


def test_a_pass_that_both_agree_on_is_clean(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    events: list[Event] = []
    outcome = review(gate, committed, events=events)
    assert (outcome.findings, outcome.units_failed, outcome.errors) == ((), (), ())
    assert (outcome.units_total, outcome.usage.unknown_costs) == (1, 1)
    assert [event.failure for event in events if isinstance(event, LaneFinished)] == [None]


def test_it_is_started_on_the_range_and_then_waited_for(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    review(gate, committed, session="session-7", timeout_seconds=1000.0)
    start, wait = gate.calls
    base, head = committed.git("rev-parse", "HEAD~1", "HEAD").decode().split()
    assert start["argv"] == ["spawn-code-review", "--max-rounds", "0", f"{base}..{head}"]
    assert wait["argv"][:-1] == ["wait", "--json", "--finalize", "--session-id", "session-7", "--timeout"]
    assert 900 <= int(wait["argv"][-1]) <= 1000
    assert {call["environment"]["CLAUDE_SESSION_ID"] for call in gate.calls} == {"session-7"}
    assert {call["cwd"] for call in gate.calls} == {str(committed.path)}


def test_a_commit_is_named_as_one(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"), ending(0, "PASS"))
    head, root = committed.git("rev-parse", "HEAD", "HEAD~1").decode().split()
    for revision, name in (("HEAD", head), ("HEAD~1", root)):
        review(gate, committed, CommitScope(revision))
        assert gate.calls[-2]["argv"][-2:] == ["--commit", name]


def test_every_review_has_a_session_of_its_own(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"), ending(0, "PASS"))
    review(gate, committed)
    review(gate, committed)
    assert len({call["environment"]["CLAUDE_SESSION_ID"] for call in gate.calls}) == 2


@each("session", ["", "../../x", "-x", "a b", "a\0", "x" * 200])
def test_a_session_that_is_no_plain_name_is_refused(session: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a session id"):
        GatePlace(repo=tmp_path, state_directory=tmp_path, session_id=session)


def test_findings_are_placed_and_say_who_saw_them(committed: Committed, tmp_path: Path) -> None:
    outcome = review(FakeGate(tmp_path / "gate", ending(1, "FAIL", FINDING)), committed)
    [finding] = outcome.findings
    assert (finding.file, finding.line_start, finding.severity, finding.anchored) == ("a.py", 2, Severity.HIGH, True)
    assert finding.reviewer == "cerberus/codex"
    assert outcome.units_failed == ()


def test_a_lesser_finding_explains_needs_work_but_not_a_failure(committed: Committed, tmp_path: Path) -> None:
    nit = {**FINDING, "priority": 2, "title": "nit"}
    gate = FakeGate(tmp_path / "gate", ending(1, "NEEDS_WORK", nit), ending(1, "FAIL", nit))
    assert review(gate, committed).units_failed == ()
    assert "its verdict is FAIL" in failure(review(gate, committed))


@each("verdict", ["FAIL", "NEEDS_WORK"])
@each("changes", [None, {"file_path": None}, {"file_path": "elsewhere.py"}, {"line_start": 900}])
def test_a_bad_verdict_without_a_finding_on_the_change_is_never_clean(
    committed: Committed, tmp_path: Path, verdict: str, changes: dict[str, Any] | None
) -> None:
    findings = [] if changes is None else [{**FINDING, "line_end": None, **changes}]
    outcome = review(FakeGate(tmp_path / "gate", ending(1, verdict, *findings)), committed)
    if any(finding.can_block for finding in outcome.findings):
        assert outcome.findings[0].line_start == 2
    else:
        assert f"verdict {'is ' * bool(findings)}{verdict}" in failure(outcome)
    assert len(outcome.findings) == len(findings)


@each(
    ("exit_code", "verdict", "status"),
    [
        (0, "FAIL", "complete"),
        (0, "NEEDS_WORK", "complete"),
        (0, None, "complete"),
        (0, "no_reviewers", "complete"),
        (0, "PASS", "timeout"),
        (1, "PASS", "complete"),
        (1, "ERROR", "complete"),
        (1, "FAIL", "error"),
    ],
)
def test_an_exit_code_and_a_verdict_that_do_not_agree_are_a_failure(
    committed: Committed, tmp_path: Path, exit_code: int, verdict: str | None, status: str
) -> None:
    gate = FakeGate(tmp_path / "gate", ending(exit_code, verdict, status=status))
    assert "do not agree" in failure(review(gate, committed))
    assert gate.verbs == ["spawn-code-review", "wait"]


@each("stdout", ["", "no json", "[]", "{", "[" * 100_000])
@each("exit_code", [0, 1])
def test_no_document_is_a_failure_and_what_was_printed_is_kept(
    committed: Committed, tmp_path: Path, exit_code: int, stdout: str
) -> None:
    gate = FakeGate(tmp_path / "gate", {"exit": exit_code, "stdout": stdout})
    outcome = review(gate, committed)
    assert failure(outcome) == f"invalid json: exit code {exit_code}, but no JSON document"
    assert outcome.errors[0].detail.startswith(stdout[:100])


def test_answers_that_the_gate_could_not_read_are_asked_for_once_more(committed: Committed, tmp_path: Path) -> None:
    unreadable = ending(2, "ERROR", parse_errors=[{"reviewer": "gemini", "error": "invalid_output", "details": None}])
    gate = FakeGate(tmp_path / "gate", unreadable, ending(0, "PASS"))
    outcome = review(gate, committed)
    assert gate.verbs == ["spawn-code-review", "wait"] * 2
    assert outcome.units_failed == ()
    assert "the first attempt failed: " in outcome.errors[0].message
    again = FakeGate(tmp_path / "again", unreadable, unreadable, ending(0, "PASS"))
    outcome = review(again, committed)
    assert failure(outcome) == (
        "invalid answer: the gate could not read what its reviewers said: gemini: invalid_output"
    )
    assert again.verbs == ["spawn-code-review", "wait"] * 2


def test_a_gate_that_ran_out_of_time_is_waited_for_once_more(committed: Committed, tmp_path: Path) -> None:
    late = ending(3, None, FINDING, status="timeout")
    gate = FakeGate(tmp_path / "gate", late, ending(1, "FAIL", FINDING))
    outcome = review(gate, committed)
    assert (len(outcome.findings), outcome.units_failed) == (1, ())
    never = FakeGate(tmp_path / "never", late, late)
    outcome = review(never, committed)
    assert failure(outcome) == "timeout"
    assert [finding.title for finding in outcome.findings] == ["Division by zero"]
    assert outcome.errors[-1].kind == "timeout"


@each(("exit_code", "words"), [(4, "no reviewers"), (5, "internal error")])
def test_what_trying_again_does_not_mend_is_fatal(
    committed: Committed, tmp_path: Path, exit_code: int, words: str
) -> None:
    gate = FakeGate(tmp_path / "gate", {"exit": exit_code, "stdout": "", "stderr": "jq is missing"})
    outcome = review(gate, committed)
    assert words in failure(outcome)
    assert failure(outcome).endswith("jq is missing")
    assert outcome.errors[-1].kind == "fatal"
    assert gate.verbs == ["spawn-code-review", "wait"]


def test_an_unknown_ending_is_a_failure(committed: Committed, tmp_path: Path) -> None:
    outcome = review(FakeGate(tmp_path / "gate", ending(77, "PASS")), committed)
    assert failure(outcome) == "the gate ended with exit code 77"


def test_a_reviewer_of_the_gate_that_failed_is_told_beside_a_pass(committed: Committed, tmp_path: Path) -> None:
    lame = ending(0, "PASS", parse_errors=["claude: not logged in", {"reviewer": "gemini", "error": "quota"}])
    events: list[Event] = []
    outcome = review(FakeGate(tmp_path / "gate", lame), committed, events=events)
    assert outcome.units_failed == ()
    assert [error.message for error in outcome.errors] == ["cerberus: claude: not logged in", "cerberus: gemini: quota"]
    assert len([event for event in events if isinstance(event, Warned)]) == 2


@pytest.mark.defect("T17")
def test_a_review_that_is_active_already_is_resolved_and_our_own_is_started(
    committed: Committed, tmp_path: Path
) -> None:
    gate = FakeGate(tmp_path / "gate", ending(1, "FAIL", FINDING))
    gate.activate("session-7")
    outcome = review(gate, committed, session="session-7")
    assert gate.verbs == ["spawn-code-review", "resolve", "spawn-code-review", "wait"]
    assert (len(outcome.findings), outcome.units_failed) == (1, ())
    assert "its result was not taken" in outcome.errors[0].message


def test_a_gate_that_refuses_is_quoted(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", refusal="Missing required commands: jq")
    outcome = review(gate, committed)
    assert failure(outcome).endswith("exit code 2: Error: Missing required commands: jq")
    assert gate.verbs == ["spawn-code-review"]


def test_an_option_that_the_gate_does_not_know_is_its_refusal(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    outcome = review_now(reviewer(gate, committed, "--mode", "fast", "--nonsense"), SCOPE, committed.path)
    assert "Unknown option --nonsense" in failure(outcome)
    outcome = review_now(reviewer(gate, committed, "--mode", "fast"), SCOPE, committed.path)
    assert outcome.units_failed == ()


def test_files_that_are_not_to_be_reviewed_are_kept_from_it(committed: Committed, tmp_path: Path) -> None:
    committed.write("we[ir*d].txt", "x\n")
    committed.commit()
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    review(gate, committed, RangeScope("HEAD~2..HEAD"), exclude=("*.txt",))
    argv = gate.calls[0]["argv"]
    assert argv[3:-1] == ["--exclude", "notes.txt", "--exclude", r"we\[ir\*d].txt"]


def test_the_context_is_handed_over_in_a_file_that_is_gone_afterwards(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    review(gate, committed, intent=Intent(context="Adds a division."))
    argv = gate.calls[0]["argv"]
    assert gate.calls[0]["context"] == "Adds a division."
    assert not Path(argv[argv.index("--context-file") + 1]).exists()


def test_it_runs_at_the_top_of_the_work_tree(committed: Committed, tmp_path: Path) -> None:
    (committed.path / "inner").mkdir()
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    place = GatePlace(repo=committed.path / "inner", state_directory=tmp_path / "state")
    review_now(CerberusReviewer(gate.path, (), info=INFO, place=place), SCOPE, committed.path)
    assert gate.calls[0]["cwd"] == str(committed.path)


def test_it_finds_its_own_login_and_no_other_secret(
    committed: Committed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "made-up-key")
    monkeypatch.setenv("GITHUB_TOKEN", "made-up-token")
    monkeypatch.setenv("CLAUDECODE", "1")
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    assert review(gate, committed).units_failed == ()
    environment = gate.calls[0]["environment"]
    assert (environment["OPENAI_API_KEY"], environment["HOME"]) == ("made-up-key", os.environ["HOME"])
    assert "GITHUB_TOKEN" not in environment


@each("scope", [UncommittedScope(), StagedScope(), DefaultScope()])
def test_what_is_not_committed_is_refused_in_words(committed: Committed, tmp_path: Path, scope: ScopeRequest) -> None:
    committed.write("a.py", "x = 2\n")
    committed.git("add", "a.py")
    gate = FakeGate(tmp_path / "gate")
    outcome = review(gate, committed, scope)
    assert failure(outcome).startswith("the gate reviews commits only, and this is ")
    assert failure(outcome).endswith("..HEAD)")
    assert (gate.calls, outcome.usage.requests) == ([], 0)


def test_an_untrusted_change_is_refused_in_words(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate")
    assert "untrusted" in failure(review(gate, committed, trusted=False))
    assert gate.calls == []


@pytest.mark.requirement("V14")
def test_a_gate_that_is_not_installed_is_named(committed: Committed, tmp_path: Path) -> None:
    place = GatePlace(repo=committed.path, state_directory=tmp_path / "state")
    outcome = review_now(CerberusReviewer(None, (), info=INFO, place=place), SCOPE, committed.path)
    assert failure(outcome).startswith("there is no program review-gate (install ")
    assert outcome.errors[0].kind == "fatal"


def test_reviews_of_one_repository_do_not_overlap(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", *[ending(0, "PASS", seconds=0.1)] * 3)

    async def go() -> list[ReviewerOutcome]:
        jobs = (reviewed(reviewer(gate, committed), SCOPE, committed.path) for _ in range(3))
        return await asyncio.gather(*jobs)

    outcomes = asyncio.run(go())
    assert [outcome.units_failed for outcome in outcomes] == [(), (), ()]
    assert gate.verbs == ["spawn-code-review", "wait"] * 3


def test_a_review_of_another_process_is_waited_for_but_not_for_ever(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"), ending(0, "PASS"))
    review(gate, committed)
    [lock] = (tmp_path / "state").iterdir()
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as the other process would: locks belong to an opening of the file
        outcome = review(gate, committed, timeout_seconds=0.3)
    assert failure(outcome) == "timeout"
    assert "another review" in outcome.errors[0].message
    assert gate.verbs == ["spawn-code-review", "wait"]
    assert review(gate, committed).units_failed == ()


def test_without_a_lock_nothing_is_started(committed: Committed, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in its place")
    gate = FakeGate(tmp_path / "gate")
    assert "no lock can be made" in failure(review(gate, committed))
    assert gate.calls == []


def test_a_gate_that_does_not_come_back_is_ended(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS", seconds=FAR_TOO_LONG_SECONDS))
    with ends_soon():
        assert failure(review(gate, committed, timeout_seconds=1.0)) == "timeout"


@pytest.mark.requirement("C8")
def test_a_cancellation_ends_the_wait_and_frees_the_lock(committed: Committed, tmp_path: Path) -> None:
    program = tmp_path / "review-gate"
    (tmp_path / "python").symlink_to(sys.executable)
    body = f"import os, sys, time\nopen({str(tmp_path)!r} + '/' + sys.argv[1] + '.pid', 'w').write(str(os.getpid()))\n"
    program.write_text(f"#!{tmp_path}/python -IS\n{body}if sys.argv[1] == 'wait': time.sleep(60)\n")
    program.chmod(0o755)
    place = GatePlace(repo=committed.path, state_directory=tmp_path / "state")
    slow = CerberusReviewer(str(program), (), info=INFO, place=place)

    async def go() -> None:
        task = asyncio.ensure_future(reviewed(slow, SCOPE, committed.path))
        await until_recorded(tmp_path, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert_all_gone(recorded_pids(tmp_path))
    [lock] = (tmp_path / "state").iterdir()
    with lock.open("rb") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
