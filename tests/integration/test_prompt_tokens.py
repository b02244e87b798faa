"""How much a review sends: changes as people make them, in a repository with guidance of 7 kB for coding agents.

It is counted in what the stand-in received, by the `api` agent and by the claude program.
"""

from pathlib import Path

import pytest

from bench.lifelike import LARGE, SMALL, ChangeSize, branch_diff, make_lifelike_change
from bench.prompt_tokens import (
    JUDGED,
    MOST_LARGE_RATIO,
    MOST_SMALL_RATIO,
    lines_not_sent,
    prompt_of,
    times_sent,
    tokens_in,
    tokens_sent,
)
from codeloupe.git.command import PATCH_FLAGS
from codeloupe.git.diff import parse_diff
from codeloupe.model.change import FileStatus
from codeloupe.testing import Json, RecordedRequest, StandInServer
from tests.agent_programs import find
from tests.rows import each
from tests.warm_program import codeloupe


def requests_for(root: Path, reviewer: str) -> tuple[RecordedRequest, ...]:
    """What a review of the branch sends at medium effort, by a model of the api agent or by the claude program."""
    with StandInServer(reply=lambda _request: Json({"findings": []})) as server:
        provider, _, model = reviewer.partition(":")
        environment = {"ANTHROPIC_API_KEY": "made-up-" + "for-tests", "OPENAI_API_KEY": "made-up-" + "for-tests"}
        if model:
            environment["CODELOUPE_API_MODEL"] = reviewer
            environment["CODELOUPE_API_BASE_URL"] = f"{server.url}/v1" if provider == "openai" else server.url
        else:
            environment |= {"ANTHROPIC_BASE_URL": server.url, "CODELOUPE_CLAUDE_PATH": str(find("claude"))}
        words = ("review", "--reviewer", "api" if model else reviewer, "--format", "json")
        ended = codeloupe(*words, cwd=root, environment=environment)
        document = ended.json()
        assert (ended.exit_code, document["complete"]) == (0, True), ended.stderr
        assert document["coverage"]["files_reviewed"] == document["coverage"]["files_total"]
        return tuple(request for request in server.requests if not request.auxiliary)


def assert_all_was_sent_once(root: Path, requests: tuple[RecordedRequest, ...]) -> None:
    times = times_sent(branch_diff(root, *PATCH_FLAGS), requests)
    assert times
    assert {place: count for place, count in times.items() if count != 1} == {}
    assert lines_not_sent(branch_diff(root), requests) == set()


@each(("size", "tokens"), [(SMALL, 2_400), (LARGE, 83_000)])
def test_the_changes_are_as_large_as_they_are_said_to_be(size: ChangeSize, tokens: int, tmp_path: Path) -> None:
    make_lifelike_change(tmp_path / "repository", size)
    diff = branch_diff(tmp_path / "repository")
    files = parse_diff(diff)
    assert len(files) == size.files
    assert len({Path(file.path).suffix for file in files}) >= 5
    assert {file.status for file in files} >= {FileStatus.MODIFIED, FileStatus.ADDED, FileStatus.DELETED}
    for measure, count in tokens_in(diff.decode()).items():
        assert 0.85 * tokens <= count <= 1.15 * tokens, measure


@pytest.mark.defect("V9")
@pytest.mark.parametrize(
    ("size", "reviewers", "most"),
    [
        (SMALL, ("openai:gpt-5", "anthropic:claude-opus-4-8"), MOST_SMALL_RATIO),
        (ChangeSize(files=20, changed_lines=700), ("anthropic:claude-opus-4-8",), MOST_LARGE_RATIO),
        pytest.param(LARGE, ("anthropic:claude-opus-4-8",), MOST_LARGE_RATIO, marks=pytest.mark.soak),
        # The claude program adds its own instructions to each call.
        pytest.param(LARGE, ("claude_cli",), 1.35, marks=pytest.mark.soak),
    ],
    ids=["6 files", "20 files", "60 files", "60 files by claude"],
)
def test_a_change_is_sent_whole_for_little_more_than_its_diff(
    size: ChangeSize, reviewers: tuple[str, ...], most: float, tmp_path: Path
) -> None:
    root = tmp_path / "repository"
    make_lifelike_change(root, size)
    assert (root / "AGENTS.md").stat().st_size > 6_500
    in_diff = tokens_in(branch_diff(root).decode())
    too_many: dict[tuple[str, str], float] = {}
    for reviewer in reviewers:
        requests = requests_for(root, reviewer)
        assert_all_was_sent_once(root, requests)
        assert all("guidance AGENTS.md" in prompt_of(request) for request in requests)
        sent = tokens_sent(requests)
        ratios = {name: sent[name] / in_diff[name] for name in JUDGED}
        too_many |= {(reviewer, name): ratio for name, ratio in ratios.items() if ratio > most}
    assert too_many == {}


def test_a_hunk_that_is_left_out_or_sent_twice_is_seen(tmp_path: Path) -> None:
    make_lifelike_change(tmp_path / "repository", SMALL)
    diff = branch_diff(tmp_path / "repository", *PATCH_FLAGS)
    file = parse_diff(diff)[0]
    first, second = file.hunks[:2]
    place = f"@@ -{first.old_start},{first.old_lines} +{first.new_start},{first.new_lines} @@ {first.section}"
    prompt = f"\n=== {file.path}\n{place}\n{first.body.decode()}"
    request = RecordedRequest(method="POST", path="/", body={"messages": [prompt]})
    times = times_sent(diff, (request, request))
    assert sorted(times.values()) == [0] * (len(times) - 1) + [2]
    added = next(line.text.decode() for line in second.lines() if line.kind == "added")
    assert added in lines_not_sent(diff, (request,))
