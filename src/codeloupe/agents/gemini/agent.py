"""The agent `gemini`: the gemini program, with the settings with which it reads, answers, and does nothing else.

It runs in a home directory that is thrown away and never trusts the directory it works in, so nothing of the reviewed
repository shapes the run: no settings, `.env`, hooks, MCP servers, extensions, skills, commands or GEMINI.md. The
tools it is given need no permission and stay inside that directory; it has no others. It retries nothing by itself.
No credential is ever read: a login of the program is reached by a link.

It reads every file that is mentioned as `@path`, and the directory of that name with all its files; a diff is full of
`@`. No setting turns this off. So an invisible character is put after each `@`, which makes it the name of no file,
and the model hears of it.

An exit code of 0 tells nothing: the program ends with it also when it was ended from outside, when the service sent
nothing, when it sent nothing itself, and when it did not get rid of its output in time, which is then cut. The other
format that it has, one document at its end, is cut for every long answer. An answer that a model broke off since its
tokens were used up is not marked as such in either, so an answer to a schema is exact only if it is one JSON value,
which shows its own end. Other exit codes are the HTTP status modulo 256, or a number of
its own; the status is also in its stderr and often in its sentences.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import uuid
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.agents.calls import failures as kinds
from codeloupe.agents.calls.program import Message, ProgramAgent, Reading, agent_environment, user_home
from codeloupe.agents.calls.schemas import schema_words
from codeloupe.errors import AgentError, Crashed, InvalidRequest, NotInstalled
from codeloupe.model.agent import (
    AGENTS,
    AgentLimits,
    AgentRequest,
    AgentResult,
    PermissionMode,
    TokenUsage,
    full_prompt,
)
from codeloupe.system.json_values import exact_value, parsed
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

_READING = ("read_file", "read_many_files", "list_directory", "glob", "grep_search")
_WRITING = (*_READING, "write_file", "replace")
_TOOLS = {
    **dict.fromkeys(PermissionMode, _READING),
    PermissionMode.ACCEPT_EDITS: _WRITING,
    PermissionMode.BYPASS: (*_WRITING, "run_shell_command", "web_fetch", "google_web_search"),
}
# The project's name in the directory of a call, and where the program keeps the sessions of a project.
_PROJECT = "project"
_CHATS = Path("tmp", _PROJECT, "chats")
# Without a person to ask, the program denies each shell command that writes to a file, uses git or looks dangerous to
# it, whatever its settings allow. It leaves those alone for which a rule looks at their arguments.
_ALL_COMMANDS = """\
[[rule]]
toolName = "run_shell_command"
argsPattern = ".*"
decision = "allow"
priority = 999
allowRedirection = true
"""
_SETTINGS: dict[str, dict[str, Any]] = {
    "general": {
        "retryFetchErrors": False,
        "maxAttempts": 1,
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        "checkpointing": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "hooksConfig": {"enabled": False},
    "skills": {"enabled": False},
    "experimental": {"enableAgents": False},
    "ide": {"enabled": False},
    "advanced": {"ignoreLocalEnv": True, "autoConfigureMemory": False},
    "admin": {"extensions": {"enabled": False}, "mcp": {"enabled": False}, "skills": {"enabled": False}},
}
_VARIABLES = {
    **dict.fromkeys(("GEMINI_CLI_NO_RELAUNCH", "NO_BROWSER"), "true"),
    **dict.fromkeys(("GEMINI_SANDBOX", "GEMINI_SYSTEM_MD", "GEMINI_TELEMETRY_ENABLED"), "false"),
    "GEMINI_WRITE_SYSTEM_MD": "false",
    # Without a terminal the program refuses to run in a directory that is not trusted, unless trust is not asked for
    # in its settings. What then decides is this: the directory is not trusted.
    "GEMINI_RESTRICTED_MODE": "true",
    "GEMINI_CLI_TRUST_WORKSPACE": "false",
}
# The program's own names for the ways to authenticate, and the variables for each.
_KEY = "gemini-api-key"
_CLOUD = "vertex-ai"
_GOOGLE = "oauth-personal"
_LOGIN_NAMES = {
    _KEY: ("GEMINI_API_KEY",),
    _CLOUD: (
        "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_VERTEX_BASE_URL",
    ),
    _GOOGLE: ("GOOGLE_CLOUD_ACCESS_TOKEN", "GOOGLE_CLOUD_PROJECT", "GOOGLE_GENAI_USE_GCA"),
}  # fmt: skip
_MAX_SETTINGS_BYTES = 1024 * 1024
_ORGANISATION = "for the login of an organisation with a Gemini Code Assist licence, set GOOGLE_CLOUD_PROJECT"
_LOG_IN = f"set GEMINI_API_KEY; for Vertex AI, set GOOGLE_GENAI_USE_VERTEXAI=true; {_ORGANISATION}"
JOINER = "\u2060"
_MENTION = regex(r"@(?=\S)")
_ESCAPED_JOINER = regex(r"@\\u2060", re.IGNORECASE)
_WARNING = (
    "In this message an invisible character, a word joiner (U+2060), comes after each @ that is followed by a word."
    " It only keeps the @ from being taken for the mention of a file and is not part of the text: read a plain @"
    " there, and write a plain @ in the answer.\n\n"
)
# A tool that was not given to it, and one that a rule keeps from it. The others have no type of their own.
_DENIED = ("tool_not_registered", "policy_violation")
_DENIED_IN_WORDS = ("requires user confirmation", "Path not in workspace")
# Said instead of what a command prints, as if it had been run.
_BLOCKED = "Blocked: command substitution detected"
_DETAIL_NAMES = ("file_path", "dir_path", "path", "pattern", "command", "query", "include")
_SENT_NOTHING = replace(
    kinds.TOO_LONG, what="ended at once and sent nothing, as it does when a prompt exceeds the context window"
)
_UNKNOWN = kinds.Kind(Crashed, "ended without an answer", "try again; the raw output is stored")
_SETTINGS_BROKEN = kinds.Kind(
    InvalidRequest,
    "cannot read its settings, which may be those in the working directory",
    "fix .gemini/settings.json there, or use another agent",
)
_BY_EXIT_CODE = {41: kinds.NOT_LOGGED_IN, 42: kinds.INVALID, 52: _SETTINGS_BROKEN, 53: kinds.TURNS, 55: kinds.TOO_OLD}
_STATUS_IN_TEXT = regex(r'"code":\s?([45]\d\d)\b')
_STATUS_IN_STDERR = regex(r"^\s{0,4}(?:status|code): ([45]\d\d)\b", re.MULTILINE)
_DELAY_MS = regex(r"^\s{0,4}retryDelayMs: (\d{1,12})", re.MULTILINE)
# These words say more than a status does.
_ABOVE_STATUS = kinds.patterns(
    (r"max session turns", kinds.TURNS),
    (r"api[ _]key[ _](?:not valid|invalid|expired)|must specify the GEMINI_API_KEY", kinds.NOT_LOGGED_IN),
    (r"error authenticating|authorization is required|requires billing", kinds.NOT_LOGGED_IN),
    (r"billing (?:account )?is (?:disabled|not)", kinds.NOT_LOGGED_IN),
    (r"maximum number of tokens|token count .{0,40}exceeds", kinds.TOO_LONG),
    (r"context window|request payload size exceeds", kinds.TOO_LONG),
    (r"blocked due to|prohibited content|recitation|blocklist", kinds.REFUSED),
    (r"returned an empty response", kinds.EMPTY),
)
_BELOW_STATUS = kinds.patterns(
    (r"quota|rate limit|resource.?exhausted|too many requests", kinds.LIMITED),
    (r"overloaded|high demand|unavailable|no capacity", kinds.OVERLOADED),
    (r"model .{0,80}not found|is not found for api version", kinds.INVALID),
    (r"without a finish reason|malformed|incomplete json|invalid stream", kinds.UNREACHED),
    (r"unexpected token|not valid json|fetch failed|terminated|socket|econn|enotfound", kinds.UNREACHED),
    (r"eai_again|etimedout|certificate|network|timed? ?out", kinds.UNREACHED),
)
_BY_STDERR = kinds.patterns(
    (r"unknown arguments?:", kinds.TOO_OLD),
    (r"node.{0,3}: no such file", kinds.WITHOUT_NODE),
    # Google refuses a login with exit code 1: a personal account, or one that needs a project.
    (r"IneligibleTierError:|ProjectIdRequiredError:|InvalidNumericProjectIdError:", kinds.NOT_LOGGED_IN),
)


class GeminiReading(Reading):
    """Takes the messages of one run in order.

    An answer is exact only if nothing comes after the result and no error was reported.
    """

    _has_repeated_prompt = _is_answering = False
    _results = 0
    _last_error = ""
    _result: Message | None = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._used: dict[str, str] = {}
        self._denials: list[str] = []

    def take(self, message: Message) -> None:
        """Take the next message."""
        match message.get("type"), message.get("role"):
            case "init", _:
                self.session_id = message.text("session_id")
                self.model = message.text("model") or None
            case "message", "user":
                self._has_repeated_prompt = True
            case "message", "assistant":
                self._begin_turn()
                self.output += self.said(message, "content")
            case "tool_use", _:
                self._begin_turn()
                self.set_output_aside()
                tool, detail = message.text("tool_name"), message.part("parameters").detail(_DETAIL_NAMES)
                self._used[message.text("tool_id")] = f"{tool} {detail}".strip()
                self.tool_used(tool, detail)
            case "tool_result", _:
                self._take_tool_result(message)
            case "error", _:
                self._last_error = message.text("message")
                self.note_inexact(f"reported an error: {self._last_error}")
            case "result", _:
                self._result, self.is_answered = message, True
                self._results += 1
                stats = message.part("stats")
                sent = stats.count("input_tokens")
                # What a model thought counts as output too, but is only in the total.
                written = max(stats.count("output_tokens"), stats.count("total_tokens") - sent)
                self.usage = TokenUsage(input_tokens=sent, cached_tokens=stats.count("cached"), output_tokens=written)
                if sent:
                    self.tokens_spent(sent, written)

    def _take_tool_result(self, message: Message) -> None:
        self._is_answering = False
        self.set_output_aside()
        used, error = self._used.pop(message.text("tool_id"), ""), message.part("error")
        is_blocked = message.text("output").startswith(_BLOCKED) or error.get("type") in _DENIED
        if is_blocked or any(phrase in error.text("message") for phrase in _DENIED_IN_WORDS):
            self._denials.append(used)

    def answer(self, completed: Completed) -> AgentResult:
        """The answer of a run that ended. Raises the AgentError that its end means."""
        exit_code, stderr, result = completed.exit_code, completed.stderr, self._result
        self.output = _without_joiners(self.output)
        self.other_answers = tuple(map(_without_joiners, self.other_answers))
        if result is None:
            # It loses what is left of its output when it ends, and repeats the prompt there before it sends it.
            if exit_code == 0 and self.session_id and not self._has_repeated_prompt:
                raise self.error(_SENT_NOTHING, self._last_error)
            words = stderr.strip()
            if kinds.kind_in(words, _BY_STDERR) is None and exit_code:
                if known := _BY_EXIT_CODE.get(exit_code):
                    raise self.error(known, words)
                if _status("", exit_code, stderr) is not None:
                    raise self._failed(words, exit_code=exit_code, stderr=stderr)
            raise self.cut_short(_BY_STDERR, exit_code=exit_code, stderr=words)
        if self._results > 1:
            raise self.error(kinds.SEVERAL_RESULTS, self._last_error)
        if result.get("status") != "success":
            text = result.part("error").text("message") or self._last_error
            raise self._failed(text, exit_code=exit_code, stderr=stderr)
        stats = result.part("stats")
        if not self.output.strip():
            raise self.error(kinds.EMPTY if stats.part("models") else _SENT_NOTHING, self._last_error)
        self._note_unknown_end()
        # Before the one that answers, the program may ask a small one which to ask.
        self.model = stats.busiest("models") or self.model
        return self.result(completed.seconds, permission_denials=tuple(self._denials))

    def _note_unknown_end(self) -> None:
        """Note that an answer to a schema may have been cut off, unless it is one JSON value."""
        if self.request.output_schema is None:
            return
        try:
            exact_value(self.output)
        except ValueError as error:
            self.note_inexact(f"may have been cut off, but does not report it: {error}")

    def _begin_turn(self) -> None:
        if not self._is_answering:
            self._is_answering = True
            self.turn_taken()

    def _failed(self, text: str, *, exit_code: int, stderr: str) -> AgentError:
        """The error of a run that reported a failure, whatever its exit code."""
        status = _status(text, exit_code, stderr)
        kind = kinds.kind_of(text, status, _ABOVE_STATUS, _BELOW_STATUS)
        delays = _DELAY_MS.findall(stderr)
        wait = int(delays[-1]) / 1000 if delays else kinds.retry_after_in(text)
        return self.error(kind or _BY_EXIT_CODE.get(exit_code, _UNKNOWN), text, status=status, retry_after_seconds=wait)


def _without_joiners(text: str) -> str:
    """Return the text with a plain `@` where the model repeats one with the invisible character."""
    return _ESCAPED_JOINER.sub("@", text.replace(f"@{JOINER}", "@"))


def _status(text: str, exit_code: int, stderr: str) -> int | None:
    statuses = _STATUS_IN_TEXT.findall(text) or _STATUS_IN_STDERR.findall(stderr)
    if statuses:
        return int(statuses[-1])
    # Exit codes from 41 to 55 are the program's own; a status from 400 to 511 leaves 144 to 255, and 529 leaves 17.
    status = 529 if exit_code == 17 else exit_code + 256
    return status if 400 <= status < 512 or status == 529 else None


class GeminiAgent(ProgramAgent):
    """Runs `gemini` once for each call, with a key, the settings of a cloud, or the login in the user's home.

    Without a `base_url`, GOOGLE_GEMINI_BASE_URL or Google's own is asked. A bypass gives the program a shell. A system
    prompt replaces the program's own; without one, what is to be appended comes at the head of the prompt. The
    program knows no schema, so the prompt describes it, and no limit of money.
    """

    name = "gemini"
    program = kinds.Program(
        *(name, "gemini", "npm install -g @google/gemini-cli@latest"),
        log_in=_LOG_IN,
    )
    limits = AgentLimits(
        prompt=AGENTS[name].prompt_limit,
        own_tokens=1_800,
        **dict.fromkeys(("turns", "resume", "fork", "tools", "writes", "confined"), True),
    )
    reading = GeminiReading
    model_variable = "GEMINI_MODEL"
    # The first one that was seen to keep a directory untrusted while it runs without a terminal.
    oldest = (0, 61)
    key_names, login_file = ("GEMINI_API_KEY",), "oauth_creds.json"
    tools = _TOOLS

    @property
    def user_folder(self) -> Path:
        """The user's own directory of the program, with the login."""
        home = self.source.get("GEMINI_CLI_HOME")
        return (Path(home) if home else user_home(self.source)).absolute() / ".gemini"

    @property
    def login(self) -> str | None:
        """Return how the program authenticates, by its own name for it; None if it cannot.

        Vertex AI if the user chose it for the program, else the key, else a Google login. A Google login without a
        project is a personal one, which Google no longer accepts.
        """
        if self._wants_vertex() and self._has_vertex():
            return _CLOUD
        if self.key_name:
            return _KEY
        if self._has_google_login() and self.source.get("GOOGLE_CLOUD_PROJECT"):
            return _GOOGLE
        return None

    def _wants_vertex(self) -> bool:
        return self._is_switched_on("GOOGLE_GENAI_USE_VERTEXAI") or self._selected_type() == _CLOUD

    def _is_switched_on(self, variable: str) -> bool:
        return self.source.get(variable, "").lower() in ("1", "true")

    def _has_vertex(self) -> bool:
        has_project = self.source.get("GOOGLE_CLOUD_PROJECT") and self.source.get("GOOGLE_CLOUD_LOCATION")
        return bool(self.source.get("GOOGLE_API_KEY") or has_project)

    def _has_google_login(self) -> bool:
        has_token = self._is_switched_on("GOOGLE_GENAI_USE_GCA") and self.source.get("GOOGLE_CLOUD_ACCESS_TOKEN")
        return bool(has_token or self._has_login_file())

    def _has_login_file(self) -> bool:
        try:
            return (self.user_folder / self.login_file).is_file()
        except OSError:
            return False

    def _selected_type(self) -> str:
        """Return the way to authenticate that the user selected in the program; nothing if that is not known."""
        try:
            with (self.user_folder / "settings.json").open("rb") as stream:
                settings = parsed(stream.read(_MAX_SETTINGS_BYTES).decode("utf-8", "replace"))
        except (OSError, ValueError):
            return ""
        if not isinstance(settings, dict):
            return ""
        return Message(settings).part("security").part("auth").text("selectedType")

    def service_of(self, _request: AgentRequest) -> str | None:
        """Which service is asked, as far as the settings and the environment tell."""
        if self.login != _CLOUD:
            return self.base_url or self.source.get("GOOGLE_GEMINI_BASE_URL") or None
        names = ("GOOGLE_VERTEX_BASE_URL", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
        return " ".join((_CLOUD, *(f"{name}={self.source.get(name)}" for name in names)))

    def credential_of(self, request: AgentRequest) -> str | None:
        """Return the key that it asks with; None for a login or for credentials of the cloud."""
        if self.login == _CLOUD:
            return self.source.get("GOOGLE_API_KEY")
        return super().credential_of(request)

    def _has_login(self) -> bool | None:
        """Return whether it can authenticate; None if only a call to Google would show that."""
        login = self.login
        if login is None:
            return False
        if login == _KEY or (login == _CLOUD and self.source.get("GOOGLE_API_KEY")):
            return True
        return None

    def _why_not_logged_in(self) -> str:
        """Return why the program cannot authenticate."""
        if self._wants_vertex():
            return "Vertex AI is chosen, but neither a key nor a project and a location are set"
        if self._has_google_login():
            return "a personal Google login no longer works, because Google ended these logins in June 2026"
        if self.source.get("GOOGLE_API_KEY"):
            return "GOOGLE_API_KEY is for Vertex AI, which is not chosen"
        return super()._why_not_logged_in()

    def _how_to_log_in(self, _path: Path) -> str:
        """Return what to do without a login."""
        if self._wants_vertex():
            return "set GOOGLE_API_KEY, or GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION; or set GEMINI_API_KEY"
        if self._has_google_login():
            return f"set GEMINI_API_KEY; {_ORGANISATION}"
        if self.source.get("GOOGLE_API_KEY"):
            return "set GOOGLE_GENAI_USE_VERTEXAI=true too, or put the key into GEMINI_API_KEY"
        return self.program.log_in

    def _login_hint(self, path: Path) -> str:
        """Return what a user has to know about a login that is missing, or that only a call can try."""
        match self.login:
            case "oauth-personal":
                return (
                    "only a first call shows whether Google accepts this login: it needs the licence of an"
                    " organisation, and a personal login no longer works; to be sure, set GEMINI_API_KEY"
                )
            case "vertex-ai":
                return "only a first call shows whether the credentials work; to be sure, set GOOGLE_API_KEY"
        return f"{self._why_not_logged_in()}: {self._how_to_log_in(path)}"

    async def _usable_program(self) -> Path:
        """The program. Raises NotInstalled, also for one that is too old: it would trust the directory it runs in."""
        path = self.find()
        version = _version_beside(path) or (await self._version_of(path))[0]
        if version is None or self._is_too_old(version):
            known = f"is version {version}" if version else "does not report its version"
            raise NotInstalled(
                f"gemini cannot be used: {path} {known}, and only version {'.'.join(map(str, self.oldest))} or"
                " newer can be prevented from loading settings of the reviewed repository",
                agent=self.name,
                hint=self.program.install,
            )
        return await super()._usable_program()

    def _prompt_input(self, request: AgentRequest) -> str:
        """What the program reads: the prompt, what it has no place of its own for, and a description of the schema."""
        head = ""
        if request.append_system_prompt and request.system_prompt is None:
            head = f"{request.append_system_prompt}\n\n"
        tail = "" if request.output_schema is None else schema_words(request.output_schema)
        text = f"{head}{full_prompt(request)}{tail}"
        if _MENTION.search(text):
            return _WARNING + _MENTION.sub(f"@{JOINER}", text)
        # A line before it, since a prompt that begins with a slash would be a command of the program.
        return f"\n{text}" if text.startswith("/") else text

    def _environment(self, request: AgentRequest, root: Path) -> dict[str, str]:
        own = {
            **_VARIABLES,
            # The addresses are set in any case, since a repository's `.env` may name others.
            "GOOGLE_GEMINI_BASE_URL": self.base_url
            or self.source.get("GOOGLE_GEMINI_BASE_URL")
            or "https://generativelanguage.googleapis.com",
            "CODE_ASSIST_ENDPOINT": "https://cloudcode-pa.googleapis.com",
        }
        if request.system_prompt is not None:
            file = root / "system-prompt.md"
            parts = (request.system_prompt, request.append_system_prompt)
            file.write_text("\n\n".join(part for part in parts if part), encoding="utf-8")
            own["GEMINI_SYSTEM_MD"] = str(file)
        login = self.login or _KEY
        if login == _CLOUD:
            own |= self._vertex_variables()
        names = (*_LOGIN_NAMES[login], "GEMINI_MODEL", "GOOGLE_GENAI_API_VERSION")
        return agent_environment(self.source, root, names=names, settings=own)

    def _vertex_variables(self) -> dict[str, str]:
        """Return what shows the program the user's Google Cloud credentials: it would look for them in its home."""
        folder = self.source.get("CLOUDSDK_CONFIG") or user_home(self.source) / ".config" / "gcloud"
        file = Path(folder, "application_default_credentials.json").absolute()
        if self.source.get("GOOGLE_APPLICATION_CREDENTIALS") or not file.is_file():
            return {}
        return {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}

    def _arguments(self, request: AgentRequest, root: Path) -> tuple[str, ...]:
        """The flags; the settings of the call, and the way to a login that is kept in files, are put into its home."""
        folder, login = root / "home" / ".gemini", self.login or _KEY
        folder.mkdir()
        tools = self.tools[request.permission_mode] if request.tools is None else request.tools
        settings = {
            **_SETTINGS,
            "security": {"auth": {"selectedType": login}, "folderTrust": {"enabled": False}},
            "context": {
                # No repository can hold a file by this name.
                "fileName": f"{secrets.token_hex(16)}.md",
                "includeDirectoryTree": False,
                "fileFiltering": {"enableRecursiveFileSearch": False},
            },
            # One that is given is used without asking; the permission mode allows those that a request names.
            "tools": {"core": [*tools], "sandbox": False, "useRipgrep": False},
            "model": {
                # Where no limit is asked for, this one ends a model that calls tools for ever.
                "maxSessionTurns": request.max_turns or 100,
                "disableLoopDetection": True,
                "skipNextSpeakerCheck": True,
            },
        }
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        if request.permission_mode is PermissionMode.BYPASS:
            (folder / "policies").mkdir()
            (folder / "policies" / "bypass.toml").write_text(_ALL_COMMANDS, encoding="utf-8")
        if login == _GOOGLE and self._has_login_file():
            (folder / self.login_file).symlink_to(self.user_folder / self.login_file)
        model = () if request.model is None else (f"--model={request.model}",)
        return ("--output-format=stream-json", *model, *self._session_flags(request, folder))

    def _finished(self, result: AgentResult, request: AgentRequest, root: Path) -> AgentResult:
        """Keep the session of a call in the user's directory of the program, where that is wanted."""
        session_id = result.session_id
        if not self._keeps_session(request):
            return result
        kept = self._kept_session(self._session_name(session_id))
        found = (root / "home" / ".gemini").glob(f"tmp/*/chats/session-*-{session_id[:8]}.jsonl")
        # One that it resumes it begins anew before, in a file that stays almost empty.
        file = max(found, key=lambda file: file.stat().st_size, default=None)
        if file is not None:
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Another call may read it at the same moment.
            written = kept.with_name(f"{kept.name}.{secrets.token_hex(4)}")
            shutil.copyfile(file, written)
            written.replace(kept)
        return result

    def _session_flags(self, request: AgentRequest, folder: Path) -> tuple[str, ...]:
        """The flags that resume a session, of which the program finds a copy. Raises InvalidRequest."""
        # Of that one session alone: what is in the directory of a call can be read by the model.
        if request.resume_session is None:
            return ()
        session = self._session_name(request.resume_session)
        kept = self._kept_session(session)
        if not kept.is_file():
            message = f"gemini does not know the session {session}"
            raise self._invalid(message, kinds.UNKNOWN_SESSION.hint)
        text = kept.read_text(encoding="utf-8")
        if request.fork_session:
            # It has a flag for this, with which it sends nothing of what was said before.
            forked = str(uuid.uuid4())
            text, session = text.replace(f'"sessionId":"{session}"', f'"sessionId":"{forked}"'), forked
        (folder / _CHATS).mkdir(parents=True)
        (folder / _CHATS / f"session-kept-{session[:8]}.jsonl").write_text(text, encoding="utf-8")
        projects = {str(request.working_dir.resolve()): _PROJECT}
        (folder / "projects.json").write_text(json.dumps({"projects": projects}), encoding="utf-8")
        return (f"--resume={session}",)

    def _kept_session(self, session: str) -> Path:
        return self.user_folder / "codeloupe" / "sessions" / f"{session}.jsonl"


def _version_beside(script: Path) -> str | None:
    """The version in the package of a script, since asking the program takes more than a second."""
    for folder in list(script.resolve().parents)[:3]:
        try:
            package = json.loads((folder / "package.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(package, dict) and package.get("name") == "@google/gemini-cli":
            return str(package.get("version"))
    return None
