import asyncio
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.model.change import Intent
from codeloupe.model.events import Event, LaneFinished
from codeloupe.model.finding import Severity, Source
from codeloupe.model.ports import Plan, ReviewerResult
from codeloupe.model.review import ReviewerInfo
from codeloupe.model.scope import CommitScope, RangeScope, ScopeRequest
from codeloupe.reviewers.review_gate import CerberusReviewer
from tests.children import assert_all_gone
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.reviewers.fake_gate import FakeGate, ending
from tests.unit.reviewers.review_tasks import failure, review_now, reviewed, taken_in

pytestmark = pytest.mark.program

INFO = ReviewerInfo(type="cerberus", why="as requested")
PLACE = {"reviewer": "codex", "file_path": "a.py", "line_start": 2, "line_end": 2}
FINDING = {**PLACE, "priority": 1, "title": "[P1] Division by zero", "body": "It always fails."}
SCOPE = RangeScope("HEAD~1..HEAD")
ONCE = ["spawn-code-review", "wait"]


class Committed(GitRepository):
    """Two commits; the second adds a line to `a.py` and changes `notes.txt`. `plan` is to review that."""

    plan: Plan


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Committed]:
    repository = Committed(tmp_path_factory.mktemp("commits") / "repository")
    for source, notes in (("x = 1\n", "old\n"), ("x = 1\ny = x / 0\n", "new\n")):
        repository.commit_files({"a.py": source, "notes.txt": notes})
    with ExitStack() as stack:
        # It outlives the temporary directory of a single test.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
            repository.plan = stack.enter_context(taken_in(SCOPE, repository.path))
        yield repository


@pytest.fixture
def committed(commits: Committed, tmp_path: Path) -> Committed:
    return commits.copied_to(tmp_path / "repository")


def reviewer(
    gate: FakeGate | None, repository: GitRepository, *arguments: str, session: str | None = None, inside: str = ""
) -> CerberusReviewer:
    state = repository.path.parent / "state"
    settings = Settings(review_gate_path=gate.path if gate else None, review_gate_arguments=arguments)
    return CerberusReviewer(settings, repository.path / inside, state, info=INFO, session_id=session)


def review(
    gate: FakeGate | None, repository: Committed, scope: ScopeRequest | None = None, *, session: str = "", **more: Any
) -> ReviewerResult:
    judge = reviewer(gate, repository, session=session or None)
    if scope is not None:
        return review_now(judge, scope, repository.path, **more)
    events: list[Event] = more.pop("events", [])
    return asyncio.run(judge.review(replace(repository.plan, **more), events.append))


def test_a_pass_is_clean_and_it_is_started_on_the_range_and_then_waited_for(
    committed: Committed, tmp_path: Path
) -> None:
    gate = FakeGate(tmp_path / "gate", *[ending(0, "PASS")] * 3)
    events: list[Event] = []
    outcome = review(gate, committed, session="session-7", timeout_seconds=1000.0, events=events)
    assert (outcome.claims, outcome.units_failed, outcome.errors) == ((), (), ())
    assert set(outcome.completed) == {"cerberus"}
    assert (outcome.units_total, outcome.usage.unknown_costs) == (1, 1)
    assert [event.failure for event in events if isinstance(event, LaneFinished)] == [None]
    start, wait = gate.calls
    base, head = committed.git("rev-parse", "HEAD~1", "HEAD").decode().split()
    assert start["argv"] == ["spawn-code-review", "--max-rounds", "0", f"{base}..{head}"]
    assert wait["argv"][:-1] == ["wait", "--json", "--finalize", "--session-id", "session-7", "--timeout"]
    assert 900 <= int(wait["argv"][-1]) <= 1000
    assert {call["environment"]["CLAUDE_SESSION_ID"] for call in gate.calls} == {"session-7"}
    assert {call["cwd"] for call in gate.calls} == {str(committed.path)}
    # Otherwise every review has a session of its own, and a commit is named as one, at the top of the work tree.
    (committed.path / "inner").mkdir()
    for revision, name in (("HEAD", head), ("HEAD~1", base)):
        review_now(reviewer(gate, committed, inside="inner"), CommitScope(revision), committed.path)
        assert (gate.calls[-2]["argv"][-2:], gate.calls[-2]["cwd"]) == (["--commit", name], str(committed.path))
    assert len({call["environment"]["CLAUDE_SESSION_ID"] for call in gate.calls}) == 3


def test_findings_are_placed_say_who_saw_them_and_explain_the_verdict(committed: Committed, tmp_path: Path) -> None:
    nit = {**FINDING, "priority": 2, "title": "nit"}
    endings = (ending(1, "FAIL", FINDING), ending(1, "NEEDS_WORK", nit), ending(1, "FAIL", nit))
    gate = FakeGate(tmp_path / "gate", *endings)
    outcome = review(gate, committed)
    [claim] = outcome.claims
    assert (claim.file, claim.line_start, claim.severity, claim.anchored) == ("a.py", 2, Severity.HIGH, True)
    assert (claim.reporter, claim.source, outcome.units_failed) == ("cerberus/codex", Source.EXTERNAL, ())
    files = frozenset(("a.py", "notes.txt"))
    assert outcome.completed == {"cerberus": files, "cerberus/codex": files}
    assert review(gate, committed).units_failed == ()
    assert "its verdict is FAIL" in failure(review(gate, committed))


@each("verdict", ["FAIL", "NEEDS_WORK"])
@each("changes", [None, {"file_path": None}, {"file_path": "elsewhere.py"}, {"line_start": 900}])
def test_a_bad_verdict_without_a_finding_on_the_change_is_never_clean(
    committed: Committed, tmp_path: Path, verdict: str, changes: dict[str, Any] | None
) -> None:
    findings = [] if changes is None else [{**FINDING, "line_end": None, **changes}]
    outcome = review(FakeGate(tmp_path / "gate", ending(1, verdict, *findings)), committed)
    if any(claim.anchored for claim in outcome.claims):
        assert outcome.claims[0].line_start == 2
    else:
        assert f"its verdict is {verdict}, but its findings on reviewed files give PASS" in failure(outcome)
    assert len(outcome.claims) == len(findings)


@each(
    ("end", "words", "kind"),
    [
        *[(ending(0, verdict), "do not agree", "external_failed") for verdict in ("FAIL", "NEEDS_WORK", None)],
        *[(ending(1, verdict), "do not agree", "external_failed") for verdict in ("PASS", "ERROR", "no_reviewers")],
        *[
            (ending(0, "PASS", status=status), "do not agree", "external_failed")
            for status in ("timeout", "pending", "ERROR")
        ],
        (ending(1, "FAIL", status="error"), "do not agree", "external_failed"),
        (ending(77, "PASS"), "the gate ended with exit code 77", "external_failed"),
        *[
            ({"exit": code, "stdout": text}, f"{problem} (exit code {code})", "invalid_answer")
            for code in (0, 1)
            for text, problem in (
                ("", "invalid json: no JSON found"),
                ("no json", "invalid json: no JSON found"),
                ("[]", "invalid json: Expected `object`, got `array`"),
                ("{", "invalid json: the JSON is cut off"),
                ("[" * 100_000, "invalid json: nested more than 100 levels deep"),
            )
        ],
        (
            ending(0, "PASS", parse_errors={"claude": "quota"}),
            "invalid json: Expected `array`, got `object` - at `$.parse_errors` (exit code 0)",
            "invalid_answer",
        ),
        (
            ending(0, "PASS", error="crashed"),
            "invalid json: Object contains unknown field `error` (exit code 0)",
            "invalid_answer",
        ),
        ({"exit": 4, "stdout": "", "stderr": "jq is missing"}, "codex or gemini): jq is missing", "fatal"),
        ({"exit": 5, "stdout": "", "stderr": "jq is missing"}, "internal error: jq is missing", "fatal"),
    ],
)
def test_an_ending_that_means_no_verdict_is_a_failure_at_once_and_what_was_printed_is_kept(
    committed: Committed, tmp_path: Path, end: dict[str, Any], words: str, kind: str
) -> None:
    gate = FakeGate(tmp_path / "gate", end)
    outcome = review(gate, committed)
    assert failure(outcome).endswith(words)
    assert (outcome.errors[-1].kind, gate.verbs) == (kind, ONCE)
    assert outcome.errors[-1].detail.startswith(end["stdout"][:100])


def test_a_reviewer_of_the_gate_that_failed_is_a_failure(committed: Committed, tmp_path: Path) -> None:
    failed = ["claude: not logged in", {"reviewer": "gemini", "error": "quota"}]
    for verdict, findings in (("PASS", ()), ("FAIL", (FINDING,))):
        end = ending(int(verdict == "FAIL"), verdict, *findings, parse_errors=failed)
        gate = FakeGate(tmp_path / verdict, end)
        outcome = review(gate, committed)
        assert failure(outcome) == "one of its reviewers failed: claude: not logged in; gemini: quota"
        assert (len(outcome.claims), outcome.completed) == (len(findings), {})
        assert (outcome.errors[-1].kind, gate.verbs) == ("external_failed", ONCE)


def test_answers_that_the_gate_could_not_read_are_asked_for_once_more(committed: Committed, tmp_path: Path) -> None:
    unreadable = ending(2, "ERROR", parse_errors=[{"reviewer": "gemini", "error": "invalid_output", "details": None}])
    gate = FakeGate(tmp_path / "gate", unreadable, ending(0, "PASS"))
    outcome = review(gate, committed)
    assert (gate.verbs, outcome.units_failed) == (ONCE * 2, ())
    assert "the first attempt failed: " in outcome.errors[0].message
    again = FakeGate(tmp_path / "again", unreadable, unreadable, ending(0, "PASS"))
    reason = "invalid answer: the gate could not read the answers of its reviewers: gemini: invalid_output"
    assert (failure(review(again, committed)), again.verbs) == (reason, ONCE * 2)


def test_a_gate_that_ran_out_of_time_is_waited_for_once_more(committed: Committed, tmp_path: Path) -> None:
    late = ending(3, None, FINDING, status="timeout")
    outcome = review(FakeGate(tmp_path / "gate", late, ending(1, "FAIL", FINDING)), committed)
    assert (len(outcome.claims), outcome.units_failed) == (1, ())
    outcome = review(FakeGate(tmp_path / "never", late, late), committed)
    assert (failure(outcome), outcome.errors[-1].kind) == ("timeout", "timeout")
    assert [claim.title for claim in outcome.claims] == ["Division by zero"]


@pytest.mark.defect("T17")
def test_a_review_that_is_active_already_is_resolved_and_our_own_is_started(
    committed: Committed, tmp_path: Path
) -> None:
    gate = FakeGate(tmp_path / "gate", ending(1, "FAIL", FINDING))
    gate.activate("session-7")
    outcome = review(gate, committed, session="session-7")
    assert gate.verbs == ["spawn-code-review", "resolve", *ONCE]
    assert (len(outcome.claims), outcome.units_failed) == (1, ())
    assert "its result was not used" in outcome.errors[0].message


def test_a_gate_that_refuses_is_quoted(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", refusal="Missing required commands: jq")
    assert failure(review(gate, committed)).endswith("exit code 2: Error: Missing required commands: jq")
    assert gate.verbs == ["spawn-code-review"]
    knows = FakeGate(tmp_path / "knows", ending(0, "PASS"))
    outcome = review_now(reviewer(knows, committed, "--mode", "fast", "--nonsense"), SCOPE, committed.path)
    assert "Unknown option --nonsense" in failure(outcome)
    outcome = review_now(reviewer(knows, committed, "--mode", "fast"), SCOPE, committed.path)
    assert outcome.units_failed == ()


def test_files_that_are_not_to_be_reviewed_are_kept_from_it(committed: Committed, tmp_path: Path) -> None:
    committed.commit_files({"we[ir*d].txt": "x\n"})
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    review(gate, committed, RangeScope("HEAD~2..HEAD"), exclude=("*.txt",))
    assert gate.calls[0]["argv"][3:-1] == ["--exclude", "notes.txt", "--exclude", r"we\[ir\*d].txt"]


def test_it_gets_the_context_in_a_file_and_its_own_login_and_no_other_secret(
    committed: Committed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "made-up-key")
    monkeypatch.setenv("GITHUB_TOKEN", "made-up-token")
    monkeypatch.setenv("CLAUDECODE", "1")
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    assert review(gate, committed, intent=Intent(context="Adds a division.")).units_failed == ()
    environment, argv = gate.calls[0]["environment"], gate.calls[0]["argv"]
    assert (environment["OPENAI_API_KEY"], environment["HOME"]) == ("made-up-key", os.environ["HOME"])
    assert "GITHUB_TOKEN" not in environment
    assert gate.calls[0]["context"] == "Adds a division."
    assert not Path(argv[argv.index("--context-file") + 1]).exists()


def test_nothing_is_started_for_an_untrusted_change_or_without_a_lock(committed: Committed, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in its place")
    gate = FakeGate(tmp_path / "gate")
    assert "untrusted" in failure(review(gate, committed, trusted=False))
    assert "a lock cannot be created" in failure(review(gate, committed))
    assert gate.calls == []
    for session in ("", "../../x", "-x", "a b", "a\0", "x" * 200):
        with pytest.raises(ValueError, match="not a session id"):
            reviewer(gate, committed, session=session)


@pytest.mark.requirement("V14")
def test_a_gate_that_is_not_installed_is_named(committed: Committed) -> None:
    outcome = review(None, committed, SCOPE)
    assert failure(outcome).startswith("the program review-gate was not found (install ")
    assert outcome.errors[0].kind == "fatal"


def test_reviews_of_one_repository_do_not_overlap(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", *[ending(0, "PASS", seconds=0.1)] * 3)

    async def go() -> list[ReviewerResult]:
        jobs = (reviewed(reviewer(gate, committed), SCOPE, committed.path) for _ in range(3))
        return await asyncio.gather(*jobs)

    assert [outcome.units_failed for outcome in asyncio.run(go())] == [(), (), ()]
    assert gate.verbs == ONCE * 3


def test_a_review_of_another_process_is_waited_for_but_not_for_ever(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"), ending(0, "PASS"))
    review(gate, committed)
    [lock] = (tmp_path / "state").iterdir()
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as the other process would: locks belong to an opening of the file
        outcome = review(gate, committed, timeout_seconds=0.3)
    assert (failure(outcome), gate.verbs) == ("timeout", ONCE)
    assert "another review" in outcome.errors[0].message
    assert review(gate, committed).units_failed == ()


@pytest.mark.requirement("C8")
def test_a_cancellation_ends_the_wait_and_frees_the_lock(committed: Committed, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS", seconds=60))

    async def go() -> None:
        task = asyncio.ensure_future(reviewed(reviewer(gate, committed), SCOPE, committed.path))
        while gate.verbs != ONCE:  # noqa: ASYNC110 - the event is in another process
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert_all_gone([call["pid"] for call in gate.calls])
    [lock] = (tmp_path / "state").iterdir()
    with lock.open("rb") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
