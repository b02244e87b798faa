"""How much a review sends: changes as people make them, by the `api` agent, counted in what the stand-in received.

Each review loads the real packages of the api agent, which takes seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.lifelike import LARGE, SMALL, ChangeSize, branch_diff, make_lifelike_change
from bench.prompt_tokens import lines_not_sent, times_sent, tokens_in, tokens_sent
from bench.review import MOST_LARGE_RATIO, MOST_SMALL_TOKENS
from codeloupe.git.command import PATCH_FLAGS
from codeloupe.git.diff import parse_diff
from codeloupe.model.change import FileStatus
from codeloupe.testing import Json, RecordedRequest, StandInServer
from tests.warm_program import codeloupe


def requests_for(root: Path, model: str) -> tuple[RecordedRequest, ...]:
    """What a review of the branch sends at medium effort."""
    with StandInServer(reply=lambda _request: Json({"findings": []})) as server:
        provider = model.partition(":")[0]
        environment = {
            "CODELOUPE_API_MODEL": model,
            "CODELOUPE_API_BASE_URL": f"{server.url}/v1" if provider == "openai" else server.url,
            f"{provider.upper()}_API_KEY": "made-up-" + "for-tests",
        }
        ended = codeloupe("review", "--reviewer", "api", "--format", "json", cwd=root, environment=environment)
        document = ended.json()
        assert (ended.exit_code, document["complete"]) == (0, True), ended.stderr
        assert document["coverage"]["files_reviewed"] == document["coverage"]["files_total"]
        return server.requests


def assert_all_was_sent_once(root: Path, requests: tuple[RecordedRequest, ...]) -> None:
    times = times_sent(branch_diff(root, *PATCH_FLAGS), requests)
    assert times
    assert {place: count for place, count in times.items() if count != 1} == {}
    assert lines_not_sent(branch_diff(root), requests) == set()


@pytest.mark.parametrize(("size", "tokens"), [(SMALL, 2_400), (LARGE, 83_000)], ids=["small", "large"])
def test_the_changes_are_as_large_as_they_are_said_to_be(size: ChangeSize, tokens: int, tmp_path: Path) -> None:
    make_lifelike_change(tmp_path / "repository", size)
    diff = branch_diff(tmp_path / "repository")
    files = parse_diff(diff)
    assert len(files) == size.files
    assert len({Path(file.path).suffix for file in files}) >= 5
    assert {file.status for file in files} >= {FileStatus.MODIFIED, FileStatus.ADDED, FileStatus.DELETED}
    for measure, count in tokens_in(diff.decode()).items():
        assert 0.85 * tokens <= count <= 1.15 * tokens, measure


def test_a_small_change_costs_little_more_than_its_diff(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    make_lifelike_change(root, SMALL)
    requests = requests_for(root, "openai:gpt-5")
    assert_all_was_sent_once(root, requests)
    assert max(tokens_sent(requests).values()) <= MOST_SMALL_TOKENS


def test_a_large_change_is_sent_whole_for_little_more_than_its_diff(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    make_lifelike_change(root, LARGE)
    requests = requests_for(root, "anthropic:claude-opus-4-8")
    assert_all_was_sent_once(root, requests)
    in_diff, sent = tokens_in(branch_diff(root).decode()), tokens_sent(requests)
    for measure, count in sent.items():
        assert count <= MOST_LARGE_RATIO * in_diff[measure], measure


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
