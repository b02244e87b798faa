"""What all agents that start a vendor's program share: where it is, what it sees, and one run of it."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe import errors
from codeloupe.agents.calls.failures import CUT_OFF, Kind, Patterns, Program, error_of, kind_in, one_line
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
from codeloupe.system.json_values import parsed
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
# The other texts of a run are stored up to this length.
_MAX_OTHER_CHARACTERS = 4 * 1024 * 1024

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
    """The version of an optional package, or None when it is not installed."""
    # By the folder beside the package: loading `importlib.metadata` takes longer than all else that chooses an agent.
    pattern = f"{distribution.replace('-', '_')}-*.dist-info"
    found = (folder.name for place in sys.path for folder in Path(place).glob(pattern))
    return next((name.removesuffix(".dist-info").rpartition("-")[2] for name in found), None)


class Message(dict[str, Any]):
    """An object that a program printed. Its fields are not trusted to have their types: a wrong one reads as empty.

    `problem` is why its line could not be read, or only in part.
    """

    problem = ""

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


def message_on(line: bytes) -> Message:
    """Return the message on a line of output; an empty one with its `problem` for a line that holds none."""
    # Programs pass on bytes of files and tools: what is no UTF-8 in a text does not take the message with it.
    text = line.decode("utf-8-sig", "replace")
    problem = ""
    value: Any = None
    try:
        value = parsed(text)
    except ValueError as error:
        problem = str(error)
        # A key that is given twice does not take the other fields with it, such as the cost of the run.
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
    if isinstance(value, dict):
        message = Message(value)
    else:
        message = Message()
        problem = problem or "not an object"
    message.problem = problem
    return message


def detail_of(text: str) -> str:
    """The first line of what a tool was used on, cut to a length for a display."""
    return text.strip().partition("\n")[0][:80]


class Reading(ABC):
    """Takes the messages of one run in order, and reads its end. Once it `is_answered`, only that is left.

    `output` is the answer so far. `inexact` is why the answer of the run cannot be exact, and `other_answers` is all
    that the agent said beside it; see `AgentResult`. `goes_on` says that a program may print more after its end.
    """

    goes_on = False

    def __init__(self, program: Program, request: AgentRequest, emit: AgentEventSink) -> None:
        self.program = program
        self.agent = program.agent
        self.request = request
        self.emit = emit
        self.is_answered = False
        self.session_id = self.output = self.raw_output = self.inexact = ""
        self.other_answers: tuple[str, ...] = ()
        self.turns = 0
        self.model: str | None = None
        self.usage: TokenUsage | None = None
        self.cost_usd: float | None = None
        self.notes: list[str] = []

    def take_line(self, line: bytes) -> None:
        """Take the message on the next line of output. A line that cannot be read makes the answer inexact."""
        if not line.strip():
            return
        message = message_on(line)
        if message.problem:
            self.note_inexact(f"printed a line that could not be read: {message.problem}")
        if self.is_answered and not self.goes_on:
            self.note_inexact("printed more after its result")
        self.take(message)

    def note_end(self, completed: Completed) -> None:
        """Note why the answer cannot be exact, by the way in which the program ended."""
        if completed.exit_code:
            self.note_inexact(f"ended with exit code {completed.exit_code}")
        if completed.skipped_lines:
            self.note_inexact("printed a line that is too long to be read")

    def note_inexact(self, why: str) -> None:
        """Note why the answer cannot be exact; the first reason is kept."""
        self.inexact = self.inexact or one_line(f"{self.agent} {why}")

    def said(self, message: Message, name: str) -> str:
        """Return a text of the agent. One that is not a text makes the answer inexact."""
        if not isinstance(message.get(name), str):
            self.note_inexact("gave a part of its answer that is not text")
        return message.text(name)

    def add_other_answer(self, text: str) -> None:
        """Keep a text that is not the answer."""
        if not text.strip():
            return
        if sum(map(len, self.other_answers)) + len(text) > _MAX_OTHER_CHARACTERS:
            self.note_inexact("printed more text besides its answer than can be stored")
            return
        self.other_answers += (text,)

    def set_output_aside(self) -> None:
        """Keep what was said so far as another answer: what is said before a tool is used is not the answer."""
        self.add_other_answer(self.output)
        self.output = ""

    @abstractmethod
    def take(self, message: Message) -> None:
        """Take the next message."""

    @abstractmethod
    def answer(self, completed: Completed) -> AgentResult:
        """The answer of a run that ended. Raises the AgentError that the end means."""

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
            **{
                name: getattr(self, name) for name in ("output", "session_id", "raw_output", "inexact", "other_answers")
            },
            "duration_ms": round(completed_seconds * 1000),
            "num_turns": self.turns,
            "usage": self.usage or TokenUsage(),
            "total_cost_usd": self.cost_usd,
            "model": self.model or self.request.model,
            "notes": tuple(dict.fromkeys(self.notes)),
        }
        return AgentResult(success=True, agent=self.agent, **{**known, **more})

    def error(self, kind: Kind, text: str = "", **more: Any) -> errors.AgentError:
        """The error of this kind, with all that is known of the run."""
        names = ("session_id", "output", "other_answers", "raw_output", "model", "usage", "cost_usd")
        known = {name: getattr(self, name) for name in names}
        return error_of(kind, self.program, text, asked_model=self.request.model, **{**known, **more})

    def cut_short(self, known: Patterns, *, exit_code: int, stderr: str) -> errors.AgentError:
        """The error of a run that ended before it said how it went, whatever its exit code."""
        stderr = stderr.strip()
        if kind := kind_in(stderr, known):
            return self.error(kind, stderr)
        tail = stderr[-4000:].strip()
        said = f"; it said: {one_line(tail)}" if tail else ""
        return errors.Crashed(
            f"{self.agent} ended without a result, with exit code {exit_code}{said}",
            agent=self.agent,
            status=exit_code,
            stderr_tail=tail,
            hint="run `codeloupe doctor`, and try again; the raw output is stored",
            raw_output=self.raw_output,
            session_id=self.session_id,
        )


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
    # The first version that can be used.
    oldest: tuple[int, ...] = ()
    # The variables that hold a key; the one with the user's own directory of the program, which else is in the home;
    # and the login in it.
    key_names: tuple[str, ...]
    folder_variable: str
    folder_name: str
    login_file: str
    # The tools in each permission mode. None where the program knows more than we do.
    tools: Mapping[PermissionMode, tuple[str, ...]] | None = None

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

    @property
    def key_name(self) -> str | None:
        """The variable that holds a key."""
        return next((name for name in self.key_names if self.source.get(name)), None)

    @property
    def user_folder(self) -> Path:
        """The user's own directory of the program, with the login and the sessions."""
        return Path(self.source.get(self.folder_variable) or user_home(self.source) / self.folder_name).absolute()

    def credential_of(self, _request: AgentRequest) -> str | None:
        """The key that it asks with; None where the program has a login of its own."""
        return self.source.get(self.key_name or "")

    @abstractmethod
    def service_of(self, request: AgentRequest) -> str | None:
        """Where it asks, where the settings or the environment tell."""

    @abstractmethod
    def _environment(self, request: AgentRequest, root: Path) -> dict[str, str]:
        """The whole environment of the program."""

    def _arguments(self, _request: AgentRequest, _root: Path) -> tuple[str, ...]:
        """The program's arguments; files that they name are written below `root`. Raises InvalidRequest."""
        return ()

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the program being gone."""
        prompt = self._checked_prompt(request)
        path = await self._usable_program()
        reading, agent = self.reading(self.program, request, emit), self.name
        with call_folder() as root:
            command = Command(
                argv=(str(path), *self._arguments(request, root)),
                cwd=request.working_dir,
                environment=self._environment(request, root),
                timeout_seconds=request.timeout_seconds,
                max_output_bytes=256 * 1024,
                stdin=prompt.encode(),
            )
            try:
                completed = await stream(
                    command,
                    on_line=reading.take_line,
                    idle_timeout_seconds=request.idle_timeout_seconds,
                    is_over=lambda: reading.is_answered,
                )
            except StreamTimedOut as error:
                if not reading.is_answered:
                    raw, session = error.stdout.decode("utf-8", "replace"), reading.session_id
                    raise errors.TimedOut(
                        f"{agent}: {error.message}", agent=agent, hint=error.hint, raw_output=raw, session_id=session
                    ) from error
                # One that gave its answer and then did not end has still answered.
                completed = Completed(
                    0, error.stdout, error.stderr, command.timeout_seconds, skipped_lines=error.skipped_lines
                )
            except errors.ProcessError as error:
                is_missing = isinstance(error, errors.ProgramNotFound)
                kind, hint = (errors.NotInstalled, self.program.install) if is_missing else (errors.Crashed, error.hint)
                raise kind(f"{agent}: {error.message}", agent=agent, hint=hint) from error
            reading.raw_output = completed.stdout.decode("utf-8", "replace")
            if completed.skipped_lines and not reading.is_answered:
                raise reading.error(replace(CUT_OFF, what="gave an answer that is too long to be read"))
            reading.note_end(completed)
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
        return self._availability(path, version, problem)

    async def _version_of(self, path: Path) -> tuple[str | None, str]:
        """The version, and why it cannot be used, if so. Needs no network, so it gets none."""
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
        found = _VERSION.search(completed.stdout)
        if completed.exit_code != 0 or found is None:
            return None, f"{path} does not report its version; {self.program.install}"
        version = found[0].decode("ascii", "replace")
        return version, f"{path} is too old; {self.program.install}" if self._is_too_old(version) else ""

    def _is_too_old(self, version: str) -> bool:
        return tuple(map(int, re.findall(r"\d{1,9}", version)[:2])) < self.oldest

    def _availability(self, path: Path, version: str | None, problem: str = "") -> Availability:
        """What is known of a program that was found."""
        logged_in = self._has_login()
        return Availability(
            found=version is not None and not problem,
            version=version,
            logged_in=logged_in,
            how_to_fix=problem or ("" if logged_in else self._login_hint(path)),
            default_model=self.source.get(self.model_variable) or None,
            path=str(path),
        )

    def _checked_prompt(self, request: AgentRequest) -> str:
        """What the program reads. Raises InvalidRequest or PromptTooLong for a request that cannot be sent as it is."""
        validate(request, self.limits, agent=self.name)
        mode = request.permission_mode
        allowed = request.tools or () if self.tools is None else self.tools[mode]
        if missing := ", ".join(tool for tool in request.tools or () if tool not in allowed):
            hint = f"remove tools, or name some of: {', '.join(allowed)}"
            raise self._invalid(f"{self.name} has no {missing} in the permission mode {mode.value}", hint)
        if mode is PermissionMode.BYPASS:
            if not self.allow_bypass:
                raise self._invalid(
                    f"{self.name} was asked to bypass all permissions: it could run any command, change any file that"
                    " this user can, and send anything anywhere",
                    "use acceptEdits; or set allow_bypass in your own configuration, and only in a sandbox",
                )
            warning = "%s bypasses all permissions in %s: it can do anything that this user can"
            _log.warning(warning, self.name, request.working_dir)
        prompt = self._prompt_input(request)
        what = f"the prompt, with everything else sent to {self.name},"
        refuse_length(prompt, self.limits, agent=self.name, what=what)
        return prompt

    def find(self) -> Path:
        """The configured program, else the one on the PATH. Raises NotInstalled, with the command that installs it."""
        found = find_program(self.configured or self.program.command)
        if found is None:
            where = f"at {self.configured}" if self.configured else "on the PATH"
            message = f"{self.name} cannot be used: there is no {self.program.command} program {where}"
            raise errors.NotInstalled(message, agent=self.name, hint=self.program.install)
        # It is started in the directory of the request, not in ours.
        return Path(found).absolute()

    async def _usable_program(self) -> Path:
        """The program that a run starts. Raises NotInstalled, and NotLoggedIn where it is known not to have a login."""
        path = self.find()
        if self._has_login() is False:
            message = f"{self.name} cannot be called: {self._why_not_logged_in()}"
            raise errors.NotLoggedIn(message, agent=self.name, hint=self._how_to_log_in(path))
        return path

    def _has_login(self) -> bool | None:
        """Return whether there is a key or a login; None if that cannot be known."""
        try:
            return self.key_name is not None or (self.user_folder / self.login_file).is_file()
        except OSError:
            return None

    def _why_not_logged_in(self) -> str:
        """Return why the program cannot authenticate."""
        return "no key is in the environment, and the program has no login"

    def _how_to_log_in(self, _path: Path) -> str:
        """Return what to do without a login."""
        return self.program.log_in

    def _login_hint(self, path: Path) -> str:
        """Return what a user has to know about a login that is missing or unknown."""
        return self._how_to_log_in(path)

    def _prompt_input(self, request: AgentRequest) -> str:
        return full_prompt(request)

    def _invalid(self, message: str, hint: str) -> errors.InvalidRequest:
        return errors.InvalidRequest(message, agent=self.name, hint=hint, attempts=0)

    def _session_name(self, name: str) -> str:
        """The session of this name. Raises InvalidRequest: for another name a program may begin a new one."""
        try:
            return str(uuid.UUID(name))
        except ValueError as error:
            message = f"{self.name} cannot resume the session {name!r}: its sessions are named by UUIDs"
            hint = "give the session_id of an earlier result, or remove resume_session"
            raise self._invalid(message, hint) from error

    def _keeps_session(self, request: AgentRequest) -> bool:
        return self.keep_sessions or request.resume_session is not None

    def _link_sessions(self, request: AgentRequest, folder: Path, name: str) -> None:
        """Let the directory of a call lead to the user's own sessions, where the call needs them."""
        if self.keep_sessions:
            self.user_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.user_folder / name).mkdir(mode=0o700, exist_ok=True)
        if self._keeps_session(request):
            (folder / name).symlink_to(self.user_folder / name)
