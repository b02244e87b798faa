"""The settings: every key with its type, its default and what it means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from codeloupe.config.kinds import (
    BOOLEAN,
    BRANCH,
    DOLLARS,
    LARGEST_LIMIT,
    NAMES,
    PATTERNS,
    SECONDS,
    SEVERITY,
    TEXT,
    WHOLE_NUMBER,
    Kind,
    one_of,
)
from codeloupe.model.severity import Severity

_JSON_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _list_to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _plain_name(name: str) -> str:
    if name.startswith("-") or not name.isprintable():
        raise ValueError("not the name of a branch")
    return name


_Boolean = Annotated[bool, BOOLEAN]
_Limit = Annotated[int, Field(ge=1, le=LARGEST_LIMIT), WHOLE_NUMBER]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), SECONDS]
_Branch = Annotated[Annotated[str, Field(min_length=1), AfterValidator(_plain_name)] | None, BRANCH]
_Text = Annotated[Annotated[str, Field(min_length=1)] | None, TEXT]
_Dollars = Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, DOLLARS]
_OptionalLimit = Annotated[Annotated[int, Field(ge=1, le=LARGEST_LIMIT)] | None, WHOLE_NUMBER]
_AgentName = Literal["agent_sdk", "claude_cli", "codex", "gemini", "api"]
_Agents = Annotated[Annotated[tuple[_AgentName, ...], Field(min_length=1)], BeforeValidator(_list_to_tuple), NAMES]
_Pattern = Annotated[str, Field(min_length=1)]
_Patterns = Annotated[tuple[_Pattern, ...], BeforeValidator(_list_to_tuple), PATTERNS]
_Severity = Annotated[
    Severity,
    BeforeValidator(Severity.parse),
    PlainSerializer(lambda severity: severity.label, return_type=str),
    WithJsonSchema({"type": "string", "enum": list(SEVERITY.choices)}),
    SEVERITY,
]


class Settings(BaseModel):
    """Everything that shapes a review. A wrong value raises pydantic's ValidationError."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)

    base_branch: _Branch = Field(
        default=None,
        description="The branch a change is compared with. Not set: origin/HEAD, or else main, master or develop.",
    )
    include: _Patterns = Field(
        default=(), description="Review only files that match one of these patterns. Empty: review every file."
    )
    exclude: _Patterns = Field(
        default=(), description="Skip files that match one of these patterns, even if `include` names them."
    )
    fail_on: _Severity = Field(
        default=Severity.HIGH, description="A finding this bad or worse fails the review (exit code 1)."
    )
    min_severity: _Severity = Field(default=Severity.LOW, description="Report only findings this bad or worse.")
    on_incomplete: Annotated[Literal["fail", "pass"], one_of("fail", "pass")] = Field(
        default="fail",
        description="What a review that could not cover everything means for the exit code: fail (3) or pass (0).",
    )
    reviewer_type: Annotated[Literal["auto", "offline"], one_of("auto", "offline")] = Field(
        default="auto",
        description="Who reviews: offline uses the analysers that come with codeloupe; auto takes the best at hand.",
    )
    max_file_bytes: _Limit = Field(default=1_000_000, description="Skip files larger than this many bytes.")
    max_file_lines: _Limit = Field(default=20_000, description="Skip files with more changed lines than this.")
    timeout_seconds: _Seconds = Field(default=300.0, description="End the review after this many seconds.")
    skip_generated: _Boolean = Field(default=True, description="Skip files that a program generated.")
    skip_vendored: _Boolean = Field(default=True, description="Skip copies of other projects, such as vendor/.")
    skip_lock_files: _Boolean = Field(default=True, description="Skip the lock files of package managers.")
    skip_minified: _Boolean = Field(default=True, description="Skip minified scripts and style sheets.")
    untrusted: _Boolean = Field(
        default=False,
        description="Review a change by somebody you do not trust: configuration comes from the base revision, "
        "and suppressions in the code are ignored.",
    )
    agents: _Agents = Field(
        default=("agent_sdk", "claude_cli", "codex", "gemini"),
        description="Which agents to ask, in this order: the next one when one is not here, not logged in or out of "
        "quota. Known: agent_sdk, claude_cli, codex, gemini, api.",
    )
    model: _Text = Field(default=None, description="The model to ask for. Not set: the agent's own default.")
    agent_timeout_seconds: _Seconds = Field(
        default=1800.0, description="End an agent call after this many seconds, all attempts together."
    )
    concurrency: _Limit = Field(default=5, description="How many agent calls may run at a time.")
    calls_per_minute: _OptionalLimit = Field(default=None, description="How many agent calls may start in a minute.")
    max_budget_usd: _Dollars = Field(default=None, description="Stop before a run costs more than this many dollars.")
    max_tokens: _OptionalLimit = Field(default=None, description="Stop before a run uses more tokens than this.")
    max_requests: _OptionalLimit = Field(
        default=None, description="Stop before a run makes more agent calls than this."
    )
    wait_for_quota: _Boolean = Field(default=False, description="Wait until a quota opens again instead of giving up.")
    keep_sessions: _Boolean = Field(
        default=False, description="Let agents keep their sessions on this machine, so that a call can go on with one."
    )
    mask_prompts: _Boolean = Field(default=True, description="Mask secrets of known forms in what is sent to agents.")
    claude_path: _Text = Field(default=None, description="The claude program. Not set: found on the PATH.")
    codex_path: _Text = Field(default=None, description="The codex program. Not set: found on the PATH.")
    gemini_path: _Text = Field(default=None, description="The gemini program. Not set: found on the PATH.")
    api_model: _Text = Field(
        default=None, description="The model of the api agent with its provider, such as anthropic:claude-opus-4-8."
    )
    api_base_url: _Text = Field(
        default=None, description="The address of an OpenAI-compatible service for the api agent (Ollama, vLLM, ...)."
    )
    allow_bypass: _Boolean = Field(
        default=False, description="Let an agent run any command without asking, when a call asks for that by name."
    )


# A repository must not choose which program runs on the machine, or where a key is sent.
USER_KEYS = frozenset({"claude_path", "codex_path", "gemini_path", "api_base_url", "allow_bypass"})
KEYS: tuple[str, ...] = tuple(Settings.model_fields)


def kind_of(key: str) -> Kind:
    """The kind of a key's value. Raises KeyError for an unknown key."""
    return next(entry for entry in Settings.model_fields[key].metadata if isinstance(entry, Kind))


def description_of(key: str) -> str:
    """What a key means, in a sentence. Raises KeyError for an unknown key."""
    return Settings.model_fields[key].description or ""


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a configuration file."""
    schema = Settings.model_json_schema()
    defaults = Settings().model_dump(mode="json")
    for key, entry in schema["properties"].items():
        entry.pop("title", None)
        entry["default"] = defaults[key]
    schema["title"] = "codeloupe configuration"
    schema["description"] = "Settings of codeloupe, as they stand in codeloupe.yaml."
    return {"$schema": _JSON_SCHEMA_DIALECT, **schema}
