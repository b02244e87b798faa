"""One agent call: what is asked, what comes back, what an agent can do, and what happens meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

_NOTHING: Mapping[str, Any] = MappingProxyType({})


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


class DefaultSeconds(float):
    """A time that nobody chose: the settings may say otherwise, which they may not of one that a caller gave."""


class AgentRequest(Struct, frozen=True, kw_only=True):
    """What is asked of an agent. Serialisable, so that its content is its key in the ledger; mappings are copied.

    `tools` names the agent's own tools; None means its read-only set, () none at all. `context` is further text that
    goes behind the prompt, by title. `labels` are for events and logs and do not shape the answer. Where `model` or
    `timeout_seconds` is not given, that of the settings counts. `timeout_seconds` covers all attempts, of which
    `max_attempts` bounds the number; `idle_timeout_seconds` is how long an agent may be silent. `fork_session` goes on
    from the resumed session in a new one, so that the old one stays as it is.
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
    resume_session: str | None = None
    fork_session: bool = False
    context: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        # What is no mapping is refused in words when it is sent.
        for name in ("context", "labels"):
            given: object = getattr(self, name)
            if isinstance(given, Mapping) and not isinstance(given, MappingProxyType):
                force_setattr(self, name, MappingProxyType(dict(given)))


class TokenUsage(Struct, frozen=True, kw_only=True):
    """Tokens of one call. `input_tokens` counts all that was sent; `cached_tokens` is the part that was cached."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class AgentResult(Struct, frozen=True, kw_only=True):
    """What came back. `error` is set exactly when `success` is false.

    `total_cost_usd` is None when the program does not tell. An answer from the ledger costs nothing now; what it cost
    when it was bought is `original_cost_usd`. `model` is the one that answered, as it names itself.
    `notes` say in words what was not as asked: another agent answered, a limit is not known to the program.
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
    notes: tuple[str, ...] = ()


class AgentLimits(Struct, frozen=True, kw_only=True):
    """What an agent can take and do; None means no limit is known.

    A request that asks for what an agent cannot do is refused before anything is spent. `fallback`: it takes a
    fallback model. `confined`: with its read-only tools it reads nothing outside the working directory.
    `own_tokens` is about how many tokens it adds to each call: its own instructions and the forms of its tools.
    """

    max_prompt_bytes: int | None = None
    max_prompt_characters: int | None = None
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
    """Whether an agent can be used here. `logged_in` is None when that cannot be known without a paid call.

    `lacks_model` is of an agent that has no model of its own and was told none.
    """

    found: bool
    version: str | None = None
    logged_in: bool | None = None
    how_to_fix: str = ""
    default_model: str | None = None
    path: str | None = None
    lacks_model: bool = False

    @property
    def usable(self) -> bool:
        """Found, not known to be logged out, and with a model."""
        return self.found and self.logged_in is not False and not self.lacks_model
