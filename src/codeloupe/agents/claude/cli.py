"""The agent `claude_cli`: the claude program, and all of its settings that the Agent SDK shares with it.

Nothing of the reviewed repository shapes a run: no settings, hooks, MCP servers, CLAUDE.md, slash commands or file
mentions. The file tools stay inside the working directory. Nobody is there to be asked, so what would have to be asked
is denied.

Its configuration directory is thrown away after each call, since it writes to it in any mode. A login is read from
where the user keeps it, and sessions go to the user's own directory where they are kept. The home directory is thrown
away too, but for a login that needs it: the profile of a cloud, or the key ring of macOS. No credential is ever read.

The program asks git for the state of the directory, and git would run the filters that the repository configures. So
it finds a git that knows of no repository; the commands of the model find the real one.

Anything other than one success is a failure. A success has one result, whose `subtype`, `is_error` and
`terminal_reason` all say so, and an answer. None of them is enough alone: a refused request has the subtype "success",
and an interrupted run exits with 0. An answer is exact only if the program also ended with exit code 0, and the model
stopped by itself and answered once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from codeloupe import errors
from codeloupe.agents.calls import failures as kinds
from codeloupe.agents.calls.program import (
    MAX_ARGUMENT_BYTES,
    PERSON_NAMES,
    Message,
    ProgramAgent,
    Reading,
    agent_environment,
    user_home,
)
from codeloupe.model.agent import (
    AGENTS,
    AgentLimits,
    AgentRequest,
    AgentResult,
    PermissionMode,
    TokenUsage,
    full_prompt,
)
from codeloupe.system.process import Completed, find_program
from codeloupe.system.regex import regex

_READING = ("Read", "Grep", "Glob")
_TOOLS = {
    **dict.fromkeys(PermissionMode, _READING),
    PermissionMode.ACCEPT_EDITS: (*_READING, "Edit", "Write"),
    PermissionMode.BYPASS: (*_READING, "Edit", "Write", "Bash"),
}
_LOG_IN = "set ANTHROPIC_API_KEY, or start {program} in a terminal and log in with /login"
# What the short names of models stand for.
_ALIAS_NAMES = ("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
_SERVICE_NAMES = (
    "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_BETAS", "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL", *_ALIAS_NAMES, "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
)  # fmt: skip
_CLOUD_NAMES = {
    "CLAUDE_CODE_USE_BEDROCK": (
        "ANTHROPIC_BEDROCK_BASE_URL", "CLAUDE_CODE_SKIP_BEDROCK_AUTH", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_CONFIG_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_REGION",
        "AWS_ROLE_ARN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ),
    "CLAUDE_CODE_USE_VERTEX": (
        "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_VERTEX_PROJECT_ID", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "CLOUDSDK_CONFIG",
        "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT",
    ),
    "CLAUDE_CODE_USE_FOUNDRY": (
        "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE", "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID",
    ),
}  # fmt: skip
_PLACE_ENDINGS = ("_BEDROCK", "_VERTEX", "_FOUNDRY", "_URL", "_REGION", "_PROFILE", "_PROJECT", "_ID", "_RESOURCE")
_BEFORE_COMMANDS = "before-commands.sh"
_NO_GIT = "no-git"
_ON = (
    "DISABLE_ERROR_REPORTING", "DISABLE_BUG_COMMAND", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS", "CLAUDE_CODE_DISABLE_CLAUDE_MDS", "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY", "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK",
)  # fmt: skip
# All tools are there from the start: without the last one, the program adds one that stands for those to load later.
_SETTINGS = {**dict.fromkeys(_ON, "1"), "MAX_STRUCTURED_OUTPUT_RETRIES": "2", "ENABLE_TOOL_SEARCH": "false"}
_TOO_DEAR = kinds.Kind(errors.BudgetExhausted, "reached the cost limit of the call", "raise the limit, or ask for less")
_UNFIT = kinds.Kind(
    errors.OutputInvalid, "gave no answer that fits the schema", "make the schema simpler, or ask another model"
)
# By the reason, or by the subtype where there is none.
_BY_REASON = {
    **dict.fromkeys(("max_turns", "error_max_turns"), kinds.TURNS),
    **dict.fromkeys(("budget_exhausted", "error_max_budget_usd"), _TOO_DEAR),
    **dict.fromkeys(("structured_output_retry_exhausted", "error_max_structured_output_retries"), _UNFIT),
    **dict.fromkeys(("prompt_too_long", "blocking_limit"), kinds.TOO_LONG),
}
_BY_CAUSE = {"connection_failed": kinds.UNREACHED, "max_output_tokens": kinds.CUT_OFF}
# Only where no field tells. These are sentences of the program or the service, not of the model: it has not answered.
_BY_TEXT = kinds.patterns(
    ("not logged in|invalid api key|please run /login|credit balance is too low", kinds.NOT_LOGGED_IN),
    ("usage limit|limit reached|hit your limit", kinds.LIMITED),
    ("overloaded", kinds.OVERLOADED),
    ("prompt is too long", kinds.TOO_LONG),
    ("no conversation found|requires a valid session", kinds.UNKNOWN_SESSION),
)
_BY_STDERR = kinds.patterns(
    ("unknown option|allowed choices are", kinds.TOO_OLD),
    ("no conversation found|requires a valid session", kinds.UNKNOWN_SESSION),
    (
        "root/sudo privileges",
        kinds.Kind(errors.InvalidRequest, "does not bypass permissions for the user root", "run as another user"),
    ),
    (
        "not a valid json schema",
        kinds.Kind(errors.InvalidRequest, "does not accept this schema", "use a simpler schema"),
    ),
    ("exceeds 10mb", kinds.TOO_LONG),
)
_RESETS_AT = regex(r"limit reached\|(\d{9,11})\b")
# Each sort of token: in the totals by model, in a message, and what one costs beside one of the input, the same for all
# of the vendor's models.
_TOKENS = (
    ("inputTokens", "input_tokens", 1.0),
    ("cacheCreationInputTokens", "cache_creation_input_tokens", 1.25),
    ("cacheReadInputTokens", "cache_read_input_tokens", 0.1),
    ("outputTokens", "output_tokens", 5.0),
)
_DETAIL_NAMES = ("file_path", "path", "pattern", "command", "url", "query", "notebook_path")
_SCHEMA_TOOL = "StructuredOutput"
# Why a model stops that has said all it had to say.
_WHOLE = ("end_turn", "stop_sequence", "tool_use", None)
_REFUSAL = "refusal"
_MAX_CHARACTERS = 1024 * 1024


def _spent_in(result: Message, *, resumed: bool) -> tuple[float | None, TokenUsage, bool]:
    """What the run took, by its last message, and whether the cost is its share of a session's, by its tokens.

    The totals are those of the session: of one that was resumed they hold what earlier runs took and paid for already.
    """
    cost, own, models = result.number("total_cost_usd"), _counts(result.part("usage")), result.part("modelUsage")
    if not models:
        return cost, _usage(own), False
    # The tokens beside the list by model leave some out, such as those of the program's own questions.
    total = [sum(counts) for counts in zip(*(_counts(models.part(name)) for name in models), strict=True)]
    whole, share = (sum(c * price for c, (*_, price) in zip(counts, _TOKENS, strict=True)) for counts in (total, own))
    if not resumed or not 0 < share < whole:
        return cost, _usage(total), False
    return None if cost is None else cost * share / whole, _usage(own), cost is not None


def _counts(entry: Message) -> list[int]:
    return [entry.count(total) or entry.count(own) for total, own, _ in _TOKENS]


def _usage(counts: list[int]) -> TokenUsage:
    return TokenUsage(input_tokens=sum(counts[:3]), cached_tokens=counts[2], output_tokens=counts[3])


class ClaudeReading(Reading):
    """Takes the messages of one run in order. `last` is its result, once it came."""

    goes_on = True
    last: Message | None = None
    quota_opens_at: float | None = None
    _message_id = ""
    _sent = _written = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # The values that the model gave by the tool for structured output, whether the program accepted them or not.
        self._given: list[Any] = []
        # The texts since the last tool call, by message.
        self._said: dict[str, str] = {}

    def take(self, message: Message) -> None:
        """Take the next message. Raise the AgentError of a second result, or of a request that is about to be retried.

        Retries are not the program's business, but only one that may retry tells how long the service wants us to
        wait: so it may, and is stopped here.
        """
        self.session_id = self.session_id or message.text("session_id")
        match message.get("type"), message.get("subtype"):
            case "assistant", _:
                said = message.part("message")
                if said and said.get("model") != "<synthetic>":
                    self._take_message(said, is_own=message.get("parent_tool_use_id") is None)
            case "result", _:
                if self.last is not None:
                    raise self._second_result(self.last, message)
                self.last, self.is_answered = message, True
                cost, usage, _ = _spent_in(message, resumed=self.request.resume_session is not None)
                if usage.input_tokens or cost:
                    self.tokens_spent(usage.input_tokens, usage.output_tokens, cost)
            case "system", "api_retry":
                self._refuse_retry(message)
            case "system", "model_fallback":
                models = f"{message.text('original_model')} to {message.text('fallback_model')}"
                why = message.text("trigger") or "no reason was given"
                self.notes.append(f"{self.agent} switched from the model {models}: {why}")
            case "rate_limit_event", _:
                info = message.part("rate_limit_info")
                if info.get("status") == "rejected":
                    self.quota_opens_at = info.count("resetsAt") or None

    def answer(self, completed: Completed, *, now: float | None = None) -> AgentResult:
        """The answer of a run that ended; `now` is in seconds since the epoch. Raises the AgentError that it means."""
        if self.last is None:
            raise self.without_result(exit_code=completed.exit_code, stderr=completed.stderr)
        return self.answer_in(self.last, seconds=completed.seconds, now=now)

    def without_result(self, *, exit_code: int, stderr: str) -> errors.AgentError:
        """The error of a run without a last message."""
        self.output, self.model = "", None
        return self.cut_short(_BY_STDERR, exit_code=exit_code, stderr=stderr[-4000:])

    def answer_in(self, result: Message, *, seconds: float, now: float | None = None) -> AgentResult:
        """The answer in a run's last message. Raises the AgentError that it means."""
        is_resumed = self.request.resume_session is not None
        self.cost_usd, self.usage, is_share = _spent_in(result, resumed=is_resumed)
        self.session_id = result.text("session_id") or self.session_id
        self.model = self.model or result.busiest("modelUsage")
        self.raw_output = _raw(result)
        structured, output = result.get("structured_output"), result.text("result")
        status, sentences = result.count("api_error_status") or None, result.get("errors")
        errors = (error for error in (sentences if isinstance(sentences, list) else ()) if isinstance(error, str))
        text = output or "; ".join(filter(None, errors))
        if not _is_success(result):
            self._use_last_given()
            opens_at = self.quota_opens_at
            if opens_at is None and (resets := _RESETS_AT.search(text)):
                opens_at = int(resets[1])
            wait = None if opens_at is None else max(0.0, opens_at - (time.time() if now is None else now))
            # Without an error the text is the model's, and may say "overloaded" about a function.
            program_text = "" if result.get("is_error") is False else text
            raise self.error(_kind(program_text, status, result), text, status=status, retry_after_seconds=wait)
        if result.get("stop_reason") == _REFUSAL:
            raise self.error(kinds.REFUSED, text, status=status)
        if not output.strip() and structured is None:
            raise self.error(kinds.EMPTY, text, status=status)
        self._compare_answers(output, structured)
        if result.get("stop_reason") not in _WHOLE:
            self.note_inexact(f"did not end its answer normally: {result.get('stop_reason')}")
        if is_share:
            note = "reports the cost of the whole session; this call's share is estimated from its tokens"
            self.notes.append(f"{self.agent} {note}")
        denials = (
            f"{one.text('tool_name')} {one.part('tool_input').detail(_DETAIL_NAMES)}".strip()
            for one in result.parts("permission_denials")
        )
        return self.result(
            seconds,
            output=output or json.dumps(structured, ensure_ascii=False),
            structured=structured,
            **({"duration_ms": given} if (given := result.count("duration_ms")) else {}),
            num_turns=result.count("num_turns"),
            permission_denials=tuple(denials),
        )

    def _take_message(self, said: Message, *, is_own: bool) -> None:
        """A message of the model itself, or of one that it had asked. What is said before a tool is not the answer."""
        if is_own and (identity := said.text("id")) != self._message_id:
            self._message_id = identity
            self.model = said.text("model") or self.model
            self.turn_taken()
            new = _usage(_counts(said.part("usage")))
            self._sent += new.input_tokens
            self._written += new.output_tokens
            self.tokens_spent(self._sent, self._written)
        for block in said.parts("content"):
            is_tool, is_answer = block.get("type") == "tool_use", block.get("name") == _SCHEMA_TOOL
            if is_tool and not is_answer:
                self.tool_used(block.text("name"), block.part("input").detail(_DETAIL_NAMES))
            if is_own and block.get("type") == "text":
                # A message that was cut off is continued by the next.
                text = self.said(block, "text")
                self.output = (self.output + text)[:_MAX_CHARACTERS]
                self._said[said.text("id")] = self._said.get(said.text("id"), "") + text
            elif is_own and is_tool:
                self.set_output_aside()
                self._said.clear()
                if is_answer:
                    self._given.append(block.get("input"))

    def _use_last_given(self) -> None:
        """Make the last value that was given the answer of a run that failed."""
        if not self._given:
            return
        self.set_output_aside()
        *earlier, last = self._given
        for value in earlier:
            self.add_other_answer(_json(value))
        self.output = _json(last)[:_MAX_CHARACTERS]

    def _compare_answers(self, output: str, structured: Any) -> None:
        """Keep all that was said beside the answer of a run that succeeded, and note if it answered several times."""
        if any(text.strip() not in ("", output.strip()) for text in self._said.values()):
            if structured is None:
                self.note_inexact("gave several answers")
            self.set_output_aside()
        if self._given and self._given != [structured]:
            self.note_inexact("gave several answers")
        for value in self._given:
            if value != structured:
                self.add_other_answer(_json(value))

    def _second_result(self, first: Message, second: Message) -> errors.AgentError:
        """Return the error of a run with two results, at the higher of their costs, which are running totals."""
        dearer = max(first, second, key=lambda result: result.number("total_cost_usd") or 0.0)
        self.cost_usd, self.usage, _ = _spent_in(dearer, resumed=self.request.resume_session is not None)
        return self.error(kinds.SEVERAL_RESULTS, raw_output=f"{_raw(first)}\n{_raw(second)}")

    def _refuse_retry(self, event: Message) -> None:
        status = event.count("error_status") or None
        if self.request.fallback_model is not None and status == 529:
            return
        delay_ms = event.count("retry_delay_ms")
        # The program waits half a second before its first retry, and a little at random; more was asked for by the
        # service.
        asked = delay_ms / 1000 if delay_ms > 700 else None
        if self.quota_opens_at is not None:
            asked = max(asked or 0.0, self.quota_opens_at - time.time())
        text = "the connection failed, or was interrupted" if status is None else event.text("error")
        kind, raw = _kind(text, status, Message(terminal_reason="api_error")), _raw(event)
        raise self.error(kind, text, status=status, retry_after_seconds=asked, raw_output=raw, output="", model=None)


def _is_success(result: Message) -> bool:
    has_ended_well = result.get("terminal_reason") in ("completed", None)
    return result.get("subtype") == "success" and result.get("is_error") is False and has_ended_well


def _kind(text: str, status: int | None, result: Message) -> kinds.Kind:
    reason = result.text("terminal_reason")
    subtype = result.text("subtype")
    if not reason or (reason == "completed" and subtype != "success"):
        reason = subtype or "no reason is known"
    if known := _BY_REASON.get(reason):
        return known
    if result.get("stop_reason") == _REFUSAL:
        return kinds.REFUSED
    by_status = kinds.kind_of_status(status)
    # The service tells some of what is wrong with an account or a prompt by a status for wrong requests.
    if by_status is not None and by_status is not kinds.INVALID:
        return by_status
    if known := _BY_CAUSE.get(result.text("api_error")) or kinds.kind_in(text, _BY_TEXT) or by_status:
        return known
    # A reply that is empty, or not what the API speaks, has no field of its own.
    if reason == "api_error":
        return kinds.UNREACHED
    return kinds.Kind(errors.Crashed, f"ended without an answer ({reason})", "try again; the raw output is stored")


def _raw(message: Message) -> str:
    return _json(message)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def bundled_program() -> Path | None:
    """The program inside the Agent SDK's package, which is not imported for this."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    found = find_program(str(Path(spec.origin).parent / "_bundled" / "claude"))
    return None if found is None else Path(found)


class ClaudeAgent(ProgramAgent):
    """What both claude agents share. Without a configured program, the one in the Agent SDK's package will do too."""

    limits = AgentLimits(
        prompt=AGENTS["claude_cli"].prompt_limit,
        own_tokens=2_300,
        **dict.fromkeys(
            ("schema", "turns", "budget", "resume", "fork", "tools", "writes", "fallback", "confined"), True
        ),
    )
    reading = ClaudeReading
    model_variable = "ANTHROPIC_MODEL"
    key_names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    folder_variable, folder_name, login_file = "CLAUDE_CONFIG_DIR", ".claude", ".credentials.json"

    @property
    def default_model(self) -> str | None:
        """Which model is asked for when a request names none, or only a short name, as far as the environment tells."""
        aliases = (f"{name}={self.source[name]}" for name in _ALIAS_NAMES if self.source.get(name))
        return " ".join(filter(None, (self.source.get("ANTHROPIC_MODEL"), *aliases))) or None

    def service_of(self, _request: AgentRequest) -> str | None:
        """Which service is asked, as far as the settings and the environment tell."""
        places = {"ANTHROPIC_BASE_URL": self.base_url or self.source.get("ANTHROPIC_BASE_URL")}
        for cloud, names in _CLOUD_NAMES.items():
            if self.source.get(cloud):
                places |= {name: self.source.get(name) for name in (cloud, *names) if name.endswith(_PLACE_ENDINGS)}
        return " ".join(f"{name}={value}" for name, value in places.items() if value) or None

    def find(self) -> Path:
        """The configured program, else the one on the PATH or in the Agent SDK's package. Raises NotInstalled."""
        try:
            return super().find()
        except errors.NotInstalled:
            if self.configured or (bundled := bundled_program()) is None:
                raise
            return bundled

    async def _usable_program(self) -> Path:
        """The program, with or without a login that we know of: it tells at once when it has none."""
        return self.find()

    def _has_login(self) -> bool | None:
        has_login = any(self.source.get(name) for name in _CLOUD_NAMES) or super()._has_login()
        # On a Mac the login is in the system's key ring, which would ask the user.
        return has_login or (None if sys.platform == "darwin" else has_login)

    def _how_to_log_in(self, path: Path) -> str:
        """Where the program is only in the Agent SDK's package, a person has to start it by its path."""
        return _LOG_IN.format(program="claude" if find_program("claude") is not None else path)

    def _prompt_input(self, request: AgentRequest) -> str:
        """The prompt as text: one that begins with a slash would be a command of the program."""
        prompt = full_prompt(request)
        return f"The request:\n{prompt}" if prompt.lstrip()[:1] in ("/", "-") else prompt

    def _environment(self, request: AgentRequest, root: Path) -> dict[str, str]:
        source, home = self.source, root / "home"
        clouds = [name for name in _CLOUD_NAMES if source.get(name)]
        names = [*self.key_names, *_SERVICE_NAMES, *clouds, *(name for cloud in clouds for name in _CLOUD_NAMES[cloud])]
        own = {
            **_SETTINGS,
            "CLAUDE_CONFIG_DIR": str(root / "home" / ".claude"),
            "CLAUDE_ENV_FILE": str(root / _BEFORE_COMMANDS),
            # One that never retries does not tell how long the service wants us to wait; see ClaudeReading.take. It
            # switches to the fallback model after three refusals.
            "CLAUDE_CODE_MAX_RETRIES": "1" if request.fallback_model is None else "2",
        }
        if self.base_url:
            own["ANTHROPIC_BASE_URL"] = self.base_url
        has_key, is_mac = self.key_name is not None, sys.platform == "darwin"
        if not has_key:
            # Where it is not set and nothing else is, the key ring knows the login by a name of its own.
            is_in_key_ring = is_mac and not source.get("CLAUDE_CONFIG_DIR")
            own["CLAUDE_SECURESTORAGE_CONFIG_DIR"] = "" if is_in_key_ring else str(self.user_folder)
        if clouds or not has_key:
            names += PERSON_NAMES
            home = user_home(source) if clouds or is_mac else home
        made = agent_environment(source, root, names=names, settings=own, home=home)
        return {**made, "PATH": os.pathsep.join((str(root / _NO_GIT), made.get("PATH", os.defpath)))}

    def _make_private_folder(self, request: AgentRequest, root: Path) -> None:
        """Make the configuration directory of one call, with a link to the user's sessions where it needs them."""
        folder = root / "home" / ".claude"
        folder.mkdir()
        no_git = root / _NO_GIT / "git"
        no_git.parent.mkdir()
        no_git.write_text("#!/bin/sh\nexit 128\n", encoding="utf-8")
        no_git.chmod(0o700)
        (root / _BEFORE_COMMANDS).write_text(f'export PATH="${{PATH#{no_git.parent}:}}"\n', encoding="utf-8")
        self._link_sessions(request, folder, "projects")

    def _safe_flags(self, request: AgentRequest) -> dict[str, str | None]:
        """The flags that the Agent SDK has no option for. None stands for a flag without a value."""
        flags: dict[str, str | None] = {"permission-prompts": "none", "disable-slash-commands": None}
        if request.permission_mode is not PermissionMode.BYPASS:
            flags["restricted"] = None
        if not self._keeps_session(request):
            flags["no-session-persistence"] = None
        return flags

    def _schema_text(self, request: AgentRequest) -> str | None:
        """The schema as one argument. Raises InvalidRequest when it is too large for one."""
        if request.output_schema is None:
            return None
        # Without the draft's name, since the program knows no other than its own.
        schema = {name: value for name, value in request.output_schema.items() if name != "$schema"}
        text = json.dumps(schema, default=dict)
        if len(text) > MAX_ARGUMENT_BYTES:
            message = f"the schema has {len(text):,} bytes; {self.name} accepts at most {MAX_ARGUMENT_BYTES:,}"
            raise self._invalid(message, "use a smaller schema")
        return text


def tools_for(request: AgentRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tools that exist for the model, and rules such as `Bash(git log:*)` for what is allowed without asking."""
    if request.tools is None:
        return _TOOLS[request.permission_mode], ()
    names = dict.fromkeys(tool.partition("(")[0] for tool in request.tools)
    return tuple(names), tuple(tool for tool in request.tools if "(" in tool)


def prompt_files(request: AgentRequest, folder: Path) -> dict[str, str]:
    """System prompts as files: they can be longer than an argument, and arguments are seen by every user."""
    texts = {"system-prompt-file": request.system_prompt, "append-system-prompt-file": request.append_system_prompt}
    given = {flag: text for flag, text in texts.items() if text is not None}
    for flag, text in given.items():
        (folder / f"{flag}.txt").write_text(text, encoding="utf-8")
    return {flag: str(folder / f"{flag}.txt") for flag in given}


class ClaudeCliAgent(ClaudeAgent):
    """Runs `claude` once for each call."""

    name = "claude_cli"
    program = kinds.Program(
        *(name, "claude", f"npm install -g @anthropic-ai/claude-code, or {errors.install_command('claude')}"),
        log_in=_LOG_IN.format(program="claude"),
    )

    def _arguments(self, request: AgentRequest, root: Path) -> tuple[str, ...]:
        """Each value is bound to its flag by "=", so that none can be taken for another flag or swallow one."""
        self._make_private_folder(request, root)
        names, rules = tools_for(request)
        given: dict[str, Any] = {
            "allowed-tools": ",".join(rules) or None,
            "model": request.model,
            "fallback-model": request.fallback_model,
            "max-turns": request.max_turns,
            "max-budget-usd": request.max_budget_usd,
            "json-schema": self._schema_text(request),
            "resume": request.resume_session,
        }
        flags: dict[str, Any] = {
            "print": None,
            "verbose": None,
            "output-format": "stream-json",
            "setting-sources": "",
            "strict-mcp-config": None,
            "tools": ",".join(names),
            "permission-mode": request.permission_mode.value,
            **self._safe_flags(request),
            **prompt_files(request, root),
            **{name: value for name, value in given.items() if value is not None},
        }
        if request.resume_session is not None and request.fork_session:
            flags["fork-session"] = None
        if request.idle_timeout_seconds is not None:
            # With the pieces of an answer as signs of life, silence means that nothing happens.
            flags["include-partial-messages"] = None
        return tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items())
