"""The one exception tree: CodeloupeError, below it a family for each thing that can go wrong, and their kinds.

Every error says what happened to what (the message), what to do next (`hint`), whether trying the same thing again
makes sense (`retryable`), and with which code the program ends (`exit_code`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# What is an option of the program, and what that is to a caller of the library. The first that fits counts.
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
# What is a parameter of the library, and the option for it.
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
    "leave tools out": "leave --tools out",
    "keep sessions": "add --keep-session",
}
_names_options: ContextVar[bool] = ContextVar("names_options", default=False)


@contextmanager
def hints_for_the_program() -> Iterator[None]:
    """Let texts name the options of the program, for as long as the context is open; else they name parameters."""
    token = _names_options.set(True)
    try:
        yield
    finally:
        _names_options.reset(token)


def for_its_reader(text: str) -> str:
    """The text with the names that whoever reads it can give."""
    known = _OPTIONS if _names_options.get() else _PARAMETERS

    def named(found: re.Match[str]) -> str:
        return next(re.sub(one, other, found[0]) for one, other in known.items() if re.fullmatch(one, found[0]))

    return re.sub("|".join(rf"(?<![\w`-])(?:{one})(?![\w`-])" for one in known), named, text)


def install_command(extra: str) -> str:
    """Return how to add an optional part to this installation, from a checkout and by the program that installed it.

    No command names the package alone: it is not released, so an index may have another package of that name.
    """
    is_by_pipx = os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json"))  # noqa: PTH110, PTH118 - a quick start
    command = "pipx install --force" if is_by_pipx else "pip install"
    return f"{command} '.[{extra}]' in a checkout of codeloupe"


class CodeloupeError(Exception):
    """The root. `hint` says what to do next, in the words of its reader; each attribute can be given by name."""

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
    """The call or its surroundings are wrong; nothing was reviewed."""


class ConfigError(UsageError):
    """A configuration value is wrong; the message names file, line and key."""


class NotARepository(UsageError):
    """There is no git work tree to review here."""


class RevisionError(UsageError):
    """A revision cannot be resolved."""


class RepositoryBusy(UsageError):
    """An unfinished operation leaves the tree in no state to review."""


class DiffSyntaxError(UsageError):
    """The text is not a diff that can be read; the message names the line."""


class OutputError(UsageError):
    """The result cannot be written."""


class RunNotFound(UsageError):
    """No run of a pipeline has this name, or its state cannot be read."""


class RunBusy(UsageError):
    """Another process works on this run."""


class ProcessError(CodeloupeError, exit_code=3):
    """A child process did not do what it should, so the change could not be reviewed. `program` is its short name."""

    program: str = ""


class ProgramNotFound(ProcessError, exit_code=2):
    """The program is not installed or not executable."""


class ProcessTimedOut(ProcessError, retryable=True):
    """The program was ended at its deadline."""


class OutputTooLarge(ProcessError):
    """The program wrote more than its cap, so its output is not whole."""


class ProcessFailed(ProcessError):
    """The program ended with a `status` that means failure; the tail of its stderr is kept."""

    status: int = 1
    stderr: str = ""


class GitFailed(ProcessFailed):
    """git ended with a failure that is not the caller's mistake."""


class RemoteTooLarge(GitFailed):
    """A remote repository sent more than it may, and was not fetched."""


class AnalyserFailed(CodeloupeError):
    """An analyser crashed, is missing or gave output that cannot be read."""

    analyser: str = ""


class StoreError(CodeloupeError, exit_code=3):
    """The database cannot be opened, read or written; the message names its file."""


class StoreUnavailable(StoreError, retryable=True):
    """A shared database is away for a moment: it restarts, or the connection to it was lost."""


class JobNotDone(CodeloupeError, exit_code=3):
    """A job on a worker was cancelled, or failed and is not tried again; the message says why."""


class PipelineError(CodeloupeError, exit_code=3):
    """A run of a pipeline could not go on. `stage` is the stage's name, or empty."""

    stage: str = ""


class AgentExecutionError(PipelineError):
    """A stage gave no result: its files could not be read, or its agent failed. The cause is `__cause__`."""


class ArtifactError(PipelineError):
    """Required artifacts are missing, or an artifact does not fit its schema; the message names them."""


class WorkspaceError(PipelineError):
    """A workspace cannot be made or kept, or two stages changed the same file in different ways."""


class ForbiddenTransition(PipelineError, exit_code=4):
    """A state that cannot follow the one before."""


class ForgeError(CodeloupeError, exit_code=3):
    """A service such as GitHub did not do what it should. `status` is its HTTP status, where there was an answer."""

    status: int | None = None


class ForgeRefused(ForgeError, exit_code=2):
    """The token is missing, wrong, or may not do this."""


class ForgeUncertain(ForgeError, retryable=True):
    """A request may have been done, or not: whoever sent it has to look before it is sent again."""


class HeadMoved(ForgeError):
    """The pull request has other commits now than those that were reviewed, so nothing was posted."""


class AgentError(CodeloupeError, exit_code=3):
    """An agent call did not give an answer. `agent` is the agent's name.

    `unusable`: the agent could not be asked at all, so the error says nothing about the question. `raw_output` is what
    it printed, redacted; `attempts` is how often it was asked; `session_id` is empty if it is not known. `cost_usd` is
    what the call cost all the same, and `usage` its tokens, as a result counts them; None if the agent does not report
    them.
    """

    agent: str = ""
    unusable: bool = False
    raw_output: str = ""
    attempts: int = 1
    session_id: str = ""
    cost_usd: float | None = None
    usage: Any = None


class InvalidRequest(AgentError, exit_code=2):
    """The request cannot be sent as it is; nothing was started. The message, too, names what its reader can give."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(for_its_reader(message), **more)


class NotInstalled(AgentError, exit_code=2, attempts=0, unusable=True):
    """The program or package is not here, so nothing was tried; the hint is the command that installs it."""


class NotLoggedIn(AgentError, exit_code=2, unusable=True):
    """A key or login is missing, wrong or out of credit; the hint says what to set or run."""


class RateLimited(AgentError, retryable=True):
    """Too many requests. `retry_after_seconds` is what the service asked for, or None."""

    retry_after_seconds: float | None = None


class Overloaded(AgentError, retryable=True):
    """The service is overloaded or failed on its side (5xx, 529)."""


class ConnectionFailed(AgentError, retryable=True):
    """The service was not reached, or the line was cut."""


class TimedOut(AgentError):
    """The deadline over all attempts, or the limit of silence, passed; the agent was ended."""


class Cancelled(AgentError, exit_code=130):
    """The call was stopped from outside; the agent was ended."""


class BudgetExhausted(AgentError):
    """What may be spent is spent; what was found before stays."""


class TurnsExhausted(AgentError):
    """The agent used all the turns it had."""


class PromptTooLong(AgentError):
    """The prompt is larger than the agent or its model takes; the message tells both sizes."""


class Refused(AgentError):
    """The model or the service refused to answer."""


class OutputInvalid(AgentError):
    """The answer is empty, broken or violates the schema.

    `output` is what the model said, as far as that is known apart from all that was printed, and `other_answers` is
    what it said beside that. `model` is the one that answered, where it is known.
    """

    output: str = ""
    other_answers: tuple[str, ...] = ()
    model: str | None = None


class Crashed(AgentError):
    """The program ended badly without saying why; `status` is its exit code, `stderr_tail` its last words."""

    status: int | None = None
    stderr_tail: str = ""
