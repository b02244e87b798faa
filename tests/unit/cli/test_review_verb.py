"""The verb `review` with a review that is made up: what it asks for, where it writes, what it says."""

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe import engine as engine_run
from codeloupe.cli import review as verb
from codeloupe.cli.parser import Parser
from codeloupe.cli.verbs import set_up_logging
from codeloupe.config.schema import Settings
from codeloupe.model.agent import AgentFinished, Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.events import AgentActivity, UnitsPlanned
from codeloupe.model.review import Policy, Preview, Review
from codeloupe.model.scope import DefaultScope
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.reports.examples import finding
from tests.unit.reports.examples import review as example

GITHUB_TOKEN = "gh" + "p_" + "a1B2" * 9


@pytest.fixture(autouse=True)
def quiet_logger() -> Iterator[None]:
    """Logging as it was, whatever a test sets up."""
    logger = logging.getLogger("codeloupe")
    before, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = before
    logger.setLevel(level)


class Stage:
    """Stands in for the app's review: remembers what was asked and answers with `outcome`."""

    def __init__(self) -> None:
        self.outcome: Review | BaseException = example(finding())
        self.asked: dict[str, Any] = {}
        self.events: list[Any] = []

    async def review(self, scope: object, **asked: Any) -> Review:
        self.asked = {"scope": scope, **asked}
        for event in self.events:
            asked["emit"](event)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    async def preview(self, scope: object, **asked: Any) -> Preview:
        self.asked = {"scope": scope, **asked}
        return Preview(scope=Scope(ScopeKind.BRANCH, None, None, "topic"), files=())


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, repository: GitRepository) -> Stage:
    # The review itself has its own tests; here it would only stand in the way of asking for every outcome.
    standing_in = Stage()
    monkeypatch.setattr(engine_run, "review", standing_in.review)
    monkeypatch.setattr("codeloupe.previews.preview", standing_in.preview)
    monkeypatch.chdir(repository.path)
    return standing_in


def run(*words: str) -> int:
    parser = Parser(prog="codeloupe review")
    verb.configure(parser)
    return verb.run(parser.parse_args(words, argparse.Namespace(command_line=["review", *words])))


def test_the_options_reach_the_review(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "why.md").write_text("Faster.")
    run("-q", "--reviewer", "codex", "--passes", "2", "--fresh", "--context-file", str(tmp_path / "why.md"))
    assert stage.asked["scope"] == DefaultScope()
    assert stage.asked["settings"] == Settings(reviewer_type="codex", passes=2)
    assert (stage.asked["context"], stage.asked["fresh"]) == ("Faster.", True)


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(requests=2, cached=7), "codeloupe: resumed: 7 of 9 answers came from the ledger"),
        (Usage(), "codeloupe: no agent call was needed"),
        (Usage(requests=2), "codeloupe: no answer of this review was in the ledger, so every call was made again"),
    ],
)
def test_a_resumed_review_says_what_came_from_the_ledger(
    stage: Stage, usage: Usage, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.outcome = example(usage=usage)
    run("--resume", "-o", "out.txt")
    assert words in capsys.readouterr().err
    run("-o", "out.txt")
    assert words not in capsys.readouterr().err
    run("--resume", "-q", "-o", "out.txt")
    assert capsys.readouterr().err == ""


@pytest.mark.defect("U7")
def test_an_interrupted_review_says_what_is_kept_and_how_to_go_on(stage: Stage) -> None:
    stage.outcome = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt, match="no answer is stored yet; `codeloupe review --resume` continues"):
        run()
    ended = AgentFinished("codex", success=True, attempts=1, duration_ms=5, cost_usd=None)
    stored = AgentActivity("a.py", replace(ended, stored=True))
    lost = AgentActivity("b.py", ended)
    stage.events = [UnitsPlanned("codex", 3, 900), stored, lost]
    kept = "1 answer is stored and will not be requested again; `codeloupe review --resume -q` continues"
    with pytest.raises(KeyboardInterrupt, match=kept):
        run("--fresh", "-q")


def test_a_review_with_gaps_that_may_pass_says_so(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.outcome = example(complete=False, policy=Policy(pass_when_incomplete=True))
    assert run("-q", "-o", "out.txt") == 0
    assert "not everything was reviewed; on_incomplete lets it pass" in capsys.readouterr().err


SENT = "INFO codeloupe.sample: sent [redacted]\\x0a::error::forged \\x1b[2J"
PROMPT = ["DEBUG codeloupe.sample: prompt of a.py:", "    key [redacted]", "    INFO codeloupe: forged"]


@each(("options", "shown"), [({"verbose": True}, [SENT]), ({"debug": True}, [SENT, *PROMPT, "    : :error::x\\x1b"])])
def test_a_log_has_no_secret_and_no_forged_record_and_prompts_only_with_debug(
    options: dict[str, bool], shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("codeloupe").handlers.clear()
    set_up_logging(**options)
    logger = logging.getLogger("codeloupe.sample")
    logger.info("sent %s\n::error::forged \x1b[2J", GITHUB_TOKEN)
    logger.debug("prompt of a.py:\nkey %s\nINFO codeloupe: forged\n::error::x\x1b", GITHUB_TOKEN)
    assert capsys.readouterr().err.splitlines() == shown


@pytest.mark.defect("E25")
def test_a_stack_trace_is_shown_only_with_debug_and_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    for debug in (False, True):
        logging.getLogger("codeloupe").handlers.clear()
        set_up_logging(verbose=True, debug=debug)
        logging.getLogger("codeloupe.sample").error("it failed", exc_info=RuntimeError(f"bad {GITHUB_TOKEN}"))
        first, *others = capsys.readouterr().err.splitlines()
        assert first == "ERROR codeloupe.sample: it failed"
        assert others == (["    RuntimeError: bad [redacted]"] if debug else [])
