"""Limits of a pipeline's run as the installed program keeps them, counted where the requests arrive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codeloupe.testing import Empty, Garbage, Reply, StandInServer, Status, Text
from tests.engine_pipelines import write_pipeline
from tests.program import Ended
from tests.warm_program import codeloupe

KEY = "made-up-" + "for-tests"


def pipeline(server: StandInServer, folder: Path, *words: str, **more: str) -> Ended:
    environment = {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": server.url,
        "CODELOUPE_API_MODEL": "anthropic:claude-sonnet-4-5",
        **more,
    }
    return codeloupe("pipeline", *words, cwd=folder, environment=environment)


@pytest.mark.defect("P3")
def test_without_retries_the_service_is_asked_once(tmp_path: Path) -> None:
    replies: dict[str, Reply] = {
        "overloaded": Status(529),
        "broken": Status(500),
        "empty": Empty(),
        "garbage": Garbage(),
    }
    wrong = {}
    for name, reply in replies.items():
        stage = {"name": "write", "agent": "api", "writes": False, "retries": 0, "output_schema": {"type": "object"}}
        file = write_pipeline(tmp_path / name, stage)
        with StandInServer(reply=lambda _, reply=reply: reply) as server:  # type: ignore[misc]  # bound now
            ended = pipeline(server, tmp_path, "run", str(file), "--no-wait")
            if (ended.exit_code, len(server.requests)) != (3, 1):
                wrong[name] = (ended.exit_code, len(server.requests), ended.stderr)
    assert wrong == {}


@pytest.mark.defect("P2")
def test_a_limit_of_requests_holds_over_all_resumes(tmp_path: Path) -> None:
    stage = {"name": "write", "agent": "api", "writes": False, "retries": 0, "gate": {"command": "false"}}
    file = write_pipeline(tmp_path / "p", stage)
    limit = {"CODELOUPE_MAX_REQUESTS": "2"}
    with StandInServer(reply=lambda _: Text("An answer.")) as server:
        first = pipeline(server, tmp_path, "run", str(file), "--no-wait", **limit)
        assert (first.exit_code, len(server.requests)) == (3, 2)
        words = ("resume", "last", "--retry", "write", "--no-wait", "--json")
        ended = [pipeline(server, tmp_path, *words, **limit) for _ in range(2)]
        assert ([each.exit_code for each in ended], len(server.requests)) == ([3, 3], 2)
        run = json.loads(ended[-1].stdout)
        failure = run["stages"][0]["failures"][-1]
        assert "the run has made 2 of its 2 requests" in failure["message"]
        assert "CODELOUPE_MAX_REQUESTS" in failure["hint"]
        assert f"`codeloupe pipeline resume {run['run_id']} --retry write`" in failure["hint"]
        raised = {"CODELOUPE_MAX_REQUESTS": "3"}
        pipeline(server, tmp_path, "resume", "last", "--retry", "write", "--no-wait", **raised)
        assert len(server.requests) == 3
