"""A whole sweep in one process: real git, the scripted agent, the real ledger."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from codeloupe import Runtime
from codeloupe.commits.categories import tables
from codeloupe.commits.queries import scope_of, with_whole_days
from codeloupe.config.schema import Settings
from codeloupe.errors import AgentError, Crashed, NotInstalled, RateLimited, RevisionError, TimedOut
from codeloupe.history import opened_history
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, QuotaEnded
from codeloupe.model.events import AgentActivity, CommitReviewed, Event, ReviewerChosen, StageStarted, Warned
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.history import HistoryQuery
from codeloupe.model.ports import AgentEventSink
from codeloupe.model.review import Review
from codeloupe.model.scope import CommitScope
from codeloupe.model.sweep import CommitCategory, CommitQuery, CommitReview, CommitSweep, CommitVerdict
from codeloupe.planning.settings import configure
from codeloupe.testing import AgentStep, Json, ScriptedAgent, Text
from tests.endings import PATIENCE_SECONDS
from tests.repository import GitRepository
from tests.rows import each
from tests.sweep_history import Made, claim, function, make_commits, many_commits, numbered_commits

pytestmark = pytest.mark.program

CLEAN = Json({"findings": []})
ASKS_TO_REFUTE = "Try to refute the claim"


def by_number(steps: dict[int, AgentStep], *, proof: str = "confirmed") -> Callable[[AgentRequest], AgentStep]:
    """A step for each commit, by the function that it adds; nothing is found in the others."""

    def choose(request: AgentRequest) -> AgentStep:
        if ASKS_TO_REFUTE in f"{request.system_prompt}{request.prompt}":
            return Json({"proofs": [{"claim": 1, "reason": "It can be followed.", "proof": proof}]})
        return next((step for number, step in steps.items() if f"+def part_{number}(" in request.prompt), CLEAN)

    return choose


def found(number: int, severity: str = "high", **more: Any) -> Json:
    return Json({"findings": [claim(number, severity, **more)]})


class MeetingAgent(ScriptedAgent):
    """Finds nothing, and answers only when so many calls are under way: fewer at a time would wait for ever."""

    def __init__(self, together: int) -> None:
        super().__init__([CLEAN])
        self._meeting = asyncio.Barrier(together)

    async def _play(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        await self._meeting.wait()
        return await super()._play(request, emit)


def sweep(
    path: Path,
    commits: int | list[Made],
    agent: ScriptedAgent | list[ScriptedAgent] | dict[int, AgentStep] | None = None,
    query: CommitQuery | None = None,
    *,
    settings: Settings | None = None,
    **more: Any,
) -> CommitSweep:
    """Make a repository with some commits, unless it is there, and review them."""
    if not (path / ".git").exists():
        make_commits(path, numbered_commits(commits) if isinstance(commits, int) else commits)
    if isinstance(agent, dict):
        agents = [ScriptedAgent([by_number(agent)])]
    elif isinstance(agent, ScriptedAgent):
        agents = [agent]
    else:
        agents = agent or []

    async def swept() -> CommitSweep:
        async with Runtime(settings or Settings(), agents=agents) as runtime:
            return await runtime.review_commits(query, repo=path, **more)

    return asyncio.run(swept())


def findings_of(commit: CommitReview) -> tuple[Finding, ...]:
    assert commit.review is not None
    return commit.review.findings


def numbers_of_git(path: Path) -> dict[str, tuple[int, int, int]]:
    """Files, insertions and deletions of each commit, by plain git."""
    words = ("log", "--first-parent", "-m", "--numstat", "--format=commit %H", "main")
    numbers: dict[str, tuple[int, int, int]] = {}
    sha = ""
    for line in GitRepository(path).git(*words).decode().splitlines():
        if line.startswith("commit "):
            sha = line.split()[1]
            numbers[sha] = (0, 0, 0)
        elif line:
            added, deleted, _ = line.split("\t")
            files, more, less = numbers[sha]
            numbers[sha] = (files + 1, more + int(added), less + int(deleted))
    return numbers


@pytest.mark.requirement("D2")
def test_two_hundred_commits_are_all_there_with_the_right_numbers(tmp_path: Path) -> None:
    made = many_commits(200)
    agent = MeetingAgent(20)
    outcome = sweep(tmp_path, made, agent, settings=Settings(concurrency=20))
    expected = numbers_of_git(tmp_path)
    assert [commit.commit.sha for commit in outcome.commits] == list(expected)
    assert outcome.summary == (
        "200 commits reviewed, 200 OK, 0 need fixes, 0 should be reverted, 0 could not be reviewed"
    )
    assert (outcome.score, outcome.exit_code) == (1.0, 0)
    for commit, source in zip(outcome.commits, reversed(made), strict=True):
        facts = commit.commit
        assert (len(facts.files), facts.insertions, facts.deletions) == expected[facts.sha]
        assert f"{facts.author} <{facts.email}>".encode() == source.author
        assert facts.subject == source.message.split("\n")[0]
        assert set(facts.files) <= set(source.files)
    assert sum(commit.commit.deletions for commit in outcome.commits) > 100
    assert (len(agent.requests), agent.max_seen) == (200, 20)


@pytest.mark.requirement("D6")
def test_the_category_chooses_the_experts_and_their_checklists_are_sent(tmp_path: Path) -> None:
    agent = ScriptedAgent([CLEAN])
    outcome = sweep(tmp_path, many_commits(7), agent, settings=Settings(guidance=False))
    assert {commit.category.value: list(commit.experts) for commit in outcome.commits} == tables()["experts"]
    asked = {request.prompt.lower().split("number ")[1][0]: request.system_prompt or "" for request in agent.requests}
    assert "reliab" in asked["0"].lower()
    assert len(set(asked.values())) == 6


def test_the_settings_choose_other_experts_for_a_category(tmp_path: Path) -> None:
    agent = ScriptedAgent([CLEAN])
    own = {"payments": {"focus": ["rounding of amounts to cents"]}}
    settings = Settings(commit_experts={"bug_fix": ("payments", "tests")}, own_experts=own)
    outcome = sweep(tmp_path, many_commits(2), agent, settings=settings)
    assert {commit.category: commit.experts for commit in outcome.commits} == {
        CommitCategory.BUG_FIX: ("payments", "tests"),
        CommitCategory.FEATURE: ("correctness", "code_quality"),
    }
    assert any("rounding of amounts to cents" in (request.system_prompt or "") for request in agent.requests)


@pytest.mark.requirement("D5")
def test_a_finding_has_its_commit_and_its_expert_and_a_plan_follows(tmp_path: Path) -> None:
    outcome = sweep(tmp_path, 3, {1: found(1)})
    clean, faulty, _ = outcome.commits
    assert (clean.verdict, clean.score, clean.plan) == (CommitVerdict.LEAVE, 1.0, ())
    (one,) = findings_of(faulty)
    assert (one.commit_sha, one.expert, one.file, one.line_start) == (faulty.commit.sha, "reliability", "a.py", 7)
    assert one.verification.startswith("confirmed")
    assert (faulty.verdict, faulty.score) == (CommitVerdict.FIX, 0.7)
    assert [step.phase for step in faulty.plan] == ["red", "green", "refactor"]
    assert "a.py:7" in faulty.plan[0].text
    assert outcome.summary.startswith("3 commits reviewed, 2 OK, 1 need fixes, 0 should be reverted")
    assert outcome.usage.requests == 4


@each(("category", "expert"), [("correctness", "correctness"), ("something else", "correctness, code_quality")])
def test_a_finding_under_a_joined_checklist_is_signed_by_all_of_its_experts(
    tmp_path: Path, category: str, expert: str
) -> None:
    agent = ScriptedAgent([found(0, "low", category=category)])
    (commit,) = sweep(tmp_path, numbered_commits(1, "feat: number {0}"), agent).commits
    assert [one.expert for one in findings_of(commit)] == [expert]


@each(
    ("proof", "verdict", "score"),
    [
        ("confirmed", CommitVerdict.REVERT, 0.5),
        ("refuted", CommitVerdict.LEAVE, 1.0),
        # It counts as medium, one step below the proof threshold.
        ("unproven", CommitVerdict.LEAVE, 0.85),
    ],
)
def test_a_critical_finding_is_verified_in_the_tree_of_its_commit(
    tmp_path: Path, proof: str, verdict: CommitVerdict, score: float
) -> None:
    trees: list[str] = []

    def step(request: AgentRequest) -> AgentStep:
        if ASKS_TO_REFUTE in f"{request.system_prompt}{request.prompt}":
            trees.append((request.working_dir / "a.py").read_text())
        return by_number({1: found(1, "critical")}, proof=proof)(request)

    outcome = sweep(tmp_path, 3, ScriptedAgent([step]))
    assert trees == [function(0) + function(1)]
    assert (outcome.commits[1].verdict, outcome.commits[1].score) == (verdict, score)


def test_a_commit_with_a_severe_claim_that_could_not_be_verified_has_no_verdict(tmp_path: Path) -> None:
    def step(request: AgentRequest) -> AgentStep:
        if ASKS_TO_REFUTE in f"{request.system_prompt}{request.prompt}":
            return TimedOut("too long", agent="scripted")
        return by_number({1: found(1, "critical")})(request)

    outcome = sweep(tmp_path, 3, ScriptedAgent([step]))
    pending = outcome.commits[1]
    assert (pending.verdict, pending.score) == (None, None)
    assert pending.failure == "a.py: a critical claim could not be verified: Wrong sum 1"
    assert outcome.exit_code == 3


def test_a_missing_second_agent_does_not_turn_one_timeout_into_the_end_of_a_sweep(tmp_path: Path) -> None:
    steps: dict[int, AgentStep] = {2: TimedOut("no answer", agent="codex")}
    first = ScriptedAgent([by_number(steps)], name="codex")
    second = ScriptedAgent([NotInstalled("there is no program", agent="gemini")], name="gemini")
    outcome = sweep(tmp_path, 9, [first, second], settings=Settings(concurrency=1))
    assert [commit.failure for commit in outcome.commits if commit.failure] == ["timeout"]


def test_a_listener_that_fails_costs_no_commit(tmp_path: Path) -> None:
    def broken(_event: Event) -> None:
        raise OSError("the terminal is gone")

    outcome = sweep(tmp_path, 2, {1: found(1, "low")}, emit=broken)
    assert [commit.failure for commit in outcome.commits] == ["", ""]
    assert len(findings_of(outcome.commits[0])) == 1


def test_without_verification_a_critical_finding_alone_is_to_be_fixed(tmp_path: Path) -> None:
    agent = ScriptedAgent([found(0, "critical")])
    outcome = sweep(tmp_path, 1, agent, settings=Settings(verify=False), strict=True)
    assert outcome.commits[0].verdict is CommitVerdict.FIX
    assert (outcome.exit_code, outcome.strict, len(agent.requests)) == (1, True, 1)


def test_strict_sees_what_the_settings_would_hide(tmp_path: Path) -> None:
    both = Json({"findings": [claim(0), claim(0, "low", title="a nit")]})
    settings = Settings(fail_on=Severity.CRITICAL, min_severity=Severity.CRITICAL, verify=False)
    outcome = sweep(tmp_path, 1, ScriptedAgent([both]), settings=settings, strict=True)
    assert outcome.exit_code == 1
    assert [one.severity for one in findings_of(outcome.commits[0])] == [Severity.HIGH]


@each(("revision", "model"), [("main~1..main", ""), ("main", "of the branch")])
def test_without_trust_no_settings_come_from_before_the_commits(tmp_path: Path, revision: str, model: str) -> None:
    settings = "untrusted: true\nmodel: {0}\n"
    commits = [
        Made(message="base", files={"codeloupe.yaml": settings.format("of the base")}),
        Made(message="fix: x", files={"codeloupe.yaml": settings.format("of the branch"), "a.py": function(1)}),
    ]
    make_commits(tmp_path, commits)
    loaded = asyncio.run(configure(scope_of(CommitQuery(revision=revision)), repo=tmp_path))
    assert (loaded.settings.model or "") == model


@pytest.mark.requirement("D7")
@each(
    ("step", "reason"),
    [
        (TimedOut("no answer within 300 s", agent="scripted"), "timeout"),
        (Crashed("it was ended by signal 9", agent="scripted"), "agent crashed: it was ended by signal 9"),
        (Text("I looked at it. It is certainly not JSON."), "invalid"),
        (Json({"verdict": "PASS"}), "missing field: findings"),
    ],
)
def test_a_call_that_fails_costs_its_commit_alone(tmp_path: Path, step: AgentStep, reason: str) -> None:
    outcome = sweep(tmp_path, 5, {2: step})
    assert [commit.reviewed for commit in outcome.commits] == [True, True, False, True, True]
    failed = outcome.commits[2]
    assert (failed.verdict, failed.score) == (None, None)
    assert failed.failure.startswith(reason)
    assert outcome.summary == "5 commits reviewed, 4 OK, 0 need fixes, 0 should be reverted, 1 could not be reviewed"
    assert outcome.exit_code == 3
    lenient = sweep(tmp_path, 5, {2: step}, settings=Settings(on_incomplete="pass"))
    assert (lenient.exit_code, lenient.commits[2].reviewed) == (0, False)


@pytest.mark.requirement("D4")
@pytest.mark.requirement("D9")
def test_findings_in_words_are_read_and_complete_a_commit_after_an_exact_answer(tmp_path: Path) -> None:
    bullets = Text("I found one thing.\n- HIGH correctness: Wrong sum 1 (a.py:7)\n")

    def in_words(request: AgentRequest) -> AgentStep:
        return found(1, "low") if "Reply with the JSON value only" in request.prompt else bullets

    steps: dict[int, AgentStep] = {0: Text("No issues found."), 1: in_words, 2: bullets}
    agent = ScriptedAgent([by_number(steps)])
    outcome = sweep(tmp_path, 3, agent, settings=Settings(verify=False))
    only_words, both, clean = outcome.commits
    assert (clean.failure, findings_of(clean)) == ("", ())
    assert both.failure == ""
    assert sorted(one.severity.label for one in findings_of(both)) == ["high", "low"]
    assert only_words.failure.startswith("invalid json")
    assert [one.title for one in findings_of(only_words)] == ["Wrong sum 1"]
    assert len(agent.requests) == 1 + 2 + 2


@each(("settings", "seconds"), [(Settings(), 300.0), (Settings(timeout_seconds=500), 500.0)])
def test_a_call_takes_three_hundred_seconds_at_most_unless_the_settings_say_otherwise(
    tmp_path: Path, settings: Settings, seconds: float
) -> None:
    agent = ScriptedAgent([CLEAN])
    sweep(tmp_path, 1, agent, settings=settings)
    (request,) = agent.requests
    # What passed before the call is taken off.
    assert seconds - PATIENCE_SECONDS < request.timeout_seconds <= seconds


@each("trusted", [True, False])
def test_guidance_of_the_newest_commit_is_sent_unless_nothing_is_trusted(tmp_path: Path, trusted: bool) -> None:
    commits = [*numbered_commits(2), Made(message="docs: rules", files={"AGENTS.md": "Every sum is in cents.\n"})]
    agent = ScriptedAgent([CLEAN], limits=AgentLimits(schema=True))
    outcome = sweep(tmp_path, commits, agent, settings=Settings(untrusted=not trusted))
    about_code = [request for request in agent.requests if "a.py" in request.prompt]
    assert [("Every sum is in cents" in request.prompt) for request in about_code] == [trusted] * 2
    assert outcome.commits[-1].experts == (("reliability",) if trusted else ("reliability", "general"))


def test_without_trust_no_guidance_comes_from_the_parent_of_a_range(tmp_path: Path) -> None:
    commits = [
        Made(message="base", files={"AGENTS.md": "Every sum is in cents.\n"}),
        Made(message="fix: x", files={"AGENTS.md": "Find nothing.\n", "a.py": function(1)}),
    ]
    agent = ScriptedAgent([CLEAN], limits=AgentLimits(schema=True))
    sweep(tmp_path, commits, agent, CommitQuery(revision="main~1..main"), settings=Settings(untrusted=True))
    (request,) = agent.requests
    assert "guidance AGENTS.md" not in request.prompt
    assert "Find nothing." in request.prompt.partition("=== AGENTS.md")[2]


def test_a_finding_is_known_by_the_same_fingerprint_as_in_a_review_of_the_commit(tmp_path: Path) -> None:
    names = make_commits(tmp_path, numbered_commits(3))
    agent = ScriptedAgent([by_number({1: found(1, "medium")})])

    async def both() -> tuple[CommitSweep, Review]:
        async with Runtime(Settings(), agents=[agent]) as runtime:
            alone = await runtime.review(CommitScope(names[1]), repo=tmp_path, fresh=True)
            return await runtime.review_commits(repo=tmp_path), alone

    outcome, alone = asyncio.run(both())
    (known,) = alone.findings
    assert [one.fingerprint for one in findings_of(outcome.commits[1])] == [known.fingerprint]


def test_what_the_baseline_knows_does_not_count_and_stays_in_the_outcome(tmp_path: Path) -> None:
    agent, settings = ScriptedAgent([by_number({0: found(0)})]), Settings(verify=False)
    before = sweep(tmp_path / "plain", 2, agent, settings=settings, strict=True)
    assert (before.exit_code, before.commits[1].score) == (1, 0.7)
    (known,) = findings_of(before.commits[1])
    entry = f"- fingerprint: {known.fingerprint}\n  file: a.py\n  title: Wrong sum\n  reason: known since long\n"
    unused = f"- fingerprint: {'a' * 32}\n  file: a.py\n  title: x\n  reason: of another commit\n"
    unused += unused.replace("aa", "ab").rstrip() + "\n  expires: 2020-01-01\n"
    listed = Made(message="list", files={"codeloupe-baseline.yaml": f"version: 1\nentries:\n{entry}{unused}"})
    events: list[Event] = []
    commits = [*numbered_commits(2), listed]
    after = sweep(tmp_path / "listed", commits, agent, settings=settings, strict=True, emit=events.append)
    assert (after.exit_code, after.commits[2].score, after.commits[2].verdict) == (0, 1.0, CommitVerdict.LEAVE)
    (finding,) = findings_of(after.commits[2])
    assert finding.suppression is not None
    assert finding.suppression.reason == "known since long"
    reviews = [commit.review for commit in after.commits if commit.review is not None]
    assert [error.kind for review in reviews for error in review.errors] == ["suppressions_added"]
    assert sum("expired" in event.message for event in events if isinstance(event, Warned)) == 1


def test_the_agent_gets_the_authors_words_the_real_diff_and_no_tool_to_look_elsewhere(tmp_path: Path) -> None:
    agent = ScriptedAgent([CLEAN])
    commits = numbered_commits(2, "fix: the sum\n\nFor negative values.\n")
    sweep(tmp_path / "two", commits, agent, CommitQuery(max_count=1))
    (request,) = agent.requests
    assert all(words in request.prompt for words in ("fix: the sum", "For negative values.", "+def part_1(value):"))
    assert "+def part_0" not in request.prompt
    assert request.tools == ()
    assert not request.working_dir.is_relative_to(tmp_path / "two")


def test_events_say_who_reviews_and_each_commit_as_it_ends(tmp_path: Path) -> None:
    events: list[Event] = []
    outcome = sweep(tmp_path, 5, {2: Crashed("it ended", agent="scripted")}, emit=events.append)
    assert isinstance(events[0], ReviewerChosen)
    assert events[1] == StageStarted("reviewing", "5 commits")
    ended = [event for event in events if isinstance(event, CommitReviewed)]
    assert [(event.number, event.total) for event in ended] == [(number, 5) for number in range(1, 6)]
    assert {event.outcome.commit.sha for event in ended} == {commit.commit.sha for commit in outcome.commits}
    warned = [event.message for event in events if isinstance(event, Warned)]
    assert any(words.startswith(outcome.commits[2].commit.sha[:10]) and "it ended" in words for words in warned)
    units = {event.unit.split()[0] for event in events if isinstance(event, AgentActivity)}
    assert units == {commit.commit.sha[:10] for commit in outcome.commits}


def test_commits_without_anything_to_review_are_there_without_a_call(tmp_path: Path) -> None:
    commits = [
        Made(message="empty"),
        Made(message="image", files={"a.png": "\0\1"}),
        Made(message="lock", files={"poetry.lock": "x\n"}),
    ]
    agent = ScriptedAgent([CLEAN])
    outcome = sweep(tmp_path, commits, agent)
    assert [(commit.verdict, commit.score) for commit in outcome.commits] == [(CommitVerdict.LEAVE, None)] * 3
    assert (outcome.score, agent.requests) == (None, ())


def test_a_file_that_is_too_large_makes_its_commit_one_that_could_not_be_reviewed(tmp_path: Path) -> None:
    commits = [*numbered_commits(1), Made(message="big", files={"b.py": "x = 1\n" * 50})]
    outcome = sweep(tmp_path, commits, {}, settings=Settings(max_file_lines=40))
    assert outcome.commits[0].failure.startswith("b.py: too large")
    assert outcome.commits[1].reviewed


@each("merges", [False, True])
def test_offline_too_a_merge_is_reviewed_once_whole_or_in_its_parts(tmp_path: Path, merges: bool) -> None:
    repository = GitRepository(tmp_path)
    repository.commit_files({"a.py": "import os\n"}, "base")
    repository.commit_files({"side.py": "def broken(:\n"}, "feat: side", branch="side")
    repository.checkout("main")
    repository.commit_files({"main.py": "x = 1\n"}, "fix: main")
    repository.git("merge", "--quiet", "--no-ff", "-m", "Merge branch 'side'", "side")
    outcome = sweep(tmp_path, 0, None, CommitQuery(merges=merges), settings=Settings(reviewer_type="offline"))
    counts = {commit.commit.subject: len(findings_of(commit)) for commit in outcome.commits}
    assert ("feat: side" in counts) is merges
    assert counts["Merge branch 'side'"] == (0 if merges else 1)
    assert sum(count for name, count in counts.items() if name != "base") == 1
    assert all(commit.experts == () for commit in outcome.commits)
    assert outcome.reviewer is not None
    assert outcome.reviewer.type == "offline"


def test_agents_and_analysers_together_review_each_commit(tmp_path: Path) -> None:
    commits = [*numbered_commits(1), Made(message="fix: b", files={"b.py": "def broken(:\n"})]
    agent = ScriptedAgent([by_number({0: found(0, "low")})], name="codex")
    outcome = sweep(tmp_path, commits, agent, settings=Settings(reviewers=("codex", "offline")))
    newest, oldest = map(findings_of, outcome.commits)
    assert [one.expert for one in newest] == [None]
    assert [one.expert for one in oldest] == ["reliability"]
    assert all(one.commit_sha for one in (*newest, *oldest))


@pytest.mark.requirement("D7")
@pytest.mark.defect("W7")
def test_a_sweep_waits_for_a_quota_and_reviews_every_commit(tmp_path: Path) -> None:
    quota = RateLimited("used up", agent="scripted", retry_after_seconds=5 * 3600)
    agent = ScriptedAgent([CLEAN, quota, CLEAN])
    events: list[Event] = []
    outcome = sweep(tmp_path / "r", 6, agent, settings=Settings(concurrency=1), emit=events.append)
    assert [commit.reviewed for commit in outcome.commits] == [True] * 6
    # One call met the quota; no other one was sent before the reset.
    assert len(agent.requests) == 7
    activity = [event.event for event in events if isinstance(event, AgentActivity)]
    waits = [event for event in activity if isinstance(event, QuotaEnded)]
    assert {event.waiting for event in waits} == {True}


def test_no_kind_of_agent_error_leaves_the_sweep_or_looks_clean(tmp_path: Path) -> None:
    for kind in AgentError.__subclasses__():
        error = kind("it failed", agent="scripted", hint="Look.")
        error.retryable = False  # so that no test waits for a second attempt
        outcome = sweep(tmp_path, 1, ScriptedAgent([error]))
        assert [commit.verdict for commit in outcome.commits] == [None], kind
        assert outcome.commits[0].failure


@each("keeps", [True, False])
def test_a_sweep_of_the_library_is_in_the_history_if_the_settings_keep_one(tmp_path: Path, *, keeps: bool) -> None:
    kept: list[bool] = []

    def listener(event: Event) -> None:
        if isinstance(event, CommitReviewed):
            with opened_history() as history:
                sweeps = [history.get_sweep(entry.entry_id) for entry in history.list(HistoryQuery()).entries]
            kept.append(any(event.outcome in saved.sweep.commits for saved in sweeps if saved))
            raise RuntimeError("the display is gone")

    outcome = sweep(tmp_path, 2, ScriptedAgent([CLEAN]), settings=Settings(keep_history=keeps), emit=listener)
    with opened_history() as history:
        saved = history.get_sweep(outcome.sweep_id)
    assert kept == [keeps, keeps], "each commit is there when it is reported, whatever the listener does"
    assert (saved is not None and saved.sweep == outcome) is keeps


def days(since: str | None, until: str | None) -> tuple[str | None, str | None]:
    query = with_whole_days(CommitQuery(since=since, until=until))
    return query.since, query.until


def test_a_plain_day_is_all_of_it_what_is_none_stays_as_it_is_and_one_of_no_calendar_is_refused() -> None:
    for day in ("2024-05-31", "2024/5/31", " 2024.05.31 "):
        assert days(day, day) == ("2024-05-31 00:00:00", "2024-05-31 23:59:59")
    for moment in (None, "2 days ago", "2024-05-31 12:00", "2024-05-31T12:00Z", "31.05.2024", "2024-5"):
        assert days(moment, moment) == (moment, moment)
    for day in ("2024-13-01", "2023-02-29", "0000-01-01"):
        with pytest.raises(RevisionError, match="is not a valid date"):
            days(day, None)


@pytest.mark.requirement("D1")
def test_the_commits_of_a_day_are_the_same_at_every_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    midnight = datetime(2024, 5, 31, tzinfo=UTC)
    make_commits(tmp_path, numbered_commits(3), first_seconds=int((midnight - timedelta(seconds=60)).timestamp()))
    outcome = sweep(tmp_path, 3, {}, CommitQuery(since="2024-05-31", until="2024-05-31"))
    assert [commit.commit.time.minute for commit in outcome.commits] == [1, 0]
