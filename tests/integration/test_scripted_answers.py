"""A test author scripts a review, its verification and a critic without knowing a format, and no test sleeps."""

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import codeloupe
from codeloupe import AgentRequest, Pipeline, Review, RunOptions, Runtime, Settings, StagedScope, Verdict
from codeloupe.errors import RateLimited
from codeloupe.events import AttemptFailed
from codeloupe.pipelines.gates import CRITIQUE_SCHEMA
from codeloupe.reviewers.answers import read_critique, read_proofs, read_review
from codeloupe.reviewers.prompt import FINDINGS_WITH_ID_SCHEMA, PROOFS_SCHEMA
from codeloupe.testing import (
    AgentStep,
    ScriptedAgent,
    ScriptedFinding,
    StandInServer,
    Text,
    Timing,
    asked_for,
    critique,
    findings,
    instant_timing,
    proof,
    review_answers,
)
from tests.agent_programs import find
from tests.documentation_pages import DOCS, blocks
from tests.endings import ends_soon
from tests.engine_pipelines import write_pipeline
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.defect("E10")
PAGE = DOCS / "scripted-answers.md"
QUOTE = "    return totals[0] / count"
DIVIDES = ScriptedFinding(
    file="shop.py",
    line=2,
    quote=QUOTE,
    title="Division by zero for an empty cart",
    body="count is 0 if the cart is empty.",
    severity="critical",
    suggestion="Return 0 for an empty cart.",
)


@pytest.fixture
def shop(repository: GitRepository) -> GitRepository:
    repository.commit_files({"shop.py": "def average(totals, count):\n    return 0\n", "other.py": "x = 1\n"})
    repository.write("shop.py", f"def average(totals, count):\n{QUOTE}\n")
    repository.write("other.py", "x = 2\n")
    repository.git("add", "--all")
    return repository


def review(shop: GitRepository, *script: AgentStep) -> tuple[Review, ScriptedAgent]:
    agent = ScriptedAgent(script)

    async def run(state: str) -> Review:
        async with Runtime(Settings(), agents=[agent], state_directory=state) as runtime:
            return await runtime.review(StagedScope(), repo=shop.path)

    # Each review has a ledger and a history of its own.
    with TemporaryDirectory() as state:
        return asyncio.run(run(state)), agent


@each(
    ("proof_word", "verdict", "status"),
    [("confirmed", Verdict.FAIL, True), ("refuted", Verdict.PASS, False), ("unproven", Verdict.NEEDS_WORK, True)],
)
def test_one_step_scripts_the_findings_and_the_proofs_of_a_review(
    shop: GitRepository, proof_word: Any, verdict: Verdict, status: bool
) -> None:
    scripted = ScriptedFinding(
        file="shop.py", line=2, quote=QUOTE, title="Division by zero", severity="critical", proof=proof_word
    )
    outcome, agent = review(shop, review_answers(scripted))
    assert (outcome.verdict, outcome.complete) == (verdict, True)
    assert [each.line_start for each in outcome.findings if each.counts] == [2] * status
    assert {asked_for(request) for request in agent.requests} == {"review", "verification"}


def test_the_answers_of_a_review_can_be_scripted_call_by_call(shop: GitRepository) -> None:
    outcome, agent = review(shop, findings(DIVIDES), proof("confirmed", suggestion="Return 0 for an empty cart."))
    assert (outcome.verdict, outcome.complete, len(agent.requests)) == (Verdict.FAIL, True, 2)
    assert outcome.findings[0].suggestion == "Return 0 for an empty cart."
    clean, agent = review(shop, Text("not the format"), findings())
    assert (clean.verdict, clean.complete, len(agent.requests)) == (Verdict.PASS, True, 2)


def test_a_finding_is_reported_only_for_a_file_in_the_diff(shop: GitRepository) -> None:
    elsewhere = ScriptedFinding(file="gone.py", line=1, quote="x", severity="low")
    assert review(shop, review_answers(elsewhere))[0].findings == ()


def test_several_findings_have_their_own_proofs(shop: GitRepository) -> None:
    other = ScriptedFinding(
        file="other.py", line=1, quote="x = 2", title="Wrong constant", severity="high", proof="refuted", reason="No."
    )
    outcome, _ = review(shop, review_answers(DIVIDES, other))
    assert [(each.file, each.title) for each in outcome.findings if each.counts] == [("shop.py", DIVIDES.title)]


def test_the_same_step_answers_a_real_agent_program(shop: GitRepository) -> None:
    with StandInServer(reply=review_answers(DIVIDES)) as server:
        environment = {
            "ANTHROPIC_API_KEY": "made-up-for-tests",
            "ANTHROPIC_BASE_URL": server.url,
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
        }

        async def run() -> Review:
            settings = Settings(agents=["claude_cli"], claude_path=str(find("claude")), verify=True)
            async with Runtime(settings, environment={**os.environ, **environment}) as runtime:
                return await runtime.review(StagedScope(), repo=shop.path)

        outcome = asyncio.run(run())
    assert (outcome.verdict, outcome.complete) == (Verdict.FAIL, True)


def test_a_critic_is_scripted_in_a_pipeline(tmp_path: Path) -> None:
    stage = {"name": "write", "agent": "scripted", "gates": [{"kind": "critic", "agent": "critic"}]}
    pipeline = Pipeline.load(write_pipeline(tmp_path / "pipeline", stage))
    critic = ScriptedAgent([critique("REWORK", blockers=["too short"]), critique("PASS", score=90)], name="critic")
    agents = {"scripted": ScriptedAgent([Text("first"), Text("second")]), "critic": critic}
    options = RunOptions(repo=tmp_path, agents=agents, state_directory=tmp_path / "state", settings=Settings())
    record = codeloupe.run_pipeline_sync(pipeline, options=options)
    assert record.state.value == "completed"
    assert [attempt.score for attempt in record.stages[0].attempts] == [50, 90]
    assert {asked_for(request) for request in critic.requests} == {"critique"}


def test_every_helper_gives_an_exact_answer() -> None:
    listed = findings(DIVIDES, ScriptedFinding(file="a.py", line=1, quote="", id="0123abcd", severity="low")).value
    answer = read_review("", listed)
    assert (answer.problem, [claim.severity.label for claim in answer.claims]) == ("", ["critical", "low"])
    assert answer.claims[1].finding_id == "0123abcd"
    for word in ("confirmed", "refuted", "unproven"):
        verification = read_proofs("", proof(word, claims=2).value, claims=2)
        assert (verification.problem, [each.proof.value for each in verification.proofs]) == ("", [word, word])
    for verdict in ("PASS", "REWORK", "FAIL"):
        given = critique(verdict, blockers=["x"] * (verdict != "PASS")).value
        assert not isinstance(read_critique("", given), str)


@each(
    ("make", "words"),
    [
        (
            lambda: ScriptedFinding(file="a", line=1, quote="x", severity="hgih"),  # type: ignore[arg-type]
            "severity is 'hgih'; it must be one of: crit",
        ),
        (lambda: ScriptedFinding(file="a", line=1, quote="x", title=" "), "needs a title"),
        (
            lambda: ScriptedFinding(file="a", line=1, quote="x", proof="refuted", suggestion="y"),
            "only a confirmed claim",
        ),
        (lambda: proof("sure"), "proof is 'sure'"),  # type: ignore[arg-type]
        (lambda: proof("unproven", replacement="x"), "only a confirmed claim has a fix"),
        (lambda: critique("OK"), "verdict is 'OK'; it must be one of: PASS, REWORK, FAIL"),  # type: ignore[arg-type]
        (lambda: critique("FAIL", score=101), "from 0 to 100"),
        (lambda: critique("PASS", blockers=["x"]), "a PASS has no blockers"),
    ],
)
def test_a_helper_refuses_an_answer_that_would_not_be_exact(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def limited() -> RateLimited:
    return RateLimited("slow down", agent="scripted")


def test_a_rate_limit_of_a_scripted_agent_takes_no_time() -> None:
    agent = ScriptedAgent([limited(), RateLimited("again", agent="scripted", retry_after_seconds=250), Text("fine")])
    events: list[codeloupe.AgentEvent] = []
    before = agent.timing.clock()
    with ends_soon():
        request = AgentRequest(prompt="Say hello.", working_dir=Path(), tools=())
        result = codeloupe.run_agent_sync(request, agents=[agent], fresh=True, emit=events.append)
    assert (result.output, result.attempts) == ("fine", 3)
    waits = [event.retry_in_seconds for event in events if isinstance(event, AttemptFailed)]
    assert waits[0] is not None
    assert waits[1] is not None
    assert (waits[0] >= 30, waits[1] >= 250) == (True, True)
    assert agent.timing.clock() - before >= waits[0] + waits[1]


def test_a_quota_of_hours_takes_no_time() -> None:
    agent = ScriptedAgent([RateLimited("used up", agent="scripted", retry_after_seconds=7200), Text("fine")])
    request = AgentRequest(prompt="Say hello.", working_dir=Path(), tools=(), timeout_seconds=10_000)
    settings = Settings(wait_for_quota=True)
    with ends_soon():
        result = codeloupe.run_agent_sync(request, agents=[agent], settings=settings, fresh=True)
    assert result.output == "fine"


def test_many_calls_wait_for_the_same_rate_limit_without_a_sleep() -> None:
    agent = ScriptedAgent([limited(), Text("fine")])

    async def run() -> list[str]:
        async with Runtime(Settings(concurrency=5, calls_per_minute=10), agents=[agent]) as runtime:
            requests = [AgentRequest(prompt=str(number), working_dir=Path(), tools=()) for number in range(30)]
            results = await asyncio.gather(*(runtime.run_agent(each, fresh=True) for each in requests))
            return [result.output for result in results]

    with ends_soon():
        assert asyncio.run(run()) == ["fine"] * 30


def test_a_given_clock_takes_the_place_of_the_agents_own() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    timing = Timing(sleep=sleep)
    overloaded = codeloupe.errors.Overloaded("busy", agent="scripted")
    agent = ScriptedAgent([overloaded, Text("fine")])
    request = AgentRequest(prompt="Say hello.", working_dir=Path(), tools=())
    assert codeloupe.run_agent_sync(request, agents=[agent], timing=timing, fresh=True).output == "fine"
    assert len(slept) == 1


def test_skipped_waits_end_in_the_order_of_their_lengths() -> None:
    timing = instant_timing()
    order: list[float] = []

    async def wait(seconds: float) -> None:
        await timing.sleep(seconds)
        order.append(seconds)

    async def run() -> None:
        await asyncio.gather(*map(wait, (300.0, 10.0, 3600.0, 60.0)))

    before, moment = timing.clock(), timing.now()
    asyncio.run(run())
    assert order == [10.0, 60.0, 300.0, 3600.0]
    assert 3600 <= timing.clock() - before < 3660
    assert 3600 <= (timing.now() - moment).total_seconds() < 3660


def listed_fields(heading: str) -> dict[str, bool]:
    """Return the fields of the table below a heading of the page, and whether each is required."""
    _, _, below = PAGE.read_text(encoding="utf-8").partition(f"\n### {heading}\n")
    rows = re.findall(r"^\| `(\w+)` \| [\w ]+ \| (yes|no) \|", below.partition("\n### ")[0], re.MULTILINE)
    return {name: required == "yes" for name, required in rows}


def example(heading: str) -> Any:
    """Return the JSON example below a heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    line = text[: text.index(f"\n### {heading}\n")].count("\n")
    return json.loads(next(block.text for block in blocks(PAGE) if block.language == "json" and block.line > line))


@each(
    ("heading", "schema"),
    [
        ("Review answer", FINDINGS_WITH_ID_SCHEMA["properties"]["findings"]["items"]),
        ("Verification answer", PROOFS_SCHEMA["properties"]["proofs"]["items"]),
        ("Critic answer", CRITIQUE_SCHEMA),
    ],
)
def test_the_page_lists_each_field_that_a_call_asks_for(heading: str, schema: dict[str, Any]) -> None:
    assert listed_fields(heading) == {name: name in schema["required"] for name in schema["properties"]}


def test_the_examples_of_the_page_are_exact() -> None:
    assert read_review("", example("Review answer")).is_exact
    assert read_proofs("", example("Verification answer"), claims=1).problem == ""
    assert not isinstance(read_critique("", example("Critic answer")), str)


def test_findings_with_the_same_title_keep_their_own_proofs(shop: GitRepository) -> None:
    shop.write("other.py", "first = 1 / 0\nsecond = [][1]\n")
    shop.git("add", "--all")
    divided = ScriptedFinding(file="other.py", line=1, quote="first = 1 / 0", body="This divides by zero.")
    empty = ScriptedFinding(
        file="other.py", line=2, quote="second = [][1]", body="An empty list has no items.", proof="refuted"
    )
    outcome, _ = review(shop, review_answers(divided, empty))
    assert [each.line_start for each in outcome.findings if each.counts] == [1]
