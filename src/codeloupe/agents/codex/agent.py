"""The agent `codex`: the codex program, with the settings with which it reads, answers, and does nothing else.

Nothing of the reviewed repository shapes the run: no configuration, hooks, MCP servers, rules, AGENTS.md or skills.
Commands run in the program's own sandbox, without network, without our keys, and in the modes that only read without
a way to write. The program retries nothing by itself. No credential is ever read.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.agents.calls import failures as kinds
from codeloupe.agents.calls.program import (
    MAX_ARGUMENT_BYTES,
    Message,
    ProgramAgent,
    Reading,
    agent_environment,
    detail_of,
    message_on,
)
from codeloupe.agents.calls.schemas import schema_words, strict_schema, without_fillers
from codeloupe.errors import AgentError, Crashed, InvalidRequest
from codeloupe.model.agent import (
    AGENTS,
    AgentLimits,
    AgentRequest,
    AgentResult,
    PermissionMode,
    TokenUsage,
    full_prompt,
)
from codeloupe.system.json_values import parsed
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

_SESSIONS = "sessions"
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_PROVIDER = "codeloupe"
_SANDBOXES = {PermissionMode.ACCEPT_EDITS: "workspace-write", PermissionMode.BYPASS: "danger-full-access"}
# The items that are not the use of a tool.
_SAID = ("agent_message", "reasoning", "error")
# The one tool that there is: commands in a sandbox.
_SHELL = "shell"
# The program writes to its log, in addition to errors, a line for each reply and for each event that it ignores. It
# reports a status and a refusal nowhere else.
_LOG_FILTER = "error,codex_http_client::client=debug,codex_api::sse::responses=debug"
_OFF = ("analytics", "agents", "skills.bundled", "tools.experimental_request_user_input")
_FEATURES_OFF = (
    "apps", "enable_request_compression", "goals", "hooks", "image_generation", "memories", "multi_agent", "plugins",
    "shell_snapshot", "skill_search", "sleep_tool", "tool_suggest", "unbounded_connection_retries", "view_image",
)  # fmt: skip
_SETTINGS: Mapping[str, Any] = {
    "approval_policy": "never",
    "check_for_update_on_startup": False,
    "history.persistence": "none",
    "include_collaboration_mode_instructions": False,
    "project_doc_max_bytes": 0,
    "project_root_markers": [],
    "sandbox_workspace_write.exclude_slash_tmp": True,
    "shell_environment_policy.inherit": "core",
    "skills.include_instructions": False,
    "web_search": "disabled",
    **{f"{name}.enabled": False for name in _OFF},
    **{f"features.{name}": False for name in _FEATURES_OFF},
}
# The program itself looks six levels deep and into at most 2,000 directories.
_MAX_LEVELS = 8
_MAX_DIRECTORIES = 4000
_STATUS = regex(r"(?:unexpected status|last status:) (\d{3})\b")
# Lines of the log, which the program keeps because we ask for it.
_LOGGED = regex(r"^\S+ +DEBUG codex_(?:http_client|api::sse).*$", re.MULTILINE)
_LOGGED_REPLY = regex(r"^\S+ +DEBUG codex_http_client.*$", re.MULTILINE)
_LOGGED_REFUSAL = regex(
    r"^\S+ +DEBUG codex_api::sse::responses: unhandled responses event: \"response\.refusal\.done\"$", re.MULTILINE
)
_REPLIED = regex(r": Request completed method=POST .{0,2000}? status=(\d{3})\b")
_RETRY_AFTER = regex(r'"retry-after": "(\d{1,7})"')
_TRY_AGAIN_AT = regex(
    r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?(\d{1,2}:\d{2} [AP]M)", re.IGNORECASE
)
# As in: /bin/bash -lc 'ls -l'
_IN_A_SHELL = regex(r"^\S{1,200} -l?c (['\"]?)(.*)\1$", re.DOTALL)
# These words say more than a status does.
_ABOVE_STATUS = kinds.patterns(
    (r"reason: max_output_tokens", kinds.CUT_OFF),
    (r"reason: content_filter|flagged (?:for|as)\b|usage polic", kinds.REFUSED),
    (r"missing environment variable|could not be refreshed|log ?in again|sign in again", kinds.NOT_LOGGED_IN),
    (r"current quota|quota exceeded|out of credits|spend cap|upgrade to plus: ", kinds.NOT_LOGGED_IN),
    (r"context window|context_length_exceeded|maximum context length|exceeds the maximum length", kinds.TOO_LONG),
)
# Where neither tells, it is the sentence of the service about a request that it does not take, such as one for an
# unknown model: the program passes such a sentence on as it came.
_BELOW_STATUS = kinds.patterns(
    (r"usage limit|rate limit|too many requests", kinds.LIMITED),
    (r"high demand|at capacity|high load|capacity (?:is )?unavailable|overloaded", kinds.OVERLOADED),
    (r"stream disconnected|connection failed|error sending request|error while reading the server", kinds.UNREACHED),
    (r"request timed out|workspace routing discovery failed|network error|idle timeout", kinds.UNREACHED),
    (
        r"^(?:fatal|internal|sandbox) error|agent loop died|^turn aborted|^interrupted|no thread with id",
        kinds.Kind(Crashed, "failed inside", "try again; the raw output is stored"),
    ),
)
_BY_STDERR = kinds.patterns(
    (r"unexpected argument|unrecognized subcommand|invalid value .* for '--", kinds.TOO_OLD),
    (r"exceeds the maximum length", kinds.TOO_LONG),
    (r"no rollout found|no saved session|thread/resume failed|CODEX_HOME points to", kinds.UNKNOWN_SESSION),
    (r"node.{0,3}: no such file", kinds.WITHOUT_NODE),
    (r"not logged in|codex login", kinds.NOT_LOGGED_IN),
)


class CodexReading(Reading):
    """Takes the messages of one run in order, and reads its end: an answer, or which error.

    An answer is exact only if it is the one message after the last tool, nothing comes after the end of the turn, and
    no error was reported.
    """

    _ends = 0
    _failed_with: str | None = None
    _last_error = ""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._files: dict[str, None] = {}

    def take(self, message: Message) -> None:
        """Take the next message."""
        item = message.part("item")
        if message.get("type") == "item.started" and item.get("type") not in _SAID:
            self.set_output_aside()
        match message.get("type"), item.get("type"):
            case "thread.started", _:
                self.session_id = message.text("thread_id")
            case "item.started", "command_execution":
                self.tool_used(_SHELL, detail_of(_IN_A_SHELL.sub(r"\2", item.text("command")[:10_000])))
            case "item.completed", "agent_message":
                self._take_answer(item)
            case "item.completed", "file_change":
                self._take_file_change(item)
            case "item.completed", "error" if len(self.notes) < 5:
                self.notes.append(f"codex warned: {kinds.one_line(item.text('message'))}")
            case "turn.completed", _:
                usage, self.is_answered = message.part("usage"), True
                self._ends += 1
                sent, cached = usage.count("input_tokens"), usage.count("cached_input_tokens")
                written = usage.count("output_tokens")
                self.usage = TokenUsage(input_tokens=sent, cached_tokens=cached, output_tokens=written)
                self.turn_taken()
                self.tokens_spent(sent, written)
            case "turn.failed", _:
                self._failed_with, self.is_answered = message.part("error").text("message"), True
            case "error", _:
                # Most of these announce a retry, so none of them is the end.
                self._last_error = message.text("message")
                self.note_inexact(f"reported an error: {self._last_error}")

    def _take_answer(self, item: Message) -> None:
        if self.output.strip():
            self.note_inexact("gave several answers")
            self.set_output_aside()
        self.output = self.said(item, "text")

    def _take_file_change(self, item: Message) -> None:
        """Take the files that changed, as seen from the working directory."""
        folder = self.request.working_dir.resolve()
        for path in (change.text("path") for change in item.parts("changes")):
            inside = str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path
            self._files[inside] = None
            self.tool_used("apply_patch", detail_of(inside))

    def answer(self, completed: Completed, *, now: datetime | None = None) -> AgentResult:
        """The answer of a run that ended; `now` is local time. Raises the AgentError that the end means."""
        request, exit_code = self.request, completed.exit_code
        # An error that no end followed counts only where the exit code says that it was one.
        failed_with = self._failed_with
        if failed_with is None and not self.is_answered and exit_code > 0:
            failed_with = self._last_error or None
        if failed_with is not None:
            raise self.failed(failed_with, stderr=completed.stderr, now=now or datetime.now().astimezone())
        if not self.is_answered:
            raise self.cut_short(_BY_STDERR, exit_code=exit_code, stderr=_LOGGED.sub("", completed.stderr))
        if self._ends > 1:
            raise self.error(kinds.SEVERAL_RESULTS)
        asked, had = request.resume_session, self.session_id
        if asked is not None and (asked.lower() == had) is request.fork_session:
            wanted = "fork" if request.fork_session else "resume"
            what = f"was asked to {wanted} the session {asked}, but continued in the session {had}"
            raise self.error(replace(kinds.UNKNOWN_SESSION, what=what))
        if _LOGGED_REFUSAL.search(completed.stderr):
            raise self.error(kinds.REFUSED)
        if not self.output.strip():
            raise self.error(kinds.EMPTY)
        structured, schema = None, request.output_schema
        if schema is not None and strict_schema(schema) is not None:
            # The caller looks whether it conforms.
            with suppress(ValueError):
                structured = without_fillers(parsed(self.output), schema)
        if asked is not None:
            self.notes.append("codex reports the tokens of the whole resumed session")
        return self.result(completed.seconds, num_turns=1, structured=structured, files_changed=tuple(self._files))

    def failed(self, text: str, *, stderr: str, now: datetime) -> AgentError:
        """The error of a turn that failed, by the sentence about it and the log of the last reply; `now` is local."""
        *_, last = ("", *_LOGGED_REPLY.findall(stderr))
        replied, wait = _REPLIED.search(last), None
        status = int(replied[1]) if replied and int(replied[1]) >= 400 else None
        if status is not None and (asked := _RETRY_AFTER.search(last)):
            wait = float(asked[1])
        if status is None and (said := _STATUS.search(text)):
            status = int(said[1])
        kind = kinds.kind_of(text, status, _ABOVE_STATUS, _BELOW_STATUS) or kinds.INVALID
        if kind is kinds.LIMITED and wait is None:
            wait = _retry_after(text, now.replace(tzinfo=None))
        return self.error(kind, text, status=status, retry_after_seconds=wait)


def _retry_after(text: str, now: datetime) -> float | None:
    found = _TRY_AGAIN_AT.search(text)
    if found is None:
        return kinds.retry_after_in(text)
    month, day, year, moment = found.groups()
    date = f"{month} {day} {year}" if month else now.strftime("%b %d %Y")
    try:
        opens = datetime.strptime(f"{date} {moment}", "%b %d %Y %I:%M %p")  # noqa: DTZ007 - local time, as it is printed
    except ValueError:
        return None
    # A time without a date that has just passed is the minute we are in, printed without its seconds.
    if not month and opens < now - timedelta(hours=1):
        opens += timedelta(days=1)
    return max(0.0, (opens - now).total_seconds())


class CodexAgent(ProgramAgent):
    """Runs `codex exec` once for each call, with a key or else the login in the user's directory of the program.

    `base_url` has its version, such as https://host/v1; without one, OPENAI_BASE_URL or OpenAI's own. A system prompt
    replaces the program's own; what is to be appended to it goes to the model as instructions. Limits of turns and of
    money are not known to the program.
    """

    name = "codex"
    program = kinds.Program(
        name, "codex", "npm install -g @openai/codex", log_in="set OPENAI_API_KEY, or run `codex login`"
    )
    limits = AgentLimits(
        prompt=AGENTS[name].prompt_limit,
        own_tokens=5_000,
        **dict.fromkeys(("schema", "resume", "fork", "tools", "writes"), True),
    )
    reading = CodexReading
    key_names = ("CODEX_API_KEY", "OPENAI_API_KEY")
    folder_variable, folder_name, login_file = "CODEX_HOME", ".codex", "auth.json"
    tools = dict.fromkeys(PermissionMode, (_SHELL,))

    def service_of(self, request: AgentRequest | None = None) -> str | None:  # noqa: ARG002 - the same for every request
        """Where it asks, where that is another service than the program's own."""
        return self.base_url or self.source.get("OPENAI_BASE_URL") or None

    def find(self) -> Path:
        """The program itself where npm put it beside its script: the way over Node takes longer than it does."""
        script = super().find()
        package = script.resolve().parent.parent
        name = f"codex-{sys.platform}-{_MACHINES.get(platform.machine().lower(), '')}"
        places = (package.parent / name, package / "node_modules" / "@openai" / name, package)
        programs = (file for place in places for file in sorted(place.glob("vendor/*/bin/codex")))
        return next((file for file in programs if os.access(file, os.X_OK)), script)

    def _prompt_input(self, request: AgentRequest) -> str:
        """The prompt, with a schema spelled out in it where the program has no option for one."""
        schema = request.output_schema
        tail = "" if schema is None or strict_schema(schema) is not None else schema_words(schema)
        return f"{full_prompt(request)}{tail}"

    def _environment(self, request: AgentRequest, root: Path) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """The whole environment of the program. Its home and its own directory are thrown away after the call."""
        # It asks git for the state of the directory, and git would run the filters that the repository configures. So
        # its git finds no repository; the commands of the model do, since they get none of these variables.
        own = {"CODEX_HOME": str(root / "home" / ".codex"), "RUST_LOG": _LOG_FILTER, "GIT_DIR": os.devnull}
        names = (*self.key_names, "OPENAI_ORGANIZATION", "OPENAI_PROJECT", "CODEX_CA_CERTIFICATE")
        return agent_environment(self.source, root, names=names, settings=own)

    def _arguments(self, request: AgentRequest, root: Path) -> tuple[str, ...]:
        """The arguments for a request; files for it are written below `root`. Raises InvalidRequest."""
        # It reaches the user's login and sessions where a call needs them, and nothing else of the user's: it writes
        # more into its directory than it is asked to, such as that it trusts the directory it works in.
        folder = root / "home" / ".codex"
        folder.mkdir()
        if self.key_name is None:
            (folder / self.login_file).symlink_to(self.user_folder / self.login_file)
        self._link_sessions(request, folder, _SESSIONS)
        flags = ["--json", "--ignore-rules", "--skip-git-repo-check"]
        if request.append_system_prompt:
            # Text for the model goes into a file: arguments are seen by every user of the machine.
            instructions = f"developer_instructions = {toml(request.append_system_prompt)}\n"
            (folder / "config.toml").write_text(instructions, encoding="utf-8")
        if request.model is not None:
            flags.append(f"--model={request.model}")
        schema = None if request.output_schema is None else strict_schema(request.output_schema)
        if schema is not None:
            file = root / "schema.json"
            file.write_text(json.dumps(schema, default=dict), encoding="utf-8")
            flags.append(f"--output-schema={file}")
        flags += [f"--config={name}={toml(value)}" for name, value in self._settings(request, root).items()]
        if request.resume_session is None:
            return ("exec", *flags, "-")
        verb = "fork" if request.fork_session else "resume"
        return ("exec", verb, *flags, self._session_name(request.resume_session), "-")

    def _finished(self, result: AgentResult, _request: AgentRequest, root: Path) -> AgentResult:
        """The result with the model that answered, by the record of the session: the program says it nowhere else."""
        model = None
        for file in (root / "home" / ".codex" / _SESSIONS).glob(f"*/*/*/rollout-*{result.session_id}.jsonl"):
            with suppress(OSError), file.open("rb") as lines:
                for message in (message_on(line) for line in lines if b'"turn_context"' in line):
                    model = message.part("payload").text("model") or model
        return replace(result, model=model or result.model)

    def _settings(self, request: AgentRequest, root: Path) -> dict[str, Any]:
        # A provider of our own, since the retries of a built-in one cannot be set.
        provider = {"wire_api": "responses", "request_max_retries": 0, "stream_max_retries": 0}
        address = self.service_of()
        if self.key_name is None:
            # By this name, and without an address, the program finds the service of the user's subscription.
            own = {"base_url": address} if address else {}
            provider = {"name": "OpenAI", "requires_openai_auth": True, **own, **provider}
        else:
            headers = {"OpenAI-Organization": "OPENAI_ORGANIZATION", "OpenAI-Project": "OPENAI_PROJECT"}
            own = {"base_url": address or "https://api.openai.com/v1", "env_key": self.key_name}
            provider = {"name": _PROVIDER, **own, "env_http_headers": headers, **provider}
        chosen: dict[str, Any] = {
            **_SETTINGS,
            "sandbox_mode": _SANDBOXES.get(request.permission_mode, "read-only"),
            "model_provider": _PROVIDER,
            f"model_providers.{_PROVIDER}": provider,
            "projects": _without_trust(request.working_dir),
        }
        if skills := skill_files(request.working_dir):
            rules = [{"path": str(file), "enabled": False} for file in skills]
            if len(toml(rules).encode("utf-8", "surrogateescape")) > MAX_ARGUMENT_BYTES:
                raise _too_many_skills(f"there are {len(skills):,}")
            chosen["skills.config"] = rules
        if request.tools == ():
            chosen |= {"features.shell_tool": False, "features.unified_exec": False}
        if request.system_prompt is not None:
            file = root / "system-prompt.md"
            file.write_text(request.system_prompt, encoding="utf-8")
            chosen["model_instructions_file"] = str(file)
        return chosen


def toml(value: Any) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{toml(name)}={toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(toml, value)) + "]"
    # As in JSON, but for the one character that TOML wants to be escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _without_trust(working_dir: Path) -> dict[str, Any]:
    """No trust for the directory and for every one above it, of which any may be the project's root."""
    # Where it may write, the program trusts a directory of which it knows nothing, and starts what its configuration
    # names.
    start = working_dir.absolute()
    try:
        str(start.resolve()).encode()
    except UnicodeEncodeError as error:
        message = f"codex would trust {str(start)!r}, and this cannot be turned off: the path is not UTF-8"
        raise InvalidRequest(message, agent="codex", hint="use another agent, or another directory") from error
    places = (place for name in (start, start.resolve()) for place in (name, *name.parents))
    return {str(place): {"trust_level": "untrusted"} for place in places}


def skill_files(working_dir: Path) -> tuple[Path, ...]:
    """Every skill that a run in this directory could load, by both names where a link leads to it.

    The program takes `$name` anywhere in a prompt for a mention of a skill, and loads that skill's text from the
    repository, trusted or not; a diff is full of `$name`. No setting turns this off, but each skill can be turned off
    by its path. The skills of every directory above are among them, since a project's root may be any. Raises
    InvalidRequest when there are more directories than can be looked into, since some skill could stay on.
    """
    start = working_dir.absolute()
    found: dict[Path, None] = {}
    for folder in (start, *start.parents):
        for file in (*_skills_below(folder / ".agents" / "skills"), *_skills_below(folder / ".codex" / "skills")):
            found[file] = None
            with suppress(OSError, RuntimeError):
                found[file.resolve()] = None
    return tuple(found)


def _skills_below(root: Path) -> Iterator[Path]:
    # Links are followed as the program does, and a loop of them ends with the depth.
    for number, (folder, folders, files) in enumerate(os.walk(root, followlinks=True)):
        if number >= _MAX_DIRECTORIES:
            raise _too_many_skills(f"{root} has more than {_MAX_DIRECTORIES:,} directories")
        yield from (Path(folder, name) for name in sorted((*folders, *files)) if name.lower() == "skill.md")
        folders[:] = sorted(folders) if len(Path(folder).relative_to(root).parts) < _MAX_LEVELS - 1 else []


def _too_many_skills(what: str) -> InvalidRequest:
    message = f"codex would load skills of the repository that cannot be turned off: {what}"
    hint = "use another agent, or a copy of the files without .agents and .codex"
    return InvalidRequest(message, agent="codex", hint=hint)
