"""A pull request from a fork that edits codeloupe.yaml, REVIEW.md and the baseline: the base's versions rule."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codeloupe.testing import Json, RecordedRequest, StandInServer
from tests.agent_programs import agents_at
from tests.pull_fork import (
    BASE_GUIDANCE,
    BASE_INSTRUCTION,
    FORK_GUIDANCE,
    FORK_INSTRUCTION,
    STEERING,
    THEIRS,
    WAYS,
    github_event,
    review_of_fork,
    steered_fork,
)
from tests.pull_material import Forge
from tests.pull_server import PullServer
from tests.repository import GitRepository
from tests.warm_program import codeloupe

OFFLINE = ("--reviewer", "offline", "--format", "json")
FINDING = {
    "file": "app.py",
    "line": 3,
    "quote": "    return nmae",
    "title": "A name that nothing defines",
    "body": "It raises NameError.",
    "category": "correctness",
    "severity": "high",
}


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    """Made once: every test works in a clone of its own."""
    place = tmp_path_factory.mktemp("fork")
    forge = Forge(place / "forge", GitRepository(place / "work"))
    steered_fork(forge, place / "home")
    return forge


@pytest.fixture
def url(forge: Forge) -> Iterator[str]:
    with PullServer(forge.root) as server:
        yield server.url


def suppressions(document: Any) -> dict[int, str | None]:
    """Of each high finding in app.py its line, and why it does not count."""
    return {
        finding["line_start"]: (finding["suppression"] or {}).get("reason")
        for finding in document["findings"]
        if finding["file"] == "app.py" and finding["severity"] == "high"
    }


def told(document: Any) -> list[str]:
    return [error["message"] for error in document["errors"] if error["kind"] == "rules_changed"]


@pytest.mark.parametrize("way", WAYS)
def test_the_bases_rules_hold_and_the_change_to_them_is_reported(
    forge: Forge, url: str, tmp_path: Path, way: str
) -> None:
    ended = review_of_fork(forge, way, tmp_path / "place", url, *OFFLINE)
    document = ended.json()
    # The fork's file excludes app.py and fails on critical findings only; its baseline lets line 3 through.
    assert (ended.exit_code, document["complete"]) == (1, True), ended.stderr
    assert suppressions(document) == {2: "known for long", 3: None}
    [message] = told(document)
    assert message == f"the change edits {', '.join(sorted(STEERING))}; the base's version was used for this review"
    assert message in ended.stderr
    because = "the change is not trusted, because this is a pull request from a fork"
    assert (because in ended.stderr) is (way in {"github", "gitlab"})


def test_believed_the_fork_would_get_through(forge: Forge, url: str, tmp_path: Path) -> None:
    """What the other tests hold off is a danger indeed."""
    ended = review_of_fork(forge, "trusted", tmp_path / "place", url, *OFFLINE)
    assert ended.exit_code == 0
    assert suppressions(ended.json()) == {}
    assert told(ended.json()) == []


def test_reports_for_people_tell_of_the_changed_rules(forge: Forge, url: str, tmp_path: Path) -> None:
    files = {style: tmp_path / f"report.{style}" for style in ("text", "markdown", "html", "sarif")}
    formats = [word for style, file in files.items() for word in ("--format", style, "-o", str(file))]
    review_of_fork(forge, "--pr N", tmp_path / "place", url, "--reviewer", "offline", *formats)
    for style, file in files.items():
        shown = file.read_text(encoding="utf-8")
        plain = re.sub(r"\\(.)", r"\1", shown) if style == "markdown" else shown
        for name in STEERING:
            assert name in plain, style
        assert "version was used for this review" in " ".join(plain.split()), style


def block_of(request: RecordedRequest, label: str) -> list[str]:
    """The lines of the blocks of data with a label, in all that was sent."""
    pattern = re.compile(rf"<(data-[0-9a-f]+) {re.escape(label)}>\n(.*?)\n</\1>", re.DOTALL)
    return [line for text in request.strings() for found in pattern.finditer(text) for line in found[2].split("\n")]


@pytest.mark.parametrize("way", ["github", "--pr N"])
def test_the_agent_is_guided_by_the_base_and_sees_the_forks_words_as_the_change(
    forge: Forge, url: str, tmp_path: Path, way: str
) -> None:
    with StandInServer(reply=lambda _request: Json({"findings": [FINDING]})) as server:
        options = ("--reviewer", "claude_cli", "--no-verify", "--format", "json")
        ended = review_of_fork(forge, way, tmp_path / "place", url, *options, more=agents_at(server, "claude_cli"))
        requests = list(server.requests)
    assert ended.exit_code == 1, ended.stderr
    asked = [request for request in requests if request.mentions("return nmae")]
    assert asked
    for request in asked:
        assert block_of(request, "guidance REVIEW.md") == [BASE_GUIDANCE]
        assert block_of(request, "instructions") == [f"- {BASE_INSTRUCTION}"]
    lines = [line for request in requests for text in request.strings() for line in text.split("\n")]
    for steering in (FORK_GUIDANCE, FORK_INSTRUCTION):
        said = [line for line in lines if steering in line]
        assert said, "the fork's words are a part of the change under review"
        assert all(line.startswith("+") for line in said), said
    [message] = told(ended.json())
    assert "REVIEW.md" in message


def test_where_it_comes_from_is_shown(forge: Forge, tmp_path: Path) -> None:
    variables = github_event(tmp_path, head=THEIRS)
    shown = codeloupe("config", "show", "--json", cwd=forge.work.path, environment=variables)
    untrusted = json.loads(shown.stdout)["settings"]["untrusted"]
    assert untrusted == {
        "value": True,
        "origin": {"kind": "situation", "where": "because this is a pull request from a fork", "line": None},
    }
    table = codeloupe("config", "show", cwd=forge.work.path, environment=variables).stdout
    assert "because this is a pull request from a fork" in table
