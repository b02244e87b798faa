import asyncio
from pathlib import Path

import pytest

from codeloupe.config.loading import LoadedSettings, Origin, OriginKind
from codeloupe.engine.settings import configure
from codeloupe.model.finding import Severity
from codeloupe.model.scope import DefaultScope, FetchedScope, ScopeRequest
from tests.repository import GitRepository

FORK = {"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "2", "CI_MERGE_REQUEST_PROJECT_ID": "1"}


def configured(
    repo: Path, environment: dict[str, str], scope: ScopeRequest | None = None, **flags: object
) -> LoadedSettings:
    return asyncio.run(configure(scope, repo=repo, environment=environment, flags=flags))


@pytest.fixture
def topic(repository: GitRepository) -> GitRepository:
    """A branch that edits the configuration: low becomes critical, and it wants to be trusted."""
    repository.commit_files({"codeloupe.yaml": "fail_on: low\n"}, "base")
    repository.commit_files({"codeloupe.yaml": "fail_on: critical\nuntrusted: false\n"}, "topic", branch="topic")
    return repository


def test_whoever_says_untrusted_the_bases_file_holds_and_the_reason_is_kept(topic: GitRepository) -> None:
    by_fork = configured(topic.path, FORK, DefaultScope())
    by_variable = configured(topic.path, {"CODELOUPE_UNTRUSTED": "true"}, DefaultScope())
    by_flag = configured(topic.path, {}, DefaultScope(), untrusted=True)
    for loaded in (by_fork, by_variable, by_flag):
        assert (loaded.settings.untrusted, loaded.settings.fail_on) == (True, Severity.LOW)
    fork = Origin(OriginKind.SITUATION, "because this is a pull request from a fork")
    assert by_fork.origins["untrusted"] == fork
    assert by_variable.origins["untrusted"] == Origin(OriginKind.ENVIRONMENT, "CODELOUPE_UNTRUSTED")
    assert by_flag.origins["untrusted"] == Origin(OriginKind.FLAG, "--untrusted")


def test_a_fetched_pull_request_is_untrusted_whatever_anybody_set(topic: GitRepository) -> None:
    base, head = (topic.git("rev-parse", name).decode().strip() for name in ("main", "topic"))
    loaded = configured(topic.path, {"CODELOUPE_UNTRUSTED": "false"}, FetchedScope(base, head, "pull request"))
    assert (loaded.settings.untrusted, loaded.settings.fail_on) == (True, Severity.LOW)
    assert str(loaded.origins["untrusted"]) == "because this is a pull request"


def test_with_nothing_under_review_a_strangers_checkout_is_not_believed_and_needs_no_base(
    topic: GitRepository, tmp_path: Path
) -> None:
    assert configured(topic.path, FORK).settings.fail_on is Severity.LOW
    # As a job checks a fork out: one commit, no branch.
    topic.git("checkout", "--quiet", "--detach")
    topic.git("branch", "--quiet", "-D", "main", "topic")
    assert configured(topic.path, FORK).settings.fail_on is Severity.HIGH
    assert configured(tmp_path, FORK).settings.untrusted
