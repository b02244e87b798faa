"""One agent call: what is asked, what comes back, what an agent can do, and what happens meanwhile."""

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
    """What an agent may do without asking; nobody is there to be asked. The names are those of Claude Code."""

    PLAN = "plan"
    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    DONT_ASK = "dontAsk"
    BYPASS = "bypassPermissions"

    @property
    def may_write(self) -> bool:
        """Whether files may be changed in this mode."""
        return self in (PermissionMode.ACCEPT_EDITS, PermissionMode.BYPASS)


class Priority(IntEnum):
    """Whose calls go first where many processes share the limits of a service."""

    PERSON = 0
    PULL_REQUEST = 1
    SWEEP = 2


class DefaultSeconds(float):
    """A time that nobody chose: the settings may say otherwise, which they may not of one that a caller gave."""


class AgentRequest(FrozenStruct, frozen=True, kw_only=True):
    """One question to an agent. Its content is its key in the ledger; mappings are copied and frozen.

    `tools` names the agent's own tools; None means its read-only set, () none at all. `context` is further text after
    the prompt, by title; `labels` are for events and logs. Where `model` or `timeout_seconds` is not given, that of the
    settings counts. `timeout_seconds` covers all attempts, `idle_timeout_seconds` is how long an agent may be silent.
    `fork_session` goes on from the resumed session in a new one. `accept_any_output`: return an answer that does not
    match `output_schema` as it is, instead of raising OutputInvalid; the caller reads it.
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
    """Tokens of one call. `input_tokens` counts all that was sent; `cached_tokens` is the part that was cached."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


# The beginning of the note on a result whose changed files could not be determined.
FILES_NOT_KNOWN = "the changed files could not be determined"


class AgentResult(Struct, frozen=True, kw_only=True):
    """What came back. `error` is set exactly when `success` is false.

    `total_cost_usd` is None when it is not known. An answer from the ledger costs nothing now; what it cost when it was
    bought is `original_cost_usd`. `model` is the one that answered. `notes` say what was not as asked.

    With `accept_any_output`, `structured` is a value from the agent's own channel, unchecked, or None. `inexact` is why
    the answer cannot be exact, or empty: the run did not end with exactly one success, it gave several answers, a part
    of its output could not be read, or it was cut off. `other_answers` are the texts of all that the agent said beside
    its answer, which are read for claims only. `stored` says that the ledger has it.
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
    """The longest prompt, its context included, that an agent accepts whatever its model; None if that is not known."""

    characters: int | None = None
    bytes: int | None = None


class AgentLimits(Struct, frozen=True, kw_only=True):
    """The abilities and limits of an agent. A request for more is refused before it is sent.

    `confined`: with its read-only tools it reads nothing outside the working directory. `own_tokens` is about how many
    it adds to each call: its own instructions and the forms of its tools.
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
    """Whether an agent can be used here. `logged_in` is None when that cannot be known without a paid call."""

    found: bool
    version: str | None = None
    logged_in: bool | None = None
    how_to_fix: str = ""
    default_model: str | None = None
    path: str | None = None
    lacks_model: bool = False

    @property
    def problem(self) -> str:
        """Return why the agent cannot be used, as it follows "is" in a sentence; nothing if it can be."""
        if not self.found:
            return "not installed"
        if self.lacks_model:
            return "without a model"
        if self.logged_in is False:
            return "not logged in"
        return ""

    @property
    def usable(self) -> bool:
        """Tell whether the agent is installed, not known to be logged out, and has a model."""
        return not self.problem


class AgentStarted(EventBase, frozen=True):
    """A call began. `label` names it for a person, such as the unit of a review."""

    agent: str
    model: str | None
    label: str = ""


class AttemptStarted(EventBase, frozen=True):
    """An attempt of a call began. The first has number 1, and `of` is the highest possible number."""

    agent: str
    attempt: int
    of: int


class AttemptFailed(EventBase, frozen=True):
    """An attempt failed with an error of the class `error`. `retry_in_seconds` is None if no retry follows."""

    agent: str
    attempt: int
    error: str
    message: str
    retry_in_seconds: float | None = None


class TurnTaken(EventBase, frozen=True):
    """The agent finished a turn. The first has number 1."""

    agent: str
    turn: int


class ToolUsed(EventBase, frozen=True):
    """The agent used a tool. `detail` is short, such as a file name."""

    agent: str
    tool: str
    detail: str = ""


class TokensSpent(EventBase, frozen=True):
    """The agent reported its usage so far. `cost_usd` is None if it reports no cost."""

    agent: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None


class QuotaEnded(EventBase, frozen=True):
    """A quota is used up. `opens_at` is when it opens again, if known; `waiting` says whether the call waits for it."""

    agent: str
    opens_at: datetime | None
    waiting: bool


class FellBack(EventBase, frozen=True):
    """The next agent gets the question, because the first one cannot be used. `reason` says why."""

    from_agent: str
    to_agent: str
    reason: str


class AgentFinished(EventBase, frozen=True):
    """A call ended, with or without success. `stored` says that the ledger has its answer."""

    agent: str
    success: bool
    attempts: int
    duration_ms: int
    cost_usd: float | None
    from_ledger: bool = False
    stored: bool = False


_OfAttempt = AttemptStarted | AttemptFailed | TurnTaken | ToolUsed | TokensSpent
AgentEvent = AgentStarted | _OfAttempt | QuotaEnded | FellBack | AgentFinished


class Usage(Struct, frozen=True, kw_only=True):
    """Requests, tokens, money and time; `cached` are answers from the ledger, `unknown_costs` calls without a cost."""

    requests: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    duration_seconds: float = 0.0
    unknown_costs: int = 0

    def plus(self, other: Usage) -> Usage:
        """Both together. Times are added too: what ran side by side needs its own."""
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


def usage_of(result: AgentResult) -> Usage:
    """What an answer cost: nothing if it came from the ledger."""
    if result.from_ledger:
        return Usage(cached=1)
    seconds = result.duration_ms / 1000
    return spent(max(result.attempts, 1), result.total_cost_usd, result.usage, duration_seconds=seconds)


def spent(requests: int, cost_usd: float | None, tokens: TokenUsage | None, *, duration_seconds: float = 0.0) -> Usage:
    """What some requests cost; where there were any, a cost that is not known, or no number, counts as unknown."""
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
    """The prompt as it is, followed by each piece of context under its title."""
    pieces = (f"## {title}\n\n{text}" for title, text in request.context.items())
    return "\n\n".join((request.prompt, *pieces))


AgentName = Literal["agent_sdk", "claude_cli", "codex", "gemini", "api"]
# What else can review: an external gate, a program of the user's own, the analysers.
ReviewerName = AgentName | Literal["cerberus", "command", "offline"]


class AgentFacts(Struct, frozen=True):
    """The name of an agent in reports, whose models it knows, its limit, and the setting that names its program."""

    label: str
    vendor: str
    prompt_limit: PromptLimit = PromptLimit()
    path_setting: str | None = None


# By experiment: claude treats a window of a million tokens as full at a little over 2.9 million characters, and refuses
# more than 10 MB with any model. codex names its limit. gemini sends nothing of 5 MB, and 2 MB are known to work.
_CLAUDE_LIMIT = PromptLimit(characters=2_800_000, bytes=10_000_000)
_CODEX_LIMIT = PromptLimit(characters=1_048_576)
_GEMINI_LIMIT = PromptLimit(bytes=2_097_152)

AGENTS: Mapping[str, AgentFacts] = MappingProxyType(
    {
        "agent_sdk": AgentFacts("Claude Agent SDK", "anthropic", _CLAUDE_LIMIT),
        "claude_cli": AgentFacts("Claude Code", "anthropic", _CLAUDE_LIMIT, "claude_path"),
        "codex": AgentFacts("Codex", "codex", _CODEX_LIMIT, "codex_path"),
        "gemini": AgentFacts("Gemini", "gemini", _GEMINI_LIMIT, "gemini_path"),
        # Its names of models have a provider in front.
        "api": AgentFacts("API model", "api"),
    }
)
AGENT_NAMES = tuple(AGENTS)
REVIEWER_NAMES = (*AGENT_NAMES, "cerberus", "command", "offline")


def same_vendor(agent: str, other: str) -> bool:
    """Whether two agents know the same names of models; one that is not built in is a vendor of its own."""
    one, two = (AGENTS[name].vendor if name in AGENTS else name for name in (agent, other))
    return one == two
