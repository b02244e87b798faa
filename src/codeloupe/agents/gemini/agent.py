"""The agent `gemini`: the gemini program, with the settings with which it reads, answers, and does nothing else.

It runs in a home directory that is thrown away and never trusts the directory it works in, so nothing of the reviewed
repository shapes the run: no settings, `.env`, hooks, MCP servers, extensions, skills, commands or GEMINI.md. The
tools it is given need no permission and stay inside that directory; it has no others. It retries nothing by itself.
No credential is ever read: a login of the program is reached by a link.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import uuid
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.agents.calls.failures import Program
from codeloupe.agents.calls.program import Places, ProgramAgent, agent_environment, user_home, version_of
from codeloupe.agents.gemini.output import GeminiReading, prompt_input
from codeloupe.errors import NotInstalled
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, PermissionMode

GEMINI = Program(
    agent="gemini",
    command="gemini",
    install="npm install -g @google/gemini-cli@latest",
    log_in="set GEMINI_API_KEY, or start gemini in a terminal and log in",
)
LIMITS = AgentLimits(
    max_prompt_bytes=2 * 1024 * 1024,
    turns=True,
    resume=True,
    fork=True,
    tools=True,
    writes=True,
    confined=True,
    own_tokens=1_800,
)
READ_ONLY_TOOLS = ("read_file", "read_many_files", "list_directory", "glob", "grep_search")
_WRITING_TOOLS = ("write_file", "replace")
_OTHER_TOOLS = ("run_shell_command", "web_fetch", "google_web_search")
_TOOLS = {
    PermissionMode.ACCEPT_EDITS: (*READ_ONLY_TOOLS, *_WRITING_TOOLS),
    PermissionMode.BYPASS: (*READ_ONLY_TOOLS, *_WRITING_TOOLS, *_OTHER_TOOLS),
}
_PACKAGE = "@google/gemini-cli"
# The first one that was seen to keep a directory untrusted while it runs without a terminal.
_OLDEST = (0, 61)
_LOGIN_FILE = "oauth_creds.json"
# Where no limit is asked for, this one ends a model that calls tools for ever.
_MAX_TURNS = 100
_SERVICE = "https://generativelanguage.googleapis.com"
_LOGIN_SERVICE = "https://cloudcode-pa.googleapis.com"
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
    "GEMINI_CLI_NO_RELAUNCH": "true",
    # Without a terminal the program refuses to run in a directory that is not trusted, unless trust is not asked for
    # in its settings. What then decides is this: the directory is not trusted.
    "GEMINI_RESTRICTED_MODE": "true",
    "GEMINI_CLI_TRUST_WORKSPACE": "false",
    "GEMINI_SANDBOX": "false",
    "GEMINI_SYSTEM_MD": "false",
    "GEMINI_TELEMETRY_ENABLED": "false",
    "GEMINI_WRITE_SYSTEM_MD": "false",
    "NO_BROWSER": "true",
}


class Login(StrEnum):
    """How the program proves who asks, by its own names."""

    KEY = "gemini-api-key"
    CLOUD = "vertex-ai"
    GOOGLE = "oauth-personal"


_LOGIN_NAMES = {
    Login.KEY: ("GEMINI_API_KEY",),
    Login.CLOUD: (
        "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_VERTEX_BASE_URL",
    ),
    Login.GOOGLE: ("GOOGLE_CLOUD_PROJECT",),
}  # fmt: skip


class GeminiAgent(ProgramAgent):
    """Runs `gemini` once for each call, with a key, the settings of a cloud, or the login in the user's home.

    Without a `base_url`, GOOGLE_GEMINI_BASE_URL or Google's own is asked. A bypass gives the program a shell. A system
    prompt replaces the program's own; what is to be appended to that stands at the head of the prompt otherwise. The
    program knows no schema, so that is told in words, and no limit of money.
    """

    name = GEMINI.agent
    program = GEMINI
    limits = LIMITS
    reading = GeminiReading
    model_variable = "GEMINI_MODEL"
    prompt_input = staticmethod(prompt_input)

    @property
    def user_folder(self) -> Path:
        """The user's own directory of the program, with the login."""
        home = self.source.get("GEMINI_CLI_HOME")
        return (Path(home) if home else user_home(self.source)).absolute() / ".gemini"

    @property
    def login(self) -> Login | None:
        """The login that there is; of several, the one that the program would take."""
        if self.source.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true"):
            return Login.CLOUD
        if self.source.get("GEMINI_API_KEY"):
            return Login.KEY
        try:
            return Login.GOOGLE if (self.user_folder / _LOGIN_FILE).is_file() else None
        except OSError:  # a directory that we may not enter holds no login that a program of ours could use
            return None

    def service_of(self, _request: AgentRequest) -> str | None:
        """Which service is asked, as far as the settings and the environment tell."""
        if self.login is not Login.CLOUD:
            return self.base_url or self.source.get("GOOGLE_GEMINI_BASE_URL") or None
        names = ("GOOGLE_VERTEX_BASE_URL", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
        return " ".join((Login.CLOUD.value, *(f"{name}={self.source.get(name)}" for name in names)))

    def has_login(self) -> bool:
        """Whether there is a key or a login."""
        return self.login is not None

    async def usable_program(self) -> Path:
        """The program. Raises NotInstalled, also for one that is too old: it would trust the directory it runs in."""
        path = self.find()
        version = _version_beside(path) or (await version_of(self.program, path, self.source))[0]
        if version is None or self.problem_with(path, version):
            known = f"is version {version}" if version else "does not report its version"
            raise NotInstalled(
                f"gemini cannot be used: {path} {known}, and only from {'.'.join(map(str, _OLDEST))} on it can be kept"
                " from loading settings of the reviewed repository",
                agent=self.name,
                hint=self.program.install,
            )
        return await super().usable_program()

    def problem_with(self, path: Path, version: str | None) -> str:
        """Whether it is too old."""
        numbers = tuple(int(part) for part in re.findall(r"\d{1,9}", version or "")[:2])
        return f"{path} is too old; {self.program.install}" if version is not None and numbers < _OLDEST else ""

    def problem_with_tools(self, request: AgentRequest) -> tuple[str, str] | None:
        """Whether one is named that there is not, or not in this mode."""
        allowed = tools_for(replace(request, tools=None))
        missing = ", ".join(tool for tool in request.tools or () if tool not in allowed)
        problem = f"gemini has no {missing} in the permission mode {request.permission_mode.value}"
        return (problem, f"leave tools out, or name some of: {', '.join(allowed)}") if missing else None

    def environment(self, request: AgentRequest, places: Places) -> dict[str, str]:
        """The whole environment of the program; files that it names are written to `places`."""
        own = {
            **_VARIABLES,
            # The addresses are set in any case, since a repository's `.env` may name others.
            "GOOGLE_GEMINI_BASE_URL": self.base_url or self.source.get("GOOGLE_GEMINI_BASE_URL") or _SERVICE,
            "CODE_ASSIST_ENDPOINT": _LOGIN_SERVICE,
        }
        if request.system_prompt is not None:
            file = places.root / "system-prompt.md"
            parts = (request.system_prompt, request.append_system_prompt)
            file.write_text("\n\n".join(part for part in parts if part), encoding="utf-8")
            own["GEMINI_SYSTEM_MD"] = str(file)
        names = (*_LOGIN_NAMES[self.login or Login.KEY], "GEMINI_MODEL", "GOOGLE_GENAI_API_VERSION")
        return agent_environment(self.source, places, names=names, settings=own)

    def arguments(self, request: AgentRequest, places: Places) -> tuple[str, ...]:
        """The flags; the settings of the call, and the way to a login that is kept in files, are put into its home."""
        folder, login = places.home / ".gemini", self.login or Login.KEY
        folder.mkdir()
        settings = {
            **_SETTINGS,
            "security": {"auth": {"selectedType": login.value}, "folderTrust": {"enabled": False}},
            "context": {
                # No repository can hold a file by this name.
                "fileName": f"{secrets.token_hex(16)}.md",
                "includeDirectoryTree": False,
                "fileFiltering": {"enableRecursiveFileSearch": False},
            },
            "tools": {"core": list(tools_for(request)), "sandbox": False, "useRipgrep": False},
            "model": {
                "maxSessionTurns": request.max_turns or _MAX_TURNS,
                "disableLoopDetection": True,
                "skipNextSpeakerCheck": True,
            },
        }
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        if request.permission_mode is PermissionMode.BYPASS:
            (folder / "policies").mkdir()
            (folder / "policies" / "bypass.toml").write_text(_ALL_COMMANDS, encoding="utf-8")
        if login is Login.GOOGLE:
            (folder / _LOGIN_FILE).symlink_to(self.user_folder / _LOGIN_FILE)
        model = () if request.model is None else (f"--model={request.model}",)
        return ("--output-format=stream-json", *model, *self._session_flags(request, folder))

    def finished(self, result: AgentResult, request: AgentRequest, places: Places) -> AgentResult:
        """Keep the session of a call in the user's directory of the program, where that is wanted."""
        session_id = result.session_id
        if not self.keeps_session(request):
            return result
        kept = self._kept_session(self.session_name(session_id))
        found = (places.home / ".gemini").glob(f"tmp/*/chats/session-*-{session_id[:8]}.jsonl")
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
        """The flags that resume a session, which is put where the program finds it.

        A copy of that one session: what is in the directory of a call can be read by the model. Raises InvalidRequest
        for a session that was not kept, before anything is started.
        """
        if request.resume_session is None:
            return ()
        session = self.session_name(request.resume_session)
        kept = self._kept_session(session)
        if not kept.is_file():
            hint = "leave resume_session out, or keep sessions and give the session_id of an earlier result"
            raise self.invalid(f"gemini does not know the session {session}", hint)
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


def tools_for(request: AgentRequest) -> tuple[str, ...]:
    """The tools of a request: all that its permission mode allows, or those of them that it names.

    A tool that is given is used without asking, so one that the mode does not allow is not given.
    """
    allowed = _TOOLS.get(request.permission_mode, READ_ONLY_TOOLS)
    return allowed if request.tools is None else tuple(tool for tool in request.tools if tool in allowed)


def _version_beside(script: Path) -> str | None:
    """The version in the package of a script, since asking the program takes more than a second."""
    try:
        folders = script.resolve(strict=True).parents
    except (OSError, RuntimeError):
        return None
    for folder in list(folders)[:3]:
        try:
            package = json.loads((folder / "package.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(package, dict) and package.get("name") == _PACKAGE:
            return str(package.get("version"))
    return None
