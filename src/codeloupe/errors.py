"""All exceptions that codeloupe raises, in one tree.

    CodeloupeError
      UsageError
        ConfigError
        NotARepository
        RevisionError
        RepositoryBusy
        DiffSyntaxError
        OutputError
        RunNotFound
        RunBusy
      ProcessError
        ProgramNotFound
        ProcessTimedOut
        OutputTooLarge
        ProcessFailed
          GitFailed
            RemoteTooLarge
      AnalyserFailed
      StoreError
        AnswerReplaced
        StoreUnavailable
      JobNotDone
      PipelineError
        AgentExecutionError
        ArtifactError
        WorkspaceError
        ForbiddenTransition
      ForgeError
        ForgeRefused
        ForgeUncertain
        HeadMoved
      AgentError
        InvalidRequest
        NotInstalled
        NotLoggedIn
        RateLimited
        Overloaded
        ConnectionFailed
        TimedOut
        Cancelled
        BudgetExhausted
        TurnsExhausted
        PromptTooLong
        Refused
        OutputInvalid
        Crashed

Each error has a message, a `hint` that suggests the next step, `retryable` (whether the same call may succeed later)
and the `exit_code` of the program.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Options of the program, each with the equivalent for a caller of the library. The first match counts.
_PARAMETERS = {
    r"without --commit: codeloupe review (\S+)": r'as RangeScope("\1")',
    r"since: --base (\S+), or (\S+)": r'since: BaseScope("\1"), or RangeScope("\2")',
    r"--commit ([^\s;,]+)": r'CommitScope("\1")',
    r"--input (\S+)=VALUE": r'inputs={"\1": VALUE}',
    "--repo DIR": "repo=DIR",
    "--clone DIR": "RunOptions(clone=DIR)",
    "--diff-file FILE": "DiffScope(NAME, DATA)",
    "--staged": "StagedScope()",
    "--uncommitted": "UncommittedScope()",
    "--commit": "CommitScope",
    "--untrusted --base REF": "BaseScope(REF), Settings(untrusted=True)",
    "--base REF": "BaseScope(REF)",
    "--pr": "PullRequestScope",
    "--untrusted": "Settings(untrusted=True)",
    "--((?:in|ex)clude)": r"Settings(\1=...)",
    "--fresh": "fresh=True",
    "--fail-on": "fail_on",
    "--min-severity": "min_severity",
    "--(repo|base|model)": r"\1",
}
# Parameters of the library, each with the equivalent option of the program.
_SAME = (
    *("max_budget_usd", "max_tokens", "max_requests", "max_turns", "permission_mode", "fallback_model"),
    *("append_system_prompt", "system_prompt"),
)
_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in _SAME} | {
    "idle_timeout_seconds": "--idle-timeout",
    "timeout_seconds": "--timeout",
    "resume_session": "--resume",
    "fork_session": "--fork",
    "output_schema": "--schema",
    "remove tools": "remove --tools",
    "keep sessions": "add --keep-session",
}
_names_options: ContextVar[bool] = ContextVar("names_options", default=False)


@contextmanager
def hints_for_the_program() -> Iterator[None]:
    """Let messages use the program's options while the context is open, instead of the library's parameters."""
    token = _names_options.set(True)
    try:
        yield
    finally:
        _names_options.reset(token)


def for_its_reader(text: str) -> str:
    """Return the text with options for users of the program, and with parameters for users of the library."""
    known = _OPTIONS if _names_options.get() else _PARAMETERS

    def named(found: re.Match[str]) -> str:
        return next(re.sub(one, other, found[0]) for one, other in known.items() if re.fullmatch(one, found[0]))

    return re.sub("|".join(rf"(?<![\w`-])(?:{one})(?![\w`-])" for one in known), named, text)


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, from a checkout and with the tool that installed it.

    The command never installs the package by its name alone: the package is not released, so an index may have another
    package with that name.
    """
    is_by_pipx = os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json"))  # noqa: PTH110, PTH118 - a quick start
    command = "pipx install --force" if is_by_pipx else "pip install"
    return f"{command} '.[{extra}]' in a checkout of codeloupe"


class CodeloupeError(Exception):
    """The base class of all errors. Attributes can be passed as keyword arguments."""

    retryable = False
    exit_code = 4

    def __init_subclass__(cls, **details: int) -> None:
        for name, value in details.items():
            setattr(cls, name, value)

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = for_its_reader(hint)
        for name, value in details.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no {name}")
            setattr(self, name, value)


class UsageError(CodeloupeError, exit_code=2):
    """The call, its arguments or its environment are invalid. Nothing was reviewed."""


class ConfigError(UsageError):
    """A setting, a configuration file or a pipeline file is invalid. The message gives the file, line and key."""


class NotARepository(UsageError):
    """The folder is not in a git working tree."""


class RevisionError(UsageError):
    """Git does not know a revision, or cannot compare two of them."""


class RepositoryBusy(UsageError):
    """A git operation, such as a merge with conflicts, must be finished first."""


class DiffSyntaxError(UsageError):
    """The input is not a readable diff. The message gives the line."""


class OutputError(UsageError):
    """The result cannot be written to its file or stream."""


class RunNotFound(UsageError):
    """There is no pipeline run with this id, or its state cannot be read."""


class RunBusy(UsageError):
    """Another process is working on this pipeline run."""


class ProcessError(CodeloupeError, exit_code=3):
    """A child process failed, so the change could not be reviewed. `program` is the short name of the program."""

    program: str = ""


class ProgramNotFound(ProcessError, exit_code=2):
    """The program is not installed, or cannot be executed."""


class ProcessTimedOut(ProcessError, retryable=True):
    """The program did not finish in time and was terminated."""


class OutputTooLarge(ProcessError):
    """The program wrote more than the output limit, so its output is incomplete."""


class ProcessFailed(ProcessError):
    """The program exited with the exit code `status`. `stderr` is the end of its error output."""

    status: int = 1
    stderr: str = ""


class GitFailed(ProcessFailed):
    """Git failed through no fault of the caller."""


class RemoteTooLarge(GitFailed):
    """A remote repository exceeds the size limit and was not fetched."""


class AnalyserFailed(CodeloupeError):
    """An analyser is missing, crashed or wrote unreadable output. `analyser` is its name."""

    analyser: str = ""


class StoreError(CodeloupeError, exit_code=3):
    """The database cannot be opened, read or written. The message gives the path of its file."""


class AnswerReplaced(StoreError, retryable=True):
    """A person answered a question of a pipeline again before the first answer had its effect; the newer one counts."""


class StoreUnavailable(StoreError, retryable=True):
    """A shared database is temporarily unreachable: it is restarting, or the connection was lost."""


class JobNotDone(CodeloupeError, exit_code=3):
    """A job on a worker was cancelled, or it failed and will not be retried. The message gives the reason."""


class PipelineError(CodeloupeError, exit_code=3):
    """A pipeline run could not continue. `stage` is the name of the stage, or empty."""

    stage: str = ""


class AgentExecutionError(PipelineError):
    """A stage did not return a result: its files are unreadable, or its agent failed. `__cause__` is the cause."""


class ArtifactError(PipelineError):
    """Required artifacts are missing, or an artifact does not match its schema. The message lists the artifacts."""


class WorkspaceError(PipelineError):
    """A workspace cannot be created or stored, or two stages changed the same file in different ways."""


class ForbiddenTransition(PipelineError, exit_code=4):
    """A run or a stage cannot change from its current state to the requested one."""


class ForgeError(CodeloupeError, exit_code=3):
    """A service such as GitHub failed. `status` is the HTTP status, or None if there was no response."""

    status: int | None = None


class ForgeRefused(ForgeError, exit_code=2):
    """The token is missing or invalid, or it lacks a permission."""


class ForgeUncertain(ForgeError, retryable=True):
    """A request may or may not have taken effect. Check before you retry it."""


class HeadMoved(ForgeError):
    """The pull request changed after the review, so nothing was posted."""


class AgentError(CodeloupeError, exit_code=3):
    """An agent call did not return an answer. `agent` is the agent's name, and `attempts` is the number of attempts.

    `unusable` is true if the agent could not be called at all, so the prompt was not the cause.
    `raw_output` is the agent's output with secrets masked, and `session_id` is the agent's session, if known.
    `cost_usd` and `usage` are the cost and tokens of the failed call, or None if the agent does not report them.
    """

    agent: str = ""
    unusable: bool = False
    raw_output: str = ""
    attempts: int = 1
    session_id: str = ""
    cost_usd: float | None = None
    usage: Any = None


class InvalidRequest(AgentError, exit_code=2):
    """The request is invalid. Nothing was started."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(for_its_reader(message), **more)


class NotInstalled(AgentError, exit_code=2, attempts=0, unusable=True):
    """The agent's program or package is missing. The hint gives the command that installs it."""


class NotLoggedIn(AgentError, exit_code=2, unusable=True):
    """A key or login is missing or invalid, or its account is out of credit. The hint says what to set or run."""


class RateLimited(AgentError, retryable=True):
    """The service received too many requests. `retry_after_seconds` is the wait that the service requests, or None."""

    retry_after_seconds: float | None = None


class Overloaded(AgentError, retryable=True):
    """The service is overloaded or had an internal error (HTTP 5xx, including 529)."""


class ConnectionFailed(AgentError, retryable=True):
    """The service could not be reached, or the connection was lost."""


class TimedOut(AgentError):
    """The timeout for all attempts or the idle timeout expired. The agent was stopped."""


class Cancelled(AgentError, exit_code=130):
    """The call was cancelled, for example because its runtime was closed. The agent was stopped."""


class BudgetExhausted(AgentError):
    """A limit on cost, tokens or requests was reached. The message gives the limit and the setting to raise."""


class TurnsExhausted(AgentError):
    """The agent used all its turns without returning an answer."""


class PromptTooLong(AgentError):
    """The prompt is longer than the agent or its model accepts. The message gives the limit and the size, if known."""


class Refused(AgentError):
    """The model or the service refused to answer."""


class OutputInvalid(AgentError):
    """The answer is empty or unreadable, or does not match the schema. `output` is the model's answer.

    `other_answers` are the other messages that the model wrote, and `model` is the name of the model, if known.
    """

    output: str = ""
    other_answers: tuple[str, ...] = ()
    model: str | None = None


class Crashed(AgentError):
    """The agent failed for an unknown reason.

    `status` is its exit code, and `stderr_tail` is the end of its error output.
    """

    status: int | None = None
    stderr_tail: str = ""
