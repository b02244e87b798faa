"""A pull request on a GitHub server of ours, at hand for whoever publishes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.github_server import github_server
from tests.publish_material import FILES, FIRST, Desk


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """With the token of a person; as `actions`, with that of GitHub Actions."""
    with github_server(identity="actions" if "actions" in request.fixturenames else "user") as started:
        started.repository("octo/demo").pull_request(FILES, head=FIRST)
        yield Desk(started, tmp_path)


@pytest.fixture
def actions(desk: Desk) -> Desk:
    return desk
