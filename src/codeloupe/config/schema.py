"""The settings: every key with its kind, its default and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, overload

from msgspec import Struct
from msgspec.structs import force_setattr

from codeloupe.config.groups import COMMIT_EXPERTS, INSTRUCTIONS, OWN_EXPERTS
from codeloupe.config.kinds import (
    ARGUMENTS,
    BOOLEAN,
    BRANCH,
    COMMAND,
    DOLLARS,
    NAMES,
    PASSES,
    PATTERNS,
    SECONDS,
    SEVERITY,
    TEXT,
    WHOLE_NUMBER,
    Kind,
    Wrong,
    comma_list,
    in_words,
    list_of,
    names_of,
    one_of,
    optional,
)
from codeloupe.config.problems import path_in_words, quote
from codeloupe.errors import ConfigError
from codeloupe.model.agents import AGENT_NAMES, REVIEWER_NAMES
from codeloupe.model.material import PathInstruction
from codeloupe.model.review import UNREAD_CLASSES
from codeloupe.model.severity import Severity
from codeloupe.model.unit import Effort

SeverityWord = Literal["critical", "high", "medium", "low", "P0", "P1", "P2", "P3"]
AgentName = Literal["agent_sdk", "claude_cli", "codex", "gemini", "api"]
ReviewerName = Literal["agent_sdk", "claude_cli", "codex", "gemini", "api", "cerberus", "command", "offline"]
Lane = Literal["agent", "offline"]

_AGENTS = list_of(one_of(*AGENT_NAMES), f"a list of {in_words(AGENT_NAMES)}", from_text=comma_list, least=1)
_FAIL_OR_PASS = one_of("fail", "pass")
_LIMIT = optional(WHOLE_NUMBER)
_SOME_TEXT = optional(TEXT)
_NO_EXPERTS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
_NO_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType({})


_Value = TypeVar("_Value")
_Given = TypeVar("_Given")

if TYPE_CHECKING:

    class ReadAs(Generic[_Value, _Given]):
        """The type of a field that is read when it is set: it holds a value, and also takes what stands in a file."""

        @overload
        def __get__(self, settings: None, kind: type) -> ReadAs[_Value, _Given]: ...
        @overload
        def __get__(self, settings: object, kind: type) -> _Value: ...
        def __get__(self, settings: object, kind: type) -> Any: ...
        def __set__(self, settings: object, value: _Value | _Given) -> None: ...


def default(value: object) -> Any:
    """A default as it is. A type checker would take it for a field's type, which is that of its descriptor."""
    return value


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that shapes a review. A wrong value raises ConfigError; lists and words are read as from a file.

    `own_experts` are definitions, by name and key, as they stand in a file.
    """

    base_branch: str | None = None
    include: ReadAs[tuple[str, ...], list[str]] = default(())
    exclude: ReadAs[tuple[str, ...], list[str]] = default(())
    fail_on: ReadAs[Severity, SeverityWord] = default(Severity.HIGH)
    min_severity: ReadAs[Severity, SeverityWord] = default(Severity.LOW)
    on_incomplete: Literal["fail", "pass"] = "fail"
    on_parse_error: Literal["fail", "pass"] = "fail"
    reviewer_type: Literal["auto"] | ReviewerName = "auto"
    reviewers: ReadAs[tuple[ReviewerName, ...], list[ReviewerName]] = default(())
    lanes: ReadAs[tuple[Lane, ...], list[Lane]] = default(("agent",))
    effort: ReadAs[Effort, Literal["low", "medium", "high"]] = default(Effort.MEDIUM)
    experts: ReadAs[tuple[str, ...], list[str]] = default(())
    own_experts: Mapping[str, Mapping[str, Any]] = _NO_EXPERTS
    experts_folder: str | None = None
    commit_experts: Mapping[str, tuple[str, ...]] = _NO_NAMES
    instructions: tuple[PathInstruction, ...] = ()
    guidance: bool = True
    keep_history: bool = True
    passes: int = 1
    verify: bool = True
    max_file_bytes: int = 1_000_000
    max_file_lines: int = 20_000
    timeout_seconds: float = 300.0
    review_timeout_seconds: float = 600.0
    skip_generated: bool = True
    skip_vendored: bool = True
    skip_lock_files: bool = True
    skip_minified: bool = True
    accept_unread: tuple[str, ...] = ()
    untrusted: bool = False
    agents: ReadAs[tuple[AgentName, ...], list[AgentName]] = default(("agent_sdk", "claude_cli", "codex", "gemini"))
    model: str | None = None
    agent_timeout_seconds: float = 1800.0
    agent_sdk_review_timeout: float = 600.0
    agent_sdk_reviewer_model: str | None = None
    concurrency: int = 5
    calls_per_minute: int | None = None
    max_budget_usd: float | None = None
    max_tokens: int | None = None
    max_requests: int | None = None
    wait_for_quota: bool = False
    keep_sessions: bool = False
    mask_prompts: bool = True
    claude_path: str | None = None
    codex_path: str | None = None
    gemini_path: str | None = None
    review_command: ReadAs[tuple[str, ...], list[str]] = default(())
    review_gate_path: str | None = None
    review_gate_arguments: ReadAs[tuple[str, ...], list[str]] = default(())
    api_model: str | None = None
    api_base_url: str | None = None
    allow_bypass: bool = False

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, key) for key in KEYS if key not in ("own_experts", "commit_experts")))

    def __post_init__(self) -> None:
        for key, about in _ABOUT.items():
            value = getattr(self, key)
            try:
                force_setattr(self, key, about.kind.read(value))
            except Wrong as wrong:
                first = wrong.mistakes[0]
                found = f", found {quote(repr(value))}" if first.found else ""
                message = f"{path_in_words(key, first.place)}: {first.what}{found}"
                raise ConfigError(message, hint="`codeloupe config schema` describes every key") from None


class _About(NamedTuple):
    kind: Kind
    meaning: str


_ABOUT = {
    "base_branch": _About(
        optional(BRANCH), "The branch a change is compared with. Not set: origin/HEAD, or else main, master or develop."
    ),
    "include": _About(PATTERNS, "Review only files that match one of these patterns. Empty: review every file."),
    "exclude": _About(PATTERNS, "Skip files that match one of these patterns, even if `include` names them."),
    "fail_on": _About(SEVERITY, "A finding this bad or worse fails the review (exit code 1)."),
    "min_severity": _About(SEVERITY, "Report only findings this bad or worse."),
    "on_incomplete": _About(
        _FAIL_OR_PASS, "What a review that could not cover everything means for the exit code: fail (3) or pass (0)."
    ),
    "on_parse_error": _About(
        _FAIL_OR_PASS, "What an answer that cannot be read means to a program that calls codeloupe as its reviewer."
    ),
    "reviewer_type": _About(
        one_of("auto", *REVIEWER_NAMES),
        "Who reviews. auto: the first of `agents` that can be used here, else offline, the analysers that come with "
        "codeloupe. command: the program in `review_command`. cerberus: the review-gate.",
    ),
    "reviewers": _About(
        names_of(*REVIEWER_NAMES),
        "Several reviewers at once, whose findings are merged. Takes the place of `reviewer_type` when set.",
    ),
    "lanes": _About(
        names_of("agent", "offline", least=1),
        "What runs: agent (the chosen reviewer), offline (the analysers), or both.",
    ),
    "effort": _About(
        one_of(*(effort.value for effort in Effort), meaning=Effort),
        "How finely a change is cut for the agent: small pieces find more and cost more.",
    ),
    "experts": _About(
        NAMES, "Review once under each of these checklists. Empty: once, under the checklist that fits the files."
    ),
    "own_experts": _About(
        OWN_EXPERTS,
        "Checklists of your own for `experts`: by name, each with a focus, and perhaps description, brief, "
        "sceptical_of, do_not_flag, paths and severity_guide.",
    ),
    "experts_folder": _About(_SOME_TEXT, "A folder on this machine with more checklists, one YAML file each."),
    "commit_experts": _About(
        COMMIT_EXPERTS,
        "Which checklists a sweep over commits uses, by the category of a commit: bug_fix, feature, refactor, "
        "test_change, documentation, chore or other. A category that is not named keeps its own.",
    ),
    "instructions": _About(INSTRUCTIONS, "Instructions to the reviewer for files that match some patterns."),
    "guidance": _About(BOOLEAN, "Tell the reviewer what REVIEW.md, AGENTS.md and CLAUDE.md nearest to a file say."),
    "keep_history": _About(BOOLEAN, "Save each review on this machine, so that the next one knows what is new."),
    "passes": _About(PASSES, "Review this many times, in different orders; findings seen more than once rank higher."),
    "verify": _About(
        BOOLEAN, "Verify each critical and high finding: an agent that can read the code tries to refute it."
    ),
    "max_file_bytes": _About(WHOLE_NUMBER, "Skip files larger than this many bytes."),
    "max_file_lines": _About(WHOLE_NUMBER, "Skip files with more changed lines than this."),
    "timeout_seconds": _About(SECONDS, "End an analyser after this many seconds."),
    "review_timeout_seconds": _About(
        SECONDS, "End a reviewing call of an agent after this many seconds, all attempts together."
    ),
    "skip_generated": _About(BOOLEAN, "Skip files that a program generated."),
    "skip_vendored": _About(BOOLEAN, "Skip copies of other projects, such as vendor/."),
    "skip_lock_files": _About(BOOLEAN, "Skip the lock files of package managers."),
    "skip_minified": _About(BOOLEAN, "Skip minified scripts and style sheets."),
    "accept_unread": _About(
        names_of(*UNREAD_CLASSES),
        "Which kinds of files may stay unread without making the review incomplete. Media and fonts always may; of a "
        "trusted change all but too_large; of an untrusted one none but those that are named here.",
    ),
    "untrusted": _About(
        BOOLEAN,
        "Review a change by somebody you do not trust: configuration comes from the base branch, suppressions in the "
        "code are ignored, and whatever was not read makes the review incomplete (see `accept_unread`).",
    ),
    "agents": _About(
        _AGENTS,
        "Which agents to ask, in this order: the next one if one is not installed, not logged in or out of quota.",
    ),
    "model": _About(_SOME_TEXT, "The model to ask for. Not set: the agent's own default."),
    "agent_timeout_seconds": _About(SECONDS, "End an agent call after this many seconds, all attempts together."),
    "agent_sdk_review_timeout": _About(
        SECONDS, "End a reviewing call of the Agent SDK after this many seconds, all attempts together."
    ),
    "agent_sdk_reviewer_model": _About(_SOME_TEXT, "The model that reviews with the Agent SDK. Not set: `model`."),
    "concurrency": _About(WHOLE_NUMBER, "How many agent calls may run at a time."),
    "calls_per_minute": _About(_LIMIT, "How many agent calls may start in a minute."),
    "max_budget_usd": _About(optional(DOLLARS), "Stop before a run costs more than this many dollars."),
    "max_tokens": _About(_LIMIT, "Stop before a run uses more tokens than this."),
    "max_requests": _About(_LIMIT, "Stop before a run makes more agent calls than this."),
    "wait_for_quota": _About(BOOLEAN, "Wait until a quota opens again, if it does within the time of the call."),
    "keep_sessions": _About(
        BOOLEAN, "Let agents keep their sessions on this machine, so that a call can continue one."
    ),
    "mask_prompts": _About(BOOLEAN, "Mask secrets of known forms in what is sent to agents."),
    "claude_path": _About(_SOME_TEXT, "The claude program. Not set: found on the PATH."),
    "codex_path": _About(_SOME_TEXT, "The codex program. Not set: found on the PATH."),
    "gemini_path": _About(_SOME_TEXT, "The gemini program. Not set: found on the PATH."),
    "review_command": _About(
        COMMAND, "The program of the reviewer `command`, with its arguments. It reads a diff and prints findings."
    ),
    "review_gate_path": _About(
        _SOME_TEXT, "The review-gate program of the reviewer `cerberus`. Not set: found on the PATH."
    ),
    "review_gate_arguments": _About(ARGUMENTS, "More arguments for the review-gate."),
    "api_model": _About(_SOME_TEXT, "The model of the api agent with its provider, such as anthropic:claude-opus-4-8."),
    "api_base_url": _About(
        _SOME_TEXT, "The address of an OpenAI-compatible service for the api agent (Ollama, vLLM, ...)."
    ),
    "allow_bypass": _About(BOOLEAN, "Let an agent run any command without asking, when a call asks for that by name."),
}
# A repository must not choose which program runs on the machine, which of its folders is read, or where a key is sent.
USER_KEYS = frozenset(
    {
        "claude_path",
        "codex_path",
        "gemini_path",
        "review_command",
        "review_gate_path",
        "review_gate_arguments",
        "experts_folder",
        "api_base_url",
        "allow_bypass",
    }
)
KEYS: tuple[str, ...] = tuple(_ABOUT)


def kind_of(key: str) -> Kind:
    """The kind of a key's value. Raises KeyError for an unknown key."""
    return _ABOUT[key].kind


def description_of(key: str) -> str:
    """What a key means, in a sentence or two. Raises KeyError for an unknown key."""
    return _ABOUT[key].meaning
