"""What all agents that start a vendor's program share: where it is, what it sees, and one run of it."""

from __future__ import annotations

import json
import logging
import os
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codeloupe import errors
from codeloupe.agents.calls.failures import Kind, Patterns, Program, ended_without_result, error_of
from codeloupe.agents.calls.validation import refuse_length, validate
from codeloupe.model.agent import (
    AgentLimits,
    AgentRequest,
    AgentResult,
    Availability,
    PermissionMode,
    TokensSpent,
    TokenUsage,
    ToolUsed,
    TurnTaken,
    full_prompt,
)
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import (
    NETWORK_NAMES,
    Command,
    Completed,
    StreamTimedOut,
    find_program,
    inherited_environment,
    run,
    stream,
)
from codeloupe.system.regex import regex

PERSON_NAMES = ("USER", "LOGNAME")
"""Who the user is: some programs look their login up by it. Only for a program that runs in the user's home."""
# One argument of a program is at most 128 KiB on Linux.
MAX_ARGUMENT_BYTES = 120_000

_VERSION = regex(rb"\d+\.\d+[\w.+-]*")
_DEAD_PROXY = "http://127.0.0.1:9"
_QUIET = {"NO_COLOR": "1", "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "DISABLE_AUTOUPDATER": "1"}
_log = logging.getLogger(__name__)


@contextmanager
def call_folder() -> Iterator[Path]:
    """A private directory for one call, gone after it: for files of ours, with an empty `home` and `tmp`."""
    with temporary_directory() as root:
        (root / "home").mkdir()
        (root / "tmp").mkdir()
        yield root


def user_home(source: Mapping[str, str]) -> Path:
    """The user's own home directory, where a program keeps its login."""
    return Path(source.get("HOME") or Path.home())


def agent_environment(
    source: Mapping[str, str],
    root: Path,
    *,
    names: Iterable[str] = (),
    settings: Mapping[str, str],
    home: Path | None = None,
) -> dict[str, str]:
    """The whole environment of an agent program; whatever is not named here does not reach it.

    Of `source` it has the search path without relative entries, the time zone, `NETWORK_NAMES` and `names`, where
    they are set and not empty. Telemetry and updates are off. `settings` has the last word.
    """
    # A relative entry means the current directory, which may be the reviewed tree with programs of its own.
    entries = [entry for entry in source.get("PATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    return {
        **inherited_environment(),
        **({"PATH": os.pathsep.join(entries)} if entries else {}),
        **{name: source[name] for name in ("TZ", *NETWORK_NAMES, *names) if source.get(name)},
        **_QUIET,
        "HOME": str(home or root / "home"),
        "TMPDIR": str(root / "tmp"),
        **settings,
    }


def installed_version(distribution: str) -> str | None:
    """The version of an optional package, or None when it is not installed.

    Read from the folder that installers leave beside a package: loading `importlib.metadata` takes longer than
    everything else that chooses an agent.
    """
    pattern = f"{distribution.replace('-', '_')}-*.dist-info"
    found = (folder.name for place in sys.path for folder in Path(place).glob(pattern))
    return next((name.removesuffix(".dist-info").rpartition("-")[2] for name in found), None)


class Message(dict[str, Any]):
    """An object that a program printed. Its fields are not trusted to have their types: a wrong one reads as empty."""

    def text(self, name: str) -> str:
        """A text, else nothing."""
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """A number that can be a count or a price, else None."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if 0 <= value <= 10**15 else None

    def count(self, name: str) -> int:
        """A number that can be a count, else 0."""
        return int(self.number(name) or 0)

    def part(self, name: str) -> Message:
        """An object, else an empty one."""
        value = self.get(name)
        return Message(value) if isinstance(value, Mapping) else Message()

    def parts(self, name: str) -> list[Message]:
        """The objects of a list; what is no object is an empty one."""
        value = self.get(name)
        items = value if isinstance(value, list) else []
        return [Message(item) if isinstance(item, Mapping) else Message() for item in items]

    def detail(self, names: Iterable[str]) -> str:
        """The first of these texts that is there, as a detail."""
        return detail_of(next(filter(None, map(self.text, names)), ""))

    def busiest(self, name: str) -> str | None:
        """Of objects by the name of a model, the name of the one with the most tokens of output; of equals the last."""
        models = self.part(name)

        def written(model: str) -> int:
            return models.part(model).count("outputTokens") or models.part(model).count("output_tokens")

        return max(reversed(list(models)), key=written, default=None)


def message_on(line: bytes) -> Message | None:
    """The message on a line of output, or None for a line that holds none."""
    try:
        # Programs pass on bytes of files and tools: what is no UTF-8 in a text does not take the message with it.
        message = json.loads(line.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None
    return Message(message) if isinstance(message, dict) else None


def detail_of(text: str) -> str:
    """The first line of what a tool was used on, cut to a length for a display."""
    return text.strip().partition("\n")[0][:80]


class Reading(ABC):
    """Takes the messages of one run in order, and reads its end.

    `is_answered`: only the program's end is left. The other fields are what is known so far, for a result or an error.
    """

    def __init__(self, program: Program, request: AgentRequest, emit: AgentEventSink) -> None:
        self.program = program
        self.agent = program.agent
        self.request = request
        self.emit = emit
        self.is_answered = False
        self.session_id = ""
        self.output = ""
        self.raw_output = ""
        self.turns = 0
        self.model: str | None = None
        self.usage: TokenUsage | None = None
        self.cost_usd: float | None = None

    @abstractmethod
    def take(self, message: Message) -> None:
        """Take the next message."""

    @abstractmethod
    def answer(self, completed: Completed) -> AgentResult:
        """The answer of a run that ended. Raises the AgentError that the end means."""

    @property
    def _known(self) -> dict[str, Any]:
        names = ("session_id", "output", "raw_output", "model", "usage", "cost_usd")
        return {**{name: getattr(self, name) for name in names}, "asked_model": self.request.model}

    def turn_taken(self) -> None:
        """Count a turn and report it."""
        self.turns += 1
        self.emit(TurnTaken(self.agent, self.turns))

    def tool_used(self, tool: str, detail: str) -> None:
        """Report the use of a tool."""
        self.emit(ToolUsed(self.agent, tool, detail))

    def tokens_spent(self, sent: int, written: int, cost_usd: float | None = None) -> None:
        """Report what was used so far."""
        self.emit(TokensSpent(self.agent, sent, written, cost_usd))

    def result(self, completed_seconds: float, **more: Any) -> AgentResult:
        """The result, with all that is known of the run; `more` has the last word."""
        known: dict[str, Any] = {
            "output": self.output,
            "session_id": self.session_id,
            "duration_ms": round(completed_seconds * 1000),
            "num_turns": self.turns,
            "usage": self.usage or TokenUsage(),
            "total_cost_usd": self.cost_usd,
            "model": self.model or self.request.model,
            "raw_output": self.raw_output,
        }
        return AgentResult(success=True, agent=self.agent, **{**known, **more})

    def error(self, kind: Kind, text: str = "", **more: Any) -> errors.AgentError:
        """The error of this kind, with all that is known of the run."""
        return error_of(kind, self.program, text, **{**self._known, **more})

    def cut_short(self, known: Patterns, *, exit_code: int, stderr: str) -> errors.AgentError:
        """The error of a run that ended before it said how it went."""
        return ended_without_result(self.program, known, exit_code=exit_code, stderr=stderr, **self._known)


class ProgramAgent(ABC):
    """An agent that starts a vendor's program once for each call, in a home directory that is thrown away after it.

    `program` is a path or a name; without one it is looked for on the PATH. `environment` is what variables are taken
    from, by default our own. `base_url` is the address of another service that speaks the vendor's API. `allow_bypass`
    lets requests bypass all permissions. `keep_sessions` keeps sessions in the user's own directory of the program, so
    that they can be resumed.
    """

    name: str
    program: Program
    limits: AgentLimits
    reading: type[Reading]
    model_variable = ""

    def __init__(
        self,
        program: str | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        base_url: str | None = None,
        allow_bypass: bool = False,
        keep_sessions: bool = False,
    ) -> None:
        self.configured = program
        self.source: Mapping[str, str] = os.environ if environment is None else environment
        self.base_url = base_url
        self.allow_bypass = allow_bypass
        self.keep_sessions = keep_sessions

    @property
    def default_model(self) -> str | None:
        """The model that is asked when a request names none, where the environment tells."""
        return self.source.get(self.model_variable) or None

    @abstractmethod
    def service_of(self, request: AgentRequest) -> str | None:
        """Where it asks, where the settings or the environment tell."""

    @abstractmethod
    def _has_login(self) -> bool | None:
        """Whether there is a key or a login. None when nobody can know."""

    @abstractmethod
    def _environment(self, request: AgentRequest, root: Path) -> dict[str, str]:
        """The whole environment of the program."""

    def _arguments(self, _request: AgentRequest, _root: Path) -> tuple[str, ...]:
        """The program's arguments; files that they name are written below `root`. Raises InvalidRequest."""
        return ()

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the program being gone.

        One that gave its answer and then did not end has still answered.
        """
        prompt = self._checked_prompt(request)
        path = await self._usable_program()
        reading, agent = self.reading(self.program, request, emit), self.name

        def take(line: bytes) -> None:
            if (message := message_on(line)) is not None:
                reading.take(message)

        with call_folder() as root:
            command = Command(
                argv=(str(path), *self._arguments(request, root)),
                cwd=request.working_dir,
                environment=self._environment(request, root),
                timeout_seconds=request.timeout_seconds,
                max_output_bytes=256 * 1024,
                stdin=prompt.encode(),
            )
            idle = request.idle_timeout_seconds
            try:
                completed = await stream(
                    command, on_line=take, idle_timeout_seconds=idle, is_over=lambda: reading.is_answered
                )
            except StreamTimedOut as error:
                if not reading.is_answered:
                    raise errors.TimedOut(
                        f"{agent}: {error.message}",
                        agent=agent,
                        hint=error.hint,
                        raw_output=error.stdout.decode("utf-8", "replace"),
                        session_id=reading.session_id,
                    ) from error
                completed = Completed(0, error.stdout, error.stderr, command.timeout_seconds)
            except errors.ProgramNotFound as error:
                message = f"{agent}: {error.message}"
                raise errors.NotInstalled(message, agent=agent, hint=self.program.install) from error
            except errors.ProcessError as error:
                raise errors.Crashed(f"{agent}: {error.message}", agent=agent, hint=error.hint) from error
            reading.raw_output = completed.stdout.decode("utf-8", "replace")
            if completed.skipped_lines and not reading.is_answered:
                raise errors.OutputInvalid(
                    f"{agent} gave an answer that is too long to be read",
                    agent=agent,
                    hint="ask for a shorter answer",
                    raw_output=reading.raw_output,
                    session_id=reading.session_id,
                    cut_off=True,
                )
            return self._finished(reading.answer(completed), request, root)

    def _finished(self, result: AgentResult, _request: AgentRequest, _root: Path) -> AgentResult:
        """The result, with what the program left in the folder of the call."""
        return result

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing and never raises."""
        try:
            path = self.find()
        except errors.NotInstalled as error:
            return Availability(found=False, how_to_fix=error.hint)
        version, problem = await self._version_of(path)
        return self._availability(path, version, problem or self._problem_with(path, version))

    async def _version_of(self, path: Path) -> tuple[str | None, str]:
        """The version, or None and what is wrong. Needs no network, so it gets none."""
        quiet = {"HTTPS_PROXY": _DEAD_PROXY, "HTTP_PROXY": _DEAD_PROXY, "GEMINI_CLI_NO_RELAUNCH": "true"}
        with call_folder() as root:
            command = Command(
                argv=(str(path), "--version"),
                cwd=root,
                environment=agent_environment(self.source, root, settings={**quiet, "CODEX_HOME": str(root / "home")}),
                timeout_seconds=20.0,
                max_output_bytes=64 * 1024,
            )
            try:
                completed = await run(command)
            except errors.ProcessError as error:
                return None, f"{error.message}; {self.program.install}"
        version = _VERSION.search(completed.stdout)
        if completed.exit_code != 0 or version is None:
            return None, f"{path} does not report its version; {self.program.install}"
        return version[0].decode("ascii", "replace"), ""

    def _availability(self, path: Path, version: str | None, problem: str = "") -> Availability:
        """What is known of a program that was found."""
        logged_in = self._has_login()
        return Availability(
            found=version is not None and not problem,
            version=version,
            logged_in=logged_in,
            how_to_fix=problem or ("" if logged_in else self._how_to_log_in(path)),
            default_model=self.source.get(self.model_variable) or None,
            path=str(path),
        )

    def _checked_prompt(self, request: AgentRequest) -> str:
        """What the program reads. Raises InvalidRequest or PromptTooLong for a request that cannot be sent as it is."""
        validate(request, self.limits, agent=self.name)
        if problem := self._problem_with_tools(request):
            raise self._invalid(*problem)
        if request.permission_mode is PermissionMode.BYPASS:
            if not self.allow_bypass:
                raise self._invalid(
                    f"{self.name} was asked to bypass all permissions: it could run any command, change any file that"
                    " this user can, and send anything anywhere",
                    "use acceptEdits; or set allow_bypass in your own configuration, and only in a sandbox",
                )
            _log.warning(
                "%s bypasses all permissions in %s: it may do whatever this user can", self.name, request.working_dir
            )
        prompt = self._prompt_input(request)
        what = f"the prompt, with all that {self.name} is sent beside it,"
        refuse_length(prompt, self.limits, agent=self.name, what=what)
        return prompt

    def find(self) -> Path:
        """The configured program, else the one on the PATH. Raises NotInstalled, with the command that installs it."""
        found = find_program(self.configured or self.program.command)
        if found is None:
            where = f"at {self.configured}" if self.configured else "on the PATH"
            raise errors.NotInstalled(
                f"{self.name} cannot be used: there is no {self.program.command} program {where}",
                agent=self.name,
                hint=self.program.install,
            )
        # It is started in the directory of the request, not in ours.
        return Path(found).absolute()

    async def _usable_program(self) -> Path:
        """The program that a run starts. Raises NotInstalled, and NotLoggedIn where it is known not to have a login."""
        path = self.find()
        if self._has_login() is False:
            raise errors.NotLoggedIn(
                f"{self.name} cannot be asked: there is no key in the environment, and no login of the program",
                agent=self.name,
                hint=self.program.log_in,
            )
        return path

    def _problem_with(self, _path: Path, _version: str | None) -> str:
        """Why this version cannot be used, or nothing."""
        return ""

    def _how_to_log_in(self, _path: Path) -> str:
        """What to do where there is no login."""
        return self.program.log_in

    def _problem_with_tools(self, _request: AgentRequest) -> tuple[str, str] | None:
        """What is wrong with the tools that a request names, and a hint."""
        return None

    def _prompt_input(self, request: AgentRequest) -> str:
        return full_prompt(request)

    def _invalid(self, message: str, hint: str) -> errors.InvalidRequest:
        return errors.InvalidRequest(message, agent=self.name, hint=hint, attempts=0)

    def _session_name(self, name: str) -> str:
        """The session of this name. Raises InvalidRequest: for another name a program may begin a new one."""
        try:
            return str(uuid.UUID(name))
        except ValueError as error:
            raise self._invalid(
                f"{self.name} cannot resume the session {name!r}: its sessions are named by UUIDs",
                "give the session_id of an earlier result, or leave resume_session out",
            ) from error

    def _keeps_session(self, request: AgentRequest) -> bool:
        return self.keep_sessions or request.resume_session is not None
