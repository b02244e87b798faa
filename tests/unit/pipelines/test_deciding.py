"""What comes next: which state may follow which, what is done with a stage, which begin, whose work is joined."""

import asyncio
import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe import calls, errors
from codeloupe.errors import AgentExecutionError, BudgetExhausted, ConfigError, InvalidRequest
from codeloupe.git.workspaces import GitWorkspaceStore, JoinConflict
from codeloupe.model import pipeline as model
from codeloupe.model.agent import AgentRequest, PermissionMode, Usage
from codeloupe.model.pipeline import AttemptRecord, CriticVerdict, FailedTry, GateDefinition, OnFailure, RecoveryStep
from codeloupe.pipelines.deciding import conclusion, given_up, ready, revived
from codeloupe.pipelines.joins import Joins
from codeloupe.pipelines.recovery import (
    Action,
    acceptable,
    failed_try,
    next_action,
    next_step,
)
from codeloupe.pipelines.run import Pipeline, open_run_store
from codeloupe.pipelines.state import RUN_TRANSITIONS, STAGE_TRANSITIONS, check_transition
from codeloupe.testing import ScriptedAgent, Text
from tests import engine_pipelines as play
from tests.engine_pipelines import Cast, write_pipeline
from tests.rows import each

S = model.StageState
PASS, REWORK, FAIL = CriticVerdict.PASS, CriticVerdict.REWORK, CriticVerdict.FAIL
FIRST, RETRY, RESUME, FRESH = RecoveryStep.FIRST, RecoveryStep.RETRY, RecoveryStep.RESUME, RecoveryStep.FRESH
CRITIC = GateDefinition(kind=model.GateKind.CRITIC, max_attempts=3, min_score=40)
COMMAND = GateDefinition(kind=model.GateKind.COMMAND, max_attempts=3)
REVIEW = GateDefinition(kind=model.GateKind.REVIEW, max_attempts=3)
APPROVAL = GateDefinition(kind=model.GateKind.APPROVAL)
Word = tuple[CriticVerdict, int | None]


@pytest.mark.requirement("S9")
def test_a_stage_and_a_run_go_where_the_tables_say_and_nowhere_else() -> None:
    ended = {S.COMPLETED: {S.PENDING, S.CANCELLED}, S.FAILED: {S.PENDING}, S.CANCELLED: {S.PENDING}}
    assert {state: set(STAGE_TRANSITIONS[state]) for state in ended} == ended
    assert STAGE_TRANSITIONS[S.PENDING] == {S.RUNNING, S.CANCELLED}
    assert {state for state, after in STAGE_TRANSITIONS.items() if S.COMPLETED in after} == {
        S.GATING,
        S.AWAITING_APPROVAL,
    }
    assert (set(RUN_TRANSITIONS[S.COMPLETED]), set(RUN_TRANSITIONS[S.CANCELLED])) == ({S.RUNNING}, set())
    for transitions in (STAGE_TRANSITIONS, RUN_TRANSITIONS):
        for before, to in itertools.product(transitions, model.StageState):
            if to in transitions[before]:
                check_transition(transitions, before, to, what="the stage 'a'", stage="a")
                continue
            with pytest.raises(errors.ForbiddenTransition) as raised:
                check_transition(transitions, before, to, what="the stage 'a'", stage="a")
            assert raised.value.message == f"the stage 'a' cannot go from {before.value} to {to.value}"
            assert (raised.value.stage, bool(raised.value.hint)) == ("a", True)


def stage(*gates: GateDefinition, retries: int = 1) -> model.StageDefinition:
    return model.StageDefinition(name="s", step=Path("s.md"), gates=gates, retries=retries)


def attempt(number: int, *words: Word, tree: str = "t") -> AttemptRecord:
    critiques = tuple(critique(*word) for word in words)
    return AttemptRecord(number=number, step=FIRST, tree=tree, critiques=critiques)


def critique(verdict: CriticVerdict, score: int | None) -> model.Critique:
    """Return a verdict of a critic, or without a score one of a command."""
    kind = model.GateKind.COMMAND if score is None else model.GateKind.CRITIC
    return model.Critique(verdict=verdict, gate=kind, score=score)


def record(*attempts: tuple[Word, ...] | None, failures: tuple[FailedTry, ...] = (), **more: Any) -> model.StageRecord:
    """A record with attempts; None is one that was not kept yet."""
    made = tuple(
        attempt(number, *(words or ()), tree="" if words is None else f"tree{number}")
        for number, words in enumerate(attempts, start=1)
    )
    return model.StageRecord(name="s", attempts=made, failures=failures, **more)


def failed(kind: str = "crashed", **more: Any) -> FailedTry:
    return FailedTry(**{"step": FIRST, "kind": kind, "message": kind, "attempt": 1, **more})


def executed(cause: Exception) -> AgentExecutionError:
    error = AgentExecutionError("no answer", stage="s", hint="do this")
    error.__cause__ = cause
    return error


def steps(error: Exception, *, resumable: bool = True, retries: int = 1) -> list[RecoveryStep]:
    """The steps of a call that fails alike each time."""
    made: list[FailedTry] = []
    while (step := next_step(stage(retries=retries), made)) is not None:
        made.append(replace(failed_try(error, step=step, attempt=1), resumable=resumable))
    return [failure.step for failure in made]


@pytest.mark.defect("F9")
@each("gate", [REVIEW, COMMAND, APPROVAL])
def test_no_score_overrides_a_review_command_or_approval_gate(gate: GateDefinition) -> None:
    gate = replace(gate, min_score=0, max_attempts=1)
    praise = model.Critique(verdict=PASS, gate=model.GateKind.CRITIC, score=100)
    refusal = model.Critique(verdict=REWORK, gate=gate.kind, score=100, summary="a critical defect")
    alone = AttemptRecord(number=1, tree="t", critiques=(refusal,))
    after_praise = AttemptRecord(number=1, tree="t", critiques=(praise, refusal))
    assert acceptable([alone], [gate]) is None
    assert acceptable([after_praise], [CRITIC, gate]) is None
    refused = model.StageRecord(name="s", attempts=(alone,))
    told = "no attempt passed every gate after 1 attempt: a critical defect"
    assert next_action(stage(gate), refused) == Action("escalate", 1, told)


def test_only_what_scored_enough_and_nobody_refused_for_good_is_taken_without_a_pass() -> None:
    low = [attempt(1, (REWORK, 20)), attempt(2, (REWORK, 39))]
    assert acceptable([*low, attempt(3, (REWORK, 40))], [CRITIC]) == attempt(3, (REWORK, 40))
    refused: list[tuple[list[AttemptRecord], list[GateDefinition]]] = [
        (low, [CRITIC]),
        ([attempt(1, (PASS, 90), (REWORK, None))], [CRITIC, COMMAND]),
        ([attempt(1, (REWORK, None))], [COMMAND]),
        ([attempt(1, (FAIL, 90))], [CRITIC]),
        ([attempt(1, (REWORK, 90), tree="")], [CRITIC]),
    ]
    assert [acceptable(attempts, gates) for attempts, gates in refused] == [None] * len(refused)


def test_a_failed_call_is_retried_then_resumed_then_fresh_then_a_persons() -> None:
    busy, crashed = (kind("no", agent="a", session_id="s") for kind in (errors.Overloaded, errors.Crashed))
    assert steps(executed(busy)) == [FIRST, RETRY, RESUME, FRESH]
    assert steps(executed(busy), retries=3) == [FIRST, RETRY, RETRY, RETRY, RESUME, FRESH]
    assert steps(executed(busy), retries=0) == [FIRST]
    # Without a session that can be resumed that step is left out.
    assert steps(executed(errors.Overloaded("busy", agent="a"))) == [FIRST, RETRY, FRESH]
    assert steps(executed(busy), resumable=False) == [FIRST, RETRY, FRESH]
    # What is not known to pass is tried once more and no more.
    assert steps(executed(crashed), retries=3) == [FIRST, RETRY, RESUME, FRESH]
    assert steps(errors.ArtifactError("no a.md"), retries=3) == [FIRST, RETRY, FRESH]
    hopeless = (
        executed(errors.NotLoggedIn("no", agent="a", session_id="s")),
        executed(errors.NotInstalled("no", agent="a")),
        executed(InvalidRequest("no", agent="a")),
        executed(BudgetExhausted("spent", agent="a")),
        BudgetExhausted("spent", agent="a"),
        errors.WorkspaceError("two stages changed a.md"),
        JoinConflict("two stages changed a.md"),
        executed(FileNotFoundError("step.md")),
        executed(UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")),
    )
    assert [(error, steps(error, retries=3)) for error in hopeless if steps(error, retries=3) != [FIRST]] == []
    # A session that is not known any more is followed by a fresh call.
    unknown = failed_try(executed(InvalidRequest("no such session", agent="a")), step=RESUME, attempt=1)
    assert next_step(stage(), [failed(step=RETRY), unknown]) is FRESH


def test_a_failure_is_kept_with_its_kind_its_words_and_its_session() -> None:
    cause = errors.TimedOut("late", agent="codex", session_id="s-1")
    kept = failed_try(executed(cause), step=FIRST, attempt=2, usage=Usage(requests=1))
    assert kept == FailedTry(
        step=FIRST,
        kind="timed_out",
        message="no answer",
        hint="do this",
        session_id="s-1",
        usage=Usage(requests=1),
        attempt=2,
        agent="codex",
    )
    assert failed_try(executed(TimeoutError()), step=FIRST, attempt=1).kind == "timeout_error"
    assert failed_try(RuntimeError("odd"), step=FIRST, attempt=1).message == "RuntimeError: odd"


def test_an_attempt_is_kept_then_judged_by_each_gate_then_it_is_complete() -> None:
    asked = stage(CRITIC, COMMAND)
    assert next_action(stage(), record()) == Action("execute", 1, step=FIRST)
    assert next_action(asked, record(None)) == Action("keep", 1)
    assert next_action(asked, record(())) == Action("judge", 1, gate=0)
    assert next_action(asked, record(((PASS, 90),))) == Action("judge", 1, gate=1)
    assert next_action(asked, record(((PASS, 90), (PASS, None)))) == Action("complete", 1)
    assert next_action(stage(), record(())) == Action("complete", 1)


def test_rework_is_followed_by_the_next_attempt_until_the_gate_allows_no_more() -> None:
    asked = stage(CRITIC)
    assert next_action(asked, record(((REWORK, 50),))) == Action("execute", 2, step=FIRST)
    assert next_action(asked, record(((REWORK, 50),), ((REWORK, 70),))) == Action("execute", 3, step=FIRST)
    third = next_action(asked, record(((REWORK, 50),), ((REWORK, 70),), ((REWORK, 60),)))
    assert third == Action("complete", 2, "attempt 2 was accepted without a PASS: its score, 70, is the best")
    low = next_action(asked, record(((REWORK, 20),), ((REWORK, 30),), ((REWORK, 25),)))
    told = "no attempt passed every gate after 3 attempts, and the best score, 30, is too low to accept"
    assert low == Action("escalate", 2, told)


def test_a_fail_ends_it_at_once_and_keeps_the_better_attempt() -> None:
    action = next_action(stage(CRITIC), record(((REWORK, 60),), ((FAIL, 10),)))
    assert (action.do, action.attempt) == ("fail", 1)
    assert "gate failed attempt 2" in action.reason
    assert "attempt 1 was kept, because its score, 60, is better" in action.reason
    assert next_action(stage(CRITIC), record(((FAIL, 10),))) == Action("fail", 1, "the critic gate failed attempt 1")


def test_the_best_of_several_faces_the_gates_that_it_has_not_faced() -> None:
    asked, refused = stage(CRITIC, COMMAND), (REWORK, None)
    scores: tuple[tuple[Word, ...], ...] = (((REWORK, 50),), ((REWORK, 70),), ((REWORK, 60),))
    assert next_action(asked, record(*scores)) == Action("judge", 2, gate=1)
    assert next_action(asked, record(scores[0], (*scores[1], (PASS, None)), scores[2])).do == "complete"
    assert next_action(asked, record(scores[0], (*scores[1], refused), scores[2])) == Action("judge", 3, gate=1)
    assert next_action(asked, record(*((*score, refused) for score in scores))).do == "escalate"
    for word in ((PASS, 90), (REWORK, 70)):
        # What a command refused is not told as a score that is too low.
        action = next_action(asked, record(*[(word, refused)] * 3))
        assert action == Action("escalate", 3, "no attempt passed every gate after 3 attempts: command")
    assert next_action(stage(COMMAND), record(*[(refused,)] * 3)).do == "escalate"


def test_a_failure_is_recovered_from_for_its_own_attempt_or_gate() -> None:
    again = (failed(), failed(step=RETRY, session_id="s-1", agent="codex", resumable=True, tree="t"))
    assert next_action(stage(), record(failures=again[:1])) == Action("execute", 1, step=RETRY)
    assert next_action(stage(), record(failures=again)) == Action(
        "execute", 1, step=RESUME, session="s-1", agent="codex", tree="t"
    )
    assert next_action(stage(CRITIC), record(((REWORK, 50),), failures=again)) == Action("execute", 2, step=FIRST)
    assert next_action(stage(), record(None, failures=(failed(),))) == Action("keep", 1)
    assert next_action(stage(), record(None, failures=(failed("workspace_error"),))).do == "escalate"
    (key,) = stage(CRITIC).gate_keys
    busy = failed("overloaded", gate_key=key, retryable=True)
    assert next_action(stage(CRITIC), record((), failures=(busy,))) == Action("judge", 1, gate=0)
    assert next_action(stage(CRITIC), record((), failures=(busy, busy))) == Action(
        "escalate", 1, "overloaded (after 2 tries)"
    )
    lasting = failed("output_invalid", gate_key=key)
    assert next_action(stage(CRITIC), record((), failures=(lasting,))) == Action("escalate", 1, "output_invalid")


def test_after_a_persons_answer_what_was_before_no_longer_counts() -> None:
    low: tuple[tuple[Word, ...], ...] = (((REWORK, 20),),) * 3
    broken = {"attempts_before": 1, "failures_before": 1}
    (key,) = stage(CRITIC).gate_keys
    old = failed("not_logged_in", gate_key=key)
    rows = [
        (stage(CRITIC), record(*low, attempts_before=3), Action("execute", 4, step=FIRST)),
        (stage(CRITIC), record(*low, ((REWORK, 10),), attempts_before=3), Action("execute", 5, step=FIRST)),
        (stage(), record(failures=(failed("not_logged_in"),), failures_before=1), Action("execute", 1, step=FIRST)),
        (stage(CRITIC), record(((FAIL, 5),), attempts_before=1), Action("execute", 2, step=FIRST)),
        (stage(CRITIC), record((), failures=(old,), failures_before=1), Action("judge", 1, gate=0)),
        (stage(CRITIC), record((), failures=(old,), **broken), Action("execute", 2, step=FIRST)),
        (stage(CRITIC), record(None, failures=(failed("workspace_error"),), **broken), Action("keep", 1)),
    ]
    assert [next_action(asked, known) for asked, known, _ in rows] == [action for *_, action in rows]


NOW = datetime(2024, 1, 1, tzinfo=UTC)
DIAMOND: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ()}


def pipeline(needs: dict[str, tuple[str, ...]], **on_failure: OnFailure) -> model.PipelineDefinition:
    stages = tuple(
        model.StageDefinition(
            name=name, step=Path("s.md"), needs=need, on_failure=on_failure.get(name, OnFailure.ESCALATE)
        )
        for name, need in needs.items()
    )
    return model.PipelineDefinition(name="p", file=Path("/p.yaml"), stages=stages)


def run(definition: model.PipelineDefinition, **states: model.StageState) -> model.RunRecord:
    stages = tuple(
        model.StageRecord(name=each.name, state=states.get(each.name, S.PENDING), reason=f"why {each.name}")
        for each in definition.stages
    )
    facts: dict[str, Any] = {"run_id": "r", "pipeline": "p", "file": Path("/p"), "digest": "", "state": S.RUNNING}
    return model.RunRecord(**facts, stages=stages, started_at=NOW, updated_at=NOW)


def begin(definition: model.PipelineDefinition, **states: model.StageState) -> tuple[str, ...]:
    """What may begin where all that is completed holds."""
    settled = [name for name, state in states.items() if state is S.COMPLETED]
    return ready(definition, run(definition, **states), settled)


def test_stages_begin_when_all_that_they_need_is_completed() -> None:
    definition = pipeline(DIAMOND)
    assert begin(definition) == ("a", "e")
    assert begin(definition, a=S.COMPLETED, e=S.RUNNING) == ("b", "c")
    assert begin(definition, a=S.COMPLETED, b=S.COMPLETED, c=S.RUNNING, e=S.COMPLETED) == ()
    assert begin(definition, a=S.INTERRUPTED, e=S.COMPLETED) == ("a",)
    # One that waits for a person keeps nobody else back.
    assert begin(definition, a=S.AWAITING_APPROVAL) == ("e",)


def test_after_a_failure_nothing_new_begins_and_each_stage_says_why() -> None:
    for on_failure in (OnFailure.FAIL, OnFailure.ESCALATE):
        definition = pipeline(DIAMOND, b=on_failure)
        assert begin(definition, a=S.COMPLETED, b=S.FAILED) == ()
        why = "not run, because the run failed at b"
        ended = run(definition, a=S.COMPLETED, b=S.FAILED)
        assert given_up(definition, ended) == {"c": why, "d": why, "e": why}
        assert conclusion(definition, ended) == (S.FAILED, "b failed: why b")


def test_a_tolerated_failure_costs_only_the_stages_that_need_it() -> None:
    definition = pipeline({**DIAMOND, "f": ("d",)}, b=OnFailure.CONTINUE)
    assert begin(definition, a=S.COMPLETED, b=S.FAILED) == ("c", "e")
    assert given_up(definition, run(definition, a=S.COMPLETED, b=S.FAILED)) == {
        "d": "not run, because it needs b, which failed",
        "f": "not run, because it needs d, which was not run",
    }
    given = {"a": S.COMPLETED, "c": S.COMPLETED, "d": S.CANCELLED, "e": S.COMPLETED, "f": S.CANCELLED}
    ended = run(definition, b=S.FAILED, **given)
    assert conclusion(definition, ended) == (S.COMPLETED, "without b, which failed; d, f not run")
    # What was given up comes back with what it was given up for.
    assert revived(definition, ended) == ()
    assert revived(definition, run(definition, b=S.PENDING, **given)) == ("d", "f")


def test_a_run_that_waits_names_whom_it_waits_for_but_a_failure_goes_first() -> None:
    definition = pipeline(DIAMOND)
    waiting = conclusion(definition, run(definition, a=S.AWAITING_APPROVAL, e=S.COMPLETED))
    assert waiting == (S.AWAITING_APPROVAL, "waiting for a person to decide on a: why a")
    assert conclusion(definition, run(definition, a=S.AWAITING_APPROVAL, e=S.FAILED))[0] is S.FAILED
    done = pipeline({"a": ()})
    assert conclusion(done, run(done, a=S.COMPLETED)) == (S.COMPLETED, "")


class CountingStore(GitWorkspaceStore):
    """Trees are the names of what is in them; joined they are the names of all."""

    def __init__(self, *, refuses: bool = False) -> None:
        super().__init__(Path("nowhere"), source=None)
        self.joins = 0
        self._refuses = refuses

    async def joined(self, base: str, ours: str, theirs: str) -> str:
        self.joins += 1
        if self._refuses:
            raise JoinConflict("they do not go together")
        return "".join(sorted({*base, *ours, *theirs}))


def test_what_stages_share_is_joined_once_however_many_layers_there_are() -> None:
    layers, wide = 12, 3
    needs: dict[str, tuple[str, ...]] = {}
    for layer in range(layers):
        above = tuple(f"s{layer - 1}-{each}" for each in range(wide)) if layer else ()
        needs |= {f"s{layer}-{each}": above for each in range(wide)}
    definition, store = pipeline(needs), CountingStore()
    joins = Joins(definition, store, base="", run_id="r")
    last = tuple(f"s{layers - 1}-{each}" for each in range(wide))
    asyncio.run(joins.together(last, {name: chr(ord("A") + number) for number, name in enumerate(needs)}))
    assert store.joins <= layers * wide


def test_joined_work_is_not_taken_for_another_and_a_conflict_is_refused_every_time() -> None:
    definition, trees = pipeline({"x": (), "y": ()}), {"x": "a", "y": "b"}
    joins = Joins(definition, CountingStore(), base="", run_id="r")
    assert asyncio.run(joins.together(("x", "y"), trees)) == "ab"
    assert asyncio.run(joins.together(("x", "y"), {**trees, "y": "c"})) == "ac"
    assert asyncio.run(joins.together(("y",), {"y": "c"})) == "c"
    refusing = Joins(definition, CountingStore(refuses=True), base="", run_id="r")
    for _ in range(2):
        with pytest.raises(errors.WorkspaceError, match="cannot merge the work of x and y: they do not") as refused:
            asyncio.run(refusing.together(("x", "y"), trees))
        assert "let y need x in /p.yaml" in refused.value.hint
        assert "`codeloupe pipeline resume r --accept-changes --retry y`" in refused.value.hint


def test_an_agent_that_nobody_knows_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "agent": "scripted"})
    cast = Cast({"write": [Text("a")]})
    with pytest.raises(ConfigError, match="unknown agent 'scripted'"):
        play.run(file, cast, tmp_path / "state", agents={}, agent=None)
    assert open_run_store(tmp_path / "state").list() == ((), {})


def test_an_expert_that_nobody_knows_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": {"kind": "review", "experts": ["astrology"]}})
    with pytest.raises(ConfigError, match="cannot use the review gate of the stage write: .*astrology"):
        play.run(file, Cast({"write": [Text("a")]}), tmp_path / "state")
    assert open_run_store(tmp_path / "state").list() == ((), {})


def request(folder: Path, **more: object) -> AgentRequest:
    fields: dict[str, object] = {"prompt": "Look.", "working_dir": folder}
    return AgentRequest(**{**fields, **more})  # type: ignore[arg-type]  # each test names what it changes


def test_the_key_of_a_reading_call_covers_what_the_agent_can_read(tmp_path: Path) -> None:
    keys, agent = calls.StageKeys(lambda agent: agent.name, trust="trusted"), ScriptedAgent()
    assert keys.key_of(request(tmp_path), agent) is None
    keys.tell(tmp_path, "tree-1", calls="0")
    first = keys.key_of(request(tmp_path), agent)
    assert first is not None
    assert first == keys.key_of(request(tmp_path), agent)
    keys.tell(tmp_path, "tree-2", calls="0")
    assert keys.key_of(request(tmp_path), agent) != first
    # A call that has failed is made anew, not answered by what failed.
    keys.tell(tmp_path, "tree-1", calls="1")
    assert keys.key_of(request(tmp_path), agent) != first


def test_a_call_that_writes_or_resumes_has_no_key(tmp_path: Path) -> None:
    keys, agent = calls.StageKeys(lambda agent: agent.name, trust="trusted"), ScriptedAgent()
    keys.tell(tmp_path, "tree-1", calls="0")
    assert keys.key_of(request(tmp_path, permission_mode=PermissionMode.ACCEPT_EDITS), agent) is None
    assert keys.key_of(request(tmp_path, resume_session="s"), agent) is None


@pytest.mark.defect("P8")
def test_an_agent_that_nobody_brings_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    cases: dict[str, dict[str, Any]] = {
        "stage": {"stages": [{"name": "write", "agent": "writr"}]},
        "gate": {"stages": [{"name": "write", "gate": {"kind": "critic", "agent": "writr"}}]},
        "gates": {"stages": [{"name": "write", "gates": [{"kind": "critic", "agent": "writr"}]}]},
        "defaults": {"stages": [{"name": "write"}], "defaults": {"agent": "writr"}},
    }
    for name, keys in cases.items():
        file = write_pipeline(tmp_path / name, *keys.pop("stages"), **keys)
        with pytest.raises(ConfigError) as refused:
            play.run(file, Cast({}), tmp_path / "state", agents={"writer": ScriptedAgent([Text("a")])}, agent=None)
        assert (refused.value.message, refused.value.hint) == ("unknown agent 'writr'", "did you mean `writer`?")
        with pytest.raises(ConfigError, match=r"pipeline\.yaml:1: .*found 'writr'") as refused:
            Pipeline.load(file, agents=["writer"])
        assert "did you mean `writer`?" in refused.value.hint
