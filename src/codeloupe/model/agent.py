"""One agent call: the request, the result, the agent's abilities and limits, and the events during the call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct

from codeloupe.model.event import EventBase
from codeloupe.model.frozen import FrozenDict, FrozenStruct

_NOTHING: Mapping[str, str] = FrozenDict()


class PermissionMode(StrEnum):
    """The permissions of an agent, which cannot ask the user. The names are those of Claude Code."""

    PLAN = "plan"
    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    DONT_ASK = "dontAsk"
    BYPASS = "bypassPermissions"

    @property
    def may_write(self) -> bool:
        """Return whether the agent may change files in this mode."""
        return self in (PermissionMode.ACCEPT_EDITS, PermissionMode.BYPASS)


class Priority(IntEnum):
    """The order of calls if many processes share the limits for a service. Lower values go first."""

    PERSON = 0
    PULL_REQUEST = 1
    SWEEP = 2


class DefaultSeconds(float):
    """A default timeout. The settings can override it, but they cannot override a timeout from the caller."""


class AgentRequest(FrozenStruct, frozen=True, kw_only=True):
    """One question to an agent. Its content is its key in the ledger. Mappings are copied and frozen.

    `tools` lists the agent's own tools. None means the read-only tools, and () means no tools. `context` is additional
    text after the prompt, by title. `labels` are for events and logs. Without `model` or `timeout_seconds`, the
    settings apply. `timeout_seconds` covers all attempts. `idle_timeout_seconds` is how long an agent may be silent.
    `fork_session` continues the resumed session in a new session. With `accept_any_output`, an answer that does not
    match `output_schema` is returned unchanged instead of raising OutputInvalid.
    """

    prompt: str
    working_dir: Path
    model: str | None = None
    fallback_model: str | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    permission_mode: PermissionMode = PermissionMode.DONT_ASK
    tools: tuple[str, ...] | None = None
    timeout_seconds: float = DefaultSeconds(1800.0)
    idle_timeout_seconds: float | None = None
    max_attempts: int | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    output_schema: Mapping[str, Any] | None = None
    accept_any_output: bool = False
    resume_session: str | None = None
    fork_session: bool = False
    context: Mapping[str, str] = _NOTHING
    labels: Mapping[str, str] = _NOTHING


class TokenUsage(Struct, frozen=True, kw_only=True):
    """The tokens of one call. `input_tokens` includes `cached_tokens`, the part that came from the service's cache."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


# The beginning of the note on a result whose changed files could not be determined.
FILES_NOT_KNOWN = "the changed files could not be determined"


class AgentResult(Struct, frozen=True, kw_only=True):
    """The result of one agent call. `error` is set if and only if `success` is false.

    `total_cost_usd` is None if it is unknown. An answer from the ledger costs nothing, and `original_cost_usd` is what
    it cost originally. `model` is the model that answered. `notes` list differences from the request.

    With `accept_any_output`, `structured` is the unchecked value from the agent's structured output, or None.
    `inexact` is the reason why the answer cannot be exact, or empty: the call did not finish with exactly one success,
    the agent returned several answers, a part of the output could not be read, or the output was cut off.
    `other_answers` are the agent's other messages, which are only searched for claims. `stored` says whether the
    answer is in the ledger.
    """

    success: bool
    output: str
    agent: str
    structured: Any = None
    session_id: str = ""
    duration_ms: int = 0
    num_turns: int = 0
    total_cost_usd: float | None = None
    usage: TokenUsage = TokenUsage()
    model: str | None = None
    files_changed: tuple[str, ...] = ()
    permission_denials: tuple[str, ...] = ()
    attempts: int = 1
    raw_output: str = ""
    error: str | None = None
    from_ledger: bool = False
    original_cost_usd: float | None = None
    inexact: str = ""
    other_answers: tuple[str, ...] = ()
    stored: bool = False
    notes: tuple[str, ...] = ()


class PromptLimit(Struct, frozen=True, kw_only=True):
    """The longest prompt, including its context, that an agent accepts with any model. None if it is unknown."""

    characters: int | None = None
    bytes: int | None = None


class AgentLimits(Struct, frozen=True, kw_only=True):
    """The abilities and limits of an agent. A request that exceeds them is rejected before it is sent.

    `confined` says that the read-only tools cannot read anything outside the working directory. `own_tokens` is about
    how many tokens the agent adds to each call for its own instructions and tool definitions.
    """

    prompt: PromptLimit = PromptLimit()
    schema: bool = False
    turns: bool = False
    budget: bool = False
    resume: bool = False
    fork: bool = False
    tools: bool = False
    writes: bool = False
    fallback: bool = False
    confined: bool = False
    own_tokens: int = 0


class Availability(Struct, frozen=True, kw_only=True):
    """Whether an agent can be used on this machine. `logged_in` is None if only a paid call could determine it."""

    found: bool
    version: str | None = None
    logged_in: bool | None = None
    how_to_fix: str = ""
    default_model: str | None = None
    path: str | None = None
    lacks_model: bool = False

    @property
    def problem(self) -> str:
        """Return why the agent cannot be used, as a phrase that follows "is", or an empty string if it can be used."""
        if not self.found:
            return "not installed"
        if self.lacks_model:
            return "without a model"
        if self.logged_in is False:
            return "not logged in"
        return ""

    @property
    def usable(self) -> bool:
        """Return whether the agent is installed, is not known to be logged out, and has a model."""
        return not self.problem


class AgentStarted(EventBase, frozen=True):
    """A call started. `label` identifies it for the user, such as the unit of a review."""

    agent: str
    model: str | None
    label: str = ""


class AttemptStarted(EventBase, frozen=True):
    """An attempt started. Attempts are numbered from 1, and `of` is the maximum number of attempts."""

    agent: str
    attempt: int
    of: int


class AttemptFailed(EventBase, frozen=True):
    """An attempt failed. `error` is the name of the error class. `retry_in_seconds` is None if no retry follows."""

    agent: str
    attempt: int
    error: str
    message: str
    retry_in_seconds: float | None = None


class TurnTaken(EventBase, frozen=True):
    """The agent finished a turn. Turns are numbered from 1."""

    agent: str
    turn: int


class ToolUsed(EventBase, frozen=True):
    """The agent used a tool. `detail` is short, such as a file name."""

    agent: str
    tool: str
    detail: str = ""


class TokensSpent(EventBase, frozen=True):
    """The agent reported its usage so far. `cost_usd` is None if the agent does not report a cost."""

    agent: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None


class QuotaEnded(EventBase, frozen=True):
    """A quota is used up. `opens_at` is when it resets, if known.

    `waiting` says whether the call is waiting for the reset.
    """

    agent: str
    opens_at: datetime | None
    waiting: bool


class FellBack(EventBase, frozen=True):
    """Codeloupe switched to the next agent because the previous one could not be used. `reason` says why."""

    from_agent: str
    to_agent: str
    reason: str


class DatabaseUnreachable(EventBase, frozen=True):
    """The database cannot store answers. `answers` of them are stored on this machine.

    They are moved to the database as soon as it can store them. `reason` says why it cannot. `is_reached` is true for
    a database that responds and cannot store anything, for example because its disk is full.
    """

    since: datetime
    answers: int
    reason: str
    is_reached: bool = False

    @property
    def summary(self) -> str:
        """A line for the user."""
        state = "cannot store answers" if self.is_reached else "unreachable"
        noun = "answer" if self.answers == 1 else "answers"
        return f"database {state} since {self.since:%H:%M:%S}, {self.answers:,} {noun} stored locally"


class DatabaseReachable(EventBase, frozen=True):
    """The database can store answers again. It now has the `answers` that were stored on this machine."""

    answers: int

    @property
    def summary(self) -> str:
        """A line for the user."""
        noun = "answer" if self.answers == 1 else "answers"
        return f"database reachable again; {self.answers:,} {noun} stored"


class AgentFinished(EventBase, frozen=True):
    """A call finished, successfully or not. `stored` says whether the answer is in the ledger."""

    agent: str
    success: bool
    attempts: int
    duration_ms: int
    cost_usd: float | None
    from_ledger: bool = False
    stored: bool = False


_OfAttempt = AttemptStarted | AttemptFailed | TurnTaken | ToolUsed | TokensSpent
_OfLedger = DatabaseUnreachable | DatabaseReachable
AgentEvent = AgentStarted | _OfAttempt | QuotaEnded | FellBack | _OfLedger | AgentFinished


class Usage(Struct, frozen=True, kw_only=True):
    """Requests, tokens, cost and time. `cached` counts answers from the ledger, `unknown_costs` unknown costs."""

    requests: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    duration_seconds: float = 0.0
    unknown_costs: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both. Times are added too, so the caller must measure concurrent calls separately."""
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


def usage_of(result: AgentResult) -> Usage:
    """Return the usage of an answer: nothing if it came from the ledger."""
    if result.from_ledger:
        return Usage(cached=1)
    seconds = result.duration_ms / 1000
    return spent(max(result.attempts, 1), result.total_cost_usd, result.usage, duration_seconds=seconds)


def spent(requests: int, cost_usd: float | None, tokens: TokenUsage | None, *, duration_seconds: float = 0.0) -> Usage:
    """Return the usage of some requests. A cost that is missing or not a finite number counts as unknown."""
    known = None if cost_usd is None or not math.isfinite(cost_usd) else max(cost_usd, 0.0)
    return Usage(
        requests=requests,
        input_tokens=tokens.input_tokens if tokens else 0,
        output_tokens=tokens.output_tokens if tokens else 0,
        cost_usd=known or 0.0,
        duration_seconds=duration_seconds,
        unknown_costs=1 if requests and known is None else 0,
    )


def full_prompt(request: AgentRequest) -> str:
    """Return the prompt, followed by each piece of context under its title."""
    pieces = (f"## {title}\n\n{text}" for title, text in request.context.items())
    return "\n\n".join((request.prompt, *pieces))


AgentName = Literal["agent_sdk", "claude_cli", "codex", "gemini", "api"]
# The other reviewers are an external gate, the user's own program, and the analysers.
ReviewerName = AgentName | Literal["cerberus", "command", "offline"]


class AgentFacts(Struct, frozen=True):
    """The agent's name in reports, the vendor of its models, its prompt limit and the setting for its program."""

    label: str
    vendor: str
    prompt_limit: PromptLimit = PromptLimit()
    path_setting: str | None = None


# By experiment: claude treats a window of a million tokens as full at a little over 2.9 million characters, and rejects
# more than 10 MB with any model. codex reports its limit. gemini does not send 5 MB, and 2 MB are known to work.
_CLAUDE_LIMIT = PromptLimit(characters=2_800_000, bytes=10_000_000)
_CODEX_LIMIT = PromptLimit(characters=1_048_576)
_GEMINI_LIMIT = PromptLimit(bytes=2_097_152)

AGENTS: Mapping[str, AgentFacts] = MappingProxyType(
    {
        "agent_sdk": AgentFacts("Claude Agent SDK", "anthropic", _CLAUDE_LIMIT),
        "claude_cli": AgentFacts("Claude Code", "anthropic", _CLAUDE_LIMIT, "claude_path"),
        "codex": AgentFacts("Codex", "codex", _CODEX_LIMIT, "codex_path"),
        "gemini": AgentFacts("Gemini", "gemini", _GEMINI_LIMIT, "gemini_path"),
        # Its model names start with a provider.
        "api": AgentFacts("API model", "api"),
    }
)
AGENT_NAMES = tuple(AGENTS)
REVIEWER_NAMES = (*AGENT_NAMES, "cerberus", "command", "offline")


def same_vendor(agent: str, other: str) -> bool:
    """Return whether two agents share model names. An agent that is not built in is its own vendor."""
    one, two = (AGENTS[name].vendor if name in AGENTS else name for name in (agent, other))
    return one == two
