import asyncio
from pathlib import Path

import pytest

from codeloupe.config.loading import LoadedSettings
from codeloupe.engine.settings import configure
from codeloupe.model.finding import Severity
from codeloupe.model.scope import ScopeRequest
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


def test_with_nothing_under_review_a_strangers_checkout_is_not_believed_and_needs_no_base(
    topic: GitRepository, tmp_path: Path
) -> None:
    assert configured(topic.path, FORK).settings.fail_on is Severity.LOW
    # As a job checks a fork out: one commit, no branch.
    topic.git("checkout", "--quiet", "--detach")
    topic.git("branch", "--quiet", "-D", "main", "topic")
    assert configured(topic.path, FORK).settings.fail_on is Severity.HIGH
    assert configured(tmp_path, FORK).settings.untrusted
