"""The settings: the default, kind and meaning of every key, and the text and schema of a configuration file."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, get_args, overload

import msgspec.json
from msgspec import Struct, StructMeta
from msgspec.structs import force_setattr

from codeloupe.config import kinds
from codeloupe.config.kinds import Kind, Mistake, Wrong, optional
from codeloupe.config.yaml import (
    MOST_SHOWN_CHARACTERS,
    Problem,
    closest,
    closest_key,
    config_error,
    escape,
    path_text,
    plain_or_quoted,
    quote,
)
from codeloupe.model.agent import AGENT_NAMES, REVIEWER_NAMES, AgentName, ReviewerName
from codeloupe.model.change import Effort, PathInstruction
from codeloupe.model.finding import Severity
from codeloupe.model.frozen import FrozenDict
from codeloupe.model.review import UNREAD_CLASSES

SeverityWord = Literal["critical", "high", "medium", "low", "P0", "P1", "P2", "P3"]
Lane = Literal["agent", "offline"]
ReviewFormat = Literal["findings", "review-gate", "sarif", "rdjson", "rdjsonl", "lines"]

_AGENTS = kinds.list_of(
    kinds.one_of(*AGENT_NAMES), f"a list of {kinds.either(AGENT_NAMES)}", from_text=kinds.comma_list, least=1
)
_EFFORT = kinds.one_of(*(effort.value for effort in Effort), meaning=Effort)
_FAIL_OR_PASS = kinds.one_of("fail", "pass")
_BRANCH, _DOLLARS = optional(kinds.BRANCH), optional(kinds.DOLLARS)
_NONE: Mapping[str, Any] = FrozenDict()
DESCRIBED = "`codeloupe config schema` describes every key"
_HEADER = """\
# Codeloupe settings for this repository.
#
# Every key that a repository may set is listed here with its default. To change a value, remove the `#`
# before its key and enter your value.
# `codeloupe config validate` checks this file; `codeloupe config show` shows each value and its origin.
"""

_Texts = tuple[str, ...]
_Value = TypeVar("_Value")
_Given = TypeVar("_Given")

if TYPE_CHECKING:

    class ReadAs(Generic[_Value, _Given]):
        """Describe a field that converts its value when it is set: it also accepts the form used in a file."""

        @overload
        def __get__(self, settings: None, kind: type) -> ReadAs[_Value, _Given]: ...
        @overload
        def __get__(self, settings: object, kind: type) -> _Value: ...
        def __get__(self, settings: object, kind: type) -> Any: ...
        def __set__(self, settings: object, value: _Value | _Given) -> None: ...


class About(NamedTuple):
    """Describe the declaration of a setting. A repository may not set a `user_only` setting."""

    default: object
    kind: Kind
    meaning: str
    user_only: bool


_declared: list[About] = []


def _setting(default: object, kind: Kind, meaning: str, *, user_only: bool = False) -> Any:
    """Declare the setting for the field it is assigned to. A repository may not set a `user_only` setting."""
    _declared.append(About(default, kind, meaning, user_only))
    return default


def _switch(meaning: str, *, on: bool, user_only: bool = False) -> Any:
    return _setting(on, kinds.BOOLEAN, meaning, user_only=user_only)


def _text(meaning: str, *, user_only: bool = False) -> Any:
    return _setting(None, optional(kinds.TEXT), meaning, user_only=user_only)


def _limit(meaning: str, *, user_only: bool = False) -> Any:
    return _setting(None, optional(kinds.WHOLE_NUMBER), meaning, user_only=user_only)


class _SettingsType(StructMeta):
    """Reject an unknown setting with the same message as for a configuration file."""

    if not TYPE_CHECKING:

        def __call__(self, *values: object, **settings: object) -> object:
            unknown = [key for key in settings if key not in ABOUT]
            if unknown:
                problems = [Problem(plain_or_quoted(key), "unknown setting", unknown_key_hint(key)) for key in unknown]
                raise config_error(problems, subject="Settings(...)", hint=DESCRIBED)
            return super().__call__(*values, **settings)


class Settings(Struct, metaclass=_SettingsType, frozen=True, kw_only=True):
    """All settings for a review. Lists and words are read in the same way as from a configuration file.

    Raises ConfigError, which lists every unknown setting or every invalid value, with the nearest valid one.
    `own_experts` has the same form as in a file: definitions by name, then by key.
    """

    base_branch: str | None = _setting(
        None, _BRANCH, "The branch to compare a change with. Not set: origin/HEAD, or else main, master or develop."
    )
    include: ReadAs[_Texts, list[str]] = _setting(
        (), kinds.PATTERNS, "Review only files that match one of these patterns. Empty: review every file."
    )
    exclude: ReadAs[_Texts, list[str]] = _setting(
        (), kinds.PATTERNS, "Skip files that match one of these patterns, even if they match `include`."
    )
    fail_on: ReadAs[Severity, SeverityWord] = _setting(
        Severity.HIGH, kinds.SEVERITY, "Exit with code 1 if a finding has this severity or higher."
    )
    min_severity: ReadAs[Severity, SeverityWord] = _setting(
        Severity.LOW, kinds.SEVERITY, "Hide findings less severe than this. They still count towards the verdict."
    )
    on_incomplete: Literal["fail", "pass"] = _setting(
        "fail",
        _FAIL_OR_PASS,
        "The exit code for an incomplete review: fail (3) or pass (0).",
    )
    on_parse_error: Literal["fail", "pass"] = _setting(
        "fail",
        _FAIL_OR_PASS,
        "Whether a review passes if the answer cannot be read. Only for orchestrators that use codeloupe as their "
        "reviewer.",
    )
    reviewer_type: Literal["auto"] | ReviewerName = _setting(
        "auto",
        kinds.one_of("auto", *REVIEWER_NAMES),
        "The reviewer. auto: the first available agent in `agents`, or offline if there is none. offline: the built-in "
        "analysers. command: the program in `review_command`. cerberus: the review-gate.",
    )
    reviewers: ReadAs[tuple[ReviewerName, ...], list[ReviewerName]] = _setting(
        (),
        kinds.names_of(*REVIEWER_NAMES),
        "Several reviewers to run at once. Their findings are merged. Overrides `reviewer_type`.",
    )
    lanes: ReadAs[tuple[Lane, ...], list[Lane]] = _setting(
        ("agent",),
        kinds.names_of("agent", "offline", least=1),
        "The lanes to run: agent (the chosen reviewer), offline (the analysers), or both.",
    )
    effort: ReadAs[Effort, Literal["low", "medium", "high"]] = _setting(
        Effort.MEDIUM,
        _EFFORT,
        "How finely to split the change. A higher effort uses smaller units, so a review finds more and costs more.",
    )
    experts: ReadAs[_Texts, list[str]] = _setting(
        (),
        kinds.NAMES,
        "Review once with each of these experts. Empty: review once, with a checklist that suits the files.",
    )
    own_experts: Mapping[str, Mapping[str, Any]] = _setting(
        _NONE,
        kinds.OWN_EXPERTS,
        "Your own experts, by name. Each needs a focus; description, brief, sceptical_of, do_not_flag, paths and "
        "severity_guide are optional.",
    )
    experts_folder: str | None = _text(
        "A folder on this machine with additional experts, one YAML file for each.", user_only=True
    )
    commit_experts: Mapping[str, tuple[str, ...]] = _setting(
        _NONE,
        kinds.COMMIT_EXPERTS,
        "The experts to use in a sweep for each category of commit: bug_fix, feature, refactor, test_change, "
        "documentation, chore or other. Categories that are not listed keep their defaults.",
    )
    instructions: tuple[PathInstruction, ...] = _setting(
        (), kinds.INSTRUCTIONS, "Instructions for the reviewer about files that match certain patterns."
    )
    guidance: bool = _switch(
        "Send the REVIEW.md, AGENTS.md and CLAUDE.md nearest to each file to the reviewer.", on=True
    )
    keep_history: bool = _switch("Store each review, so that the next one can report what is new.", on=True)
    passes: int = _setting(
        1, kinds.PASSES, "Review this many times, in different orders. Findings reported more than once rank higher."
    )
    verify: bool = _switch(
        "Verify agents' potentially blocking claims before counting them: another call tries to refute each claim.",
        on=True,
    )
    max_file_bytes: int = _setting(1_000_000, kinds.WHOLE_NUMBER, "Skip files larger than this many bytes.")
    max_file_lines: int = _setting(20_000, kinds.WHOLE_NUMBER, "Skip files with more changed lines than this.")
    timeout_seconds: float = _setting(300.0, kinds.SECONDS, "The timeout for each analyser.")
    review_timeout_seconds: float = _setting(
        600.0, kinds.SECONDS, "The timeout for a review call to an agent, including all attempts."
    )
    skip_generated: bool = _switch("Skip generated files.", on=True)
    skip_vendored: bool = _switch("Skip copies of other projects, such as files in vendor/.", on=True)
    skip_lock_files: bool = _switch("Do not send package managers' lock files to agents.", on=True)
    skip_minified: bool = _switch("Skip minified scripts and style sheets.", on=True)
    accept_unread: tuple[str, ...] = _setting(
        (),
        kinds.names_of(*UNREAD_CLASSES),
        "Classes of files that may be skipped without making the review incomplete. Media and fonts may always be "
        "skipped. In a trusted change, every class except too_large may be skipped, but source files may be skipped "
        "only if they are generated or vendored. In an untrusted change, apart from media and fonts, only the classes "
        "listed here may be skipped.",
    )
    untrusted: bool = _switch(
        "Treat the change as hostile: configuration comes from the base branch, suppressions in the code are ignored, "
        "and skipped files make the review incomplete (see `accept_unread`).",
        on=False,
    )
    agents: ReadAs[tuple[AgentName, ...], list[AgentName]] = _setting(
        ("agent_sdk", "claude_cli", "codex", "gemini"),
        _AGENTS,
        "The agents to use, in this order. If an agent cannot review a unit, codeloupe calls the next agent.",
    )
    model: str | None = _text("The model. Not set: the agent's default.")
    agent_timeout_seconds: float = _setting(
        1800.0, kinds.SECONDS, "The timeout for any other agent call, including all attempts."
    )
    agent_sdk_review_timeout: float = _setting(
        600.0, kinds.SECONDS, "The timeout for a review call to the Agent SDK, including all attempts."
    )
    agent_sdk_reviewer_model: str | None = _text("The model for reviews with the Agent SDK. Not set: `model`.")
    concurrency: int = _setting(5, kinds.WHOLE_NUMBER, "The maximum number of concurrent agent calls.")
    calls_per_minute: int | None = _limit("The maximum number of agent calls that start per minute.")
    max_budget_usd: float | None = _setting(None, _DOLLARS, "Stop before a run costs more than this.")
    max_tokens: int | None = _limit("Stop before a run uses more tokens than this.")
    max_requests: int | None = _limit("Stop before a run makes more agent calls than this.")
    wait_for_quota: bool = _switch(
        "Wait for a quota to reset, if it resets within the timeout for the call. Sweeps and pipelines always wait.",
        on=False,
    )
    keep_sessions: bool = _switch(
        "Let agents keep their sessions on this machine, so that a later call can resume one.", on=False
    )
    mask_prompts: bool = _switch("Mask secrets in known formats in prompts.", on=True)
    claude_path: str | None = _text("The path of the claude program. Not set: looked up on the PATH.", user_only=True)
    codex_path: str | None = _text("The path of the codex program. Not set: looked up on the PATH.", user_only=True)
    gemini_path: str | None = _text("The path of the gemini program. Not set: looked up on the PATH.", user_only=True)
    review_command: ReadAs[_Texts, list[str]] = _setting(
        (),
        kinds.COMMAND,
        "The program and arguments for the `command` reviewer. The program reads a diff and prints findings.",
        user_only=True,
    )
    review_command_format: ReviewFormat = _setting(
        "findings",
        kinds.one_of(*get_args(ReviewFormat)),
        "The output format of `review_command`. findings: the same JSON that agents return. review-gate: the "
        "review-gate's JSON document. sarif: SARIF 2.1.0. rdjson, rdjsonl: reviewdog's formats. lines: `path:line: "
        "severity: message`. Empty output is a failure. A program that has no findings and does not print a document "
        "must print `No issues found`.",
        user_only=True,
    )
    review_gate_path: str | None = _text(
        "The path of the review-gate program for the `cerberus` reviewer. Not set: looked up on the PATH.",
        user_only=True,
    )
    review_gate_arguments: ReadAs[_Texts, list[str]] = _setting(
        (), kinds.ARGUMENTS, "Additional arguments for the review-gate.", user_only=True
    )
    api_model: str | None = _text("The provider and model for the `api` agent, such as anthropic:claude-opus-4-8.")
    api_base_url: str | None = _text(
        "The URL of an OpenAI-compatible service for the `api` agent (Ollama, vLLM, ...).", user_only=True
    )
    database: str | None = _setting(
        None,
        optional(kinds.DATABASE),
        "The Postgres database for the ledger, history and runs. Machines that use the same database also share limits "
        "and jobs. Not set: one SQLite file on this machine.",
        user_only=True,
    )
    ledger_max_gb: float = _setting(
        1.0,
        kinds.GIGABYTES,
        "The maximum size of all stored answers of agents, in gigabytes. Once an hour, answers older than 90 days are "
        "deleted, and then the oldest ones until the rest fits.",
        user_only=True,
    )
    shared_concurrency: int | None = _limit(
        "The maximum number of concurrent requests for one agent with one key, across all processes that share the "
        "`database`. Not set: no limit until the service reports overload.",
        user_only=True,
    )
    shared_calls_per_minute: int | None = _limit(
        "The maximum number of requests that start per minute for one agent with one key, across all processes that "
        "share the `database`. Each attempt counts.",
        user_only=True,
    )
    team: str | None = _setting(
        None, optional(kinds.NAME), "The team that pays for calls from this machine.", user_only=True
    )
    monthly_budget_usd: float | None = _setting(
        None,
        _DOLLARS,
        "Stop before all users of the `database` together spend more than this in a calendar month (UTC).",
        user_only=True,
    )
    monthly_team_budget_usd: float | None = _setting(
        None, _DOLLARS, "The monthly limit for the `team`, across all its repositories.", user_only=True
    )
    monthly_repository_budget_usd: float | None = _setting(
        None, _DOLLARS, "The monthly limit for each repository.", user_only=True
    )
    allow_bypass: bool = _switch(
        "Allow calls with the bypassPermissions permission mode, which lets an agent run any command.",
        on=False,
        user_only=True,
    )

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for key, about in ABOUT.items():
            value = getattr(self, key)
            try:
                force_setattr(self, key, about.kind.read(value))
            except Wrong as wrong:
                problems += [_problem(key, value, mistake) for mistake in wrong.mistakes]
        if problems:
            raise config_error(problems, subject="Settings(...)", hint=DESCRIBED)


ABOUT = dict(zip(Settings.__struct_fields__, _declared, strict=True))
KEYS: tuple[str, ...] = tuple(ABOUT)
USER_KEYS = frozenset(key for key, about in ABOUT.items() if about.user_only)


def unknown_key_hint(key: str) -> str:
    """Return the hint for a key that is not a setting."""
    meant = closest_key(key, KEYS)
    return f"did you mean `{meant}`?" if meant else "`codeloupe config show` lists every key"


def mistake_hint(value: object, mistake: Mistake, *, default: str) -> str:
    """Return the hint for an invalid value or part of a value. `default` is formatted for the reader of the hint."""
    meant = closest(value, mistake.choices) if isinstance(value, str) else None
    if meant:
        return f"did you mean `{meant}`?"
    if mistake.choices and not mistake.found:
        return f"the keys are {kinds.either(mistake.choices)}"
    if mistake.place or not mistake.found:
        return DESCRIBED
    return f"the default is {default}"


def _problem(key: str, value: object, mistake: Mistake) -> Problem:
    """Return the problem with a value that a program passed, or with a part of it."""
    part = value
    for step in mistake.place:
        if isinstance(part, Mapping):
            part = part.get(step)
        elif isinstance(part, list | tuple) and isinstance(step, int):
            part = part[step]
    what = mistake.what
    if mistake.found:
        what = f"{what}, found {_shown(part)}"
    elif mistake.choices:
        # The last step of the place is the unknown key.
        part = mistake.place[-1]
    hint = mistake_hint(part, mistake, default=repr(_plain(ABOUT[key].default)))
    if part is value and isinstance(value, str):
        hint = _meaning_hint(key, value) or hint
    elif mistake.wants_text and isinstance(part, bool | int | float | os.PathLike):
        hint = f"did you mean {str(part)!r}?"
    return Problem(path_text(key, mistake.place), what, hint)


def _meaning_hint(key: str, text: str) -> str:
    """Return a hint with the value that a string means in a variable or flag, such as 5 for "5", or an empty string."""
    kind = ABOUT[key].kind
    if kind.from_text is None:
        return ""
    try:
        meant = kind.accept(kind.from_text(text))
    except (ValueError, Wrong):
        return ""
    if isinstance(meant, tuple):
        meant = list(meant)
    return f"did you mean {meant!r}?"


def _shown(value: object) -> str:
    """Return the Python representation of a value on one short line."""
    if isinstance(value, str):
        return quote(value)
    text = repr(value)
    if len(text) > MOST_SHOWN_CHARACTERS:
        text = f"{text[:MOST_SHOWN_CHARACTERS]}…"
    return escape(text)


def _plain(value: object) -> object:
    """Return the JSON form of a value."""
    if isinstance(value, Severity):
        return value.label
    return msgspec.json.decode(msgspec.json.encode(value))


def plain_values(settings: Settings) -> dict[str, Any]:
    """Return every key with the JSON form of its value. `Settings(**plain_values(settings))` equals `settings`."""
    return {key: _plain(getattr(settings, key)) for key in KEYS}


def default_text(key: str) -> str:
    """Return a key's default on one line. Raises KeyError for an unknown key."""
    return value_text(_plain(ABOUT[key].default))


def value_text(value: object) -> str:
    """Return a value from `plain_values` on one line, with control characters escaped."""
    match value:
        case str():
            return escape(value)
        case float():
            return repr(value).removesuffix(".0")
        case _:
            return escape(json.dumps(value, ensure_ascii=False))


def initial_text() -> str:
    """Return a file that sets nothing, with the meaning and default of each repository key in comments."""
    sections = [_HEADER]
    for key in KEYS:
        if key not in USER_KEYS:
            about = (ABOUT[key].meaning, f"Value: {ABOUT[key].kind.expected}.")
            lines = [line for text in about for line in textwrap.wrap(text, 108, break_on_hyphens=False)]
            sections.append("".join(f"# {line}\n" for line in lines) + f"#{key}: {default_text(key)}\n")
    return "\n".join(sections)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file, for editors, with the description and default of every key."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "codeloupe configuration",
        "description": "Codeloupe settings in codeloupe.yaml.",
        "type": "object",
        "properties": {
            key: {**about.kind.schema, "default": _plain(about.default), "description": about.meaning}
            for key, about in ABOUT.items()
        },
        "additionalProperties": False,
    }
