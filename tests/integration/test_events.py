"""Every event has a kind and a JSON form, and the page lists all of them as they are emitted."""

import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import codeloupe
from codeloupe import CommitQuery, Pipeline, RunOptions, Runtime, Settings, StagedScope, errors, events
from codeloupe.errors import CodeloupeError, Overloaded
from codeloupe.events import AgentEvent, Event, EventBase, PipelineEvent, PipelineEventKind, to_json
from codeloupe.testing import ScriptedAgent, ScriptedFinding, Text, critique, review_answers
from tests.documentation_pages import DOCS
from tests.documentation_reference import error_tree
from tests.engine_pipelines import write_pipeline
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.defect("E11")
CLASSES = (*get_args(Event), *get_args(AgentEvent))
PAGE = DOCS / "events-and-errors.md"


def emitted_by(repository: GitRepository, state: Path) -> list[Event]:
    """Return the events of a review whose first call fails, and of a sweep."""
    heard: list[Event] = []
    finding = ScriptedFinding(file="a.py", line=1, quote="x = 2", severity="critical")
    agent = ScriptedAgent([Overloaded("busy", agent="scripted"), review_answers(finding)])

    async def run() -> None:
        async with Runtime(Settings(), agents=[agent], state_directory=state) as runtime:
            await runtime.review(StagedScope(), repo=repository.path, emit=heard.append)
            await runtime.review_commits(CommitQuery(revision="HEAD"), repo=repository.path, emit=heard.append)

    asyncio.run(run())
    return heard


@pytest.fixture
def changed(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"})
    # A name that is not UTF-8.
    (repository.path / "caf\udce9.py").write_text("y = 1\n")
    repository.write("a.py", "x = 2\n")
    repository.git("add", "--all")
    return repository


def test_every_event_is_public_and_named_by_its_kind() -> None:
    assert set(CLASSES) == {kind for kind in EventBase.__subclasses__() if kind.__module__.startswith("codeloupe.")}
    for kind in CLASSES:
        assert getattr(events, kind.__name__) is kind
        assert kind.__name__ in events.__all__
        assert kind.__struct_config__.frozen
    kinds = [kind.__struct_config__.tag for kind in CLASSES]
    assert len(set(kinds)) == len(kinds)
    assert kinds[:3] == ["reviewer_chosen", "stage_started", "change_read"]


def test_every_event_of_a_review_and_a_sweep_is_json_that_names_its_kind(
    changed: GitRepository, tmp_path: Path
) -> None:
    heard = emitted_by(changed, tmp_path / "state")
    assert {type(event) for event in heard} == set(get_args(Event))
    inner = {type(event.event) for event in heard if isinstance(event, events.AgentActivity)}
    assert {events.AgentStarted, events.AttemptFailed, events.TokensSpent, events.AgentFinished} <= inner
    for event in heard:
        line = to_json(event)
        assert "\n" not in line
        assert next(iter(json.loads(line).items())) == ("kind", event.kind)


def test_an_event_can_be_read_back_from_its_json(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    repository.write("a.py", "x = 2\n")
    repository.git("add", "--all")
    for event in emitted_by(repository, tmp_path / "state"):
        assert msgspec.json.decode(to_json(event), type=Event) == event
        assert msgspec.json.encode(event).startswith(f'{{"kind":"{event.kind}"'.encode())


def rows(page: Path, heading: str) -> dict[str, list[str]]:
    """Return the rows of the first table below a heading, by their first cell."""
    _, _, below = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    [table] = re.findall(r"(?:^\|.*\n)+", below, re.MULTILINE)[:1]
    cells = [row.strip().strip("|").split("|") for row in table.splitlines()[2:]]
    return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in cells}


def test_every_kind_of_pipeline_event_is_listed_with_its_facts(tmp_path: Path) -> None:
    listed = rows(PAGE, "Pipeline events")
    assert tuple(listed) == get_args(PipelineEventKind)
    heard: list[PipelineEvent] = []
    stage = {"name": "write", "agent": "writer", "gates": [{"kind": "critic", "agent": "critic"}, {"kind": "approval"}]}
    pipeline = Pipeline.load(write_pipeline(tmp_path / "pipeline", stage))
    writer = ScriptedAgent([errors.Crashed("it crashed", agent="writer"), Text("first"), Text("second")], name="writer")
    critic = ScriptedAgent([critique("REWORK", blockers=["too short"]), critique("PASS")], name="critic")

    async def approve(*_: object) -> Any:
        return codeloupe.model.pipeline.Approval(stage="write", decision=codeloupe.model.pipeline.Decision.APPROVE)

    options = RunOptions(
        repo=tmp_path,
        agents={"writer": writer, "critic": critic},
        settings=Settings(),
        state_directory=tmp_path / "state",
        ask_person=approve,
        watch=lambda _run, event: heard.append(event),
    )
    assert codeloupe.run_pipeline_sync(pipeline, options=options).state.value == "completed"
    seen = {event.kind for event in heard}
    assert set(get_args(PipelineEventKind)) - seen <= {"run_resumed", "note"}
    for event in heard:
        assert set(event.facts) == set(re.findall(r"`(\w+)`", listed[event.kind][1])), event.kind
        assert msgspec.json.decode(to_json(event), type=PipelineEvent) == event


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"^    ( *[A-Z]\w+)$", str(errors.__doc__), re.MULTILINE)
    assert "\n".join(drawn) == error_tree()
    assert f"```text\n{error_tree()}\n```" in PAGE.read_text(encoding="utf-8")


@each("kind", [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, CodeloupeError)])
def test_every_error_is_on_the_page_with_its_exit_code(kind: type[CodeloupeError]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    answer = "yes" if kind.retryable else "no"
    assert f"\n| `{kind.__name__}` | {kind.exit_code} | {answer} | " in page


def test_every_public_name_is_in_one_of_four_modules() -> None:
    modules = {"codeloupe": codeloupe, "codeloupe.events": events, "codeloupe.errors": errors}
    named = re.findall(r"^\| `(codeloupe[\w.]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert named == [*modules, "codeloupe.testing"]
    for kind in CLASSES:
        for hint in kind.__annotations__.values():
            for name in re.findall(r"\b[A-Z]\w+", hint):
                assert name == "None" or hasattr(codeloupe, name), name
