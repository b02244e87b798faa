"""A session to be resumed whose name the claude program does not take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from codeloupe.agents.calls.program import Failure
from codeloupe.agents.claude.cli import CLAUDE_CLI
from codeloupe.agents.claude.output import Signs, ended_without_result, failed
from codeloupe.errors import AgentError, InvalidRequest

# Its own words, for a name that is no UUID.
SAID = (
    "Error: --resume requires a valid session ID or session title when used with --print. "
    'Usage: claude -p --resume <session-id|title>. Provided value "mine" is not a UUID and does not match any session '
    "title."
)


def told_as_a_result() -> AgentError:
    return failed(Failure(program=CLAUDE_CLI, text=SAID), Signs(subtype="error_during_execution"), now=0.0)


def told_on_stderr() -> AgentError:
    return ended_without_result(Failure(program=CLAUDE_CLI), exit_code=1, stderr=SAID)


@pytest.mark.parametrize("tell", [told_as_a_result, told_on_stderr])
def test_a_session_that_is_no_session_is_a_wrong_request_and_not_tried_again(
    tell: Callable[[], AgentError],
) -> None:
    error = tell()
    assert isinstance(error, InvalidRequest)
    assert not error.retryable
    assert "does not know the session" in error.message
    assert "leave resume_session out" in error.hint
