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

from msgspec import Struct

from codeloupe import errors
from codeloupe.agents.calls.failures import Failure, Program
from codeloupe.agents.calls.validation import refuse_length, validate
from codeloupe.model.agent import (
    AgentLimits,
    AgentRequest,
    AgentResult,
    Availability,
    PermissionMode,
    full_prompt,
)
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import NETWORK_NAMES, Command, Completed, find_program, inherited_environment, run
from codeloupe.system.regex import regex
from codeloupe.system.streaming import StreamTimedOut, stream

PERSON_NAMES = ("USER", "LOGNAME")
"""Who the user is: some programs look their login up by it. Only for a program that runs in the user's home."""

_KEPT_OUTPUT_BYTES = 256 * 1024
_VERSION_SECONDS = 20.0
_VERSION = regex(rb"\d+\.\d+[\w.+-]*")
_DEAD_PROXY = "http://127.0.0.1:9"
_QUIET = {"NO_COLOR": "1", "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "DISABLE_AUTOUPDATER": "1"}
_MAX_DETAIL_CHARACTERS = 80
_LARGEST_COUNT = 10**15
_SEPARATORS = regex(r"[-_.]+")
_PACKAGE_FOLDER = regex(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-[^-]+)?\.(?:dist|egg)-info")
_log = logging.getLogger(__name__)


class Places(Struct, frozen=True):
    """Empty directories for one call: a home, one for temporary files, and `root` above both for files of ours."""

    root: Path
    home: Path
    temporary: Path


@contextmanager
def throw_away_places() -> Iterator[Places]:
    """Places that only this user can enter, and that are gone afterwards."""
    with temporary_directory() as root:
        places = Places(root, root / "home", root / "tmp")
        places.home.mkdir()
        places.temporary.mkdir()
        yield places


def user_home(source: Mapping[str, str]) -> Path:
    """The user's own home directory, where a program keeps its login."""
    return Path(source.get("HOME") or Path.home())


def agent_environment(
    source: Mapping[str, str],
    places: Places,
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
        "HOME": str(home or places.home),
        "TMPDIR": str(places.temporary),
        **settings,
    }


def found_program(program: Program, configured: str | None) -> Path:
    """The configured program, else the one on the PATH. Raises NotInstalled, with the command that installs it."""
    found = find_program(configured or program.command)
    if found is None:
        where = f"at {configured}" if configured else "on the PATH"
        raise errors.NotInstalled(
            f"{program.agent} cannot be used: there is no {program.command} program {where}",
            agent=program.agent,
            hint=program.install,
        )
    # It is started in the directory of the request, not in ours.
    return Path(found).absolute()


async def version_of(program: Program, path: Path, source: Mapping[str, str]) -> tuple[str | None, str]:
    """The version, or None and what is wrong. Needs no network, so it gets none."""
    quiet = {"HTTPS_PROXY": _DEAD_PROXY, "HTTP_PROXY": _DEAD_PROXY, "GEMINI_CLI_NO_RELAUNCH": "true"}
    with throw_away_places() as places:
        command = Command(
            argv=(str(path), "--version"),
            cwd=places.root,
            environment=agent_environment(source, places, settings={**quiet, "CODEX_HOME": str(places.home)}),
            timeout_seconds=_VERSION_SECONDS,
            max_output_bytes=64 * 1024,
        )
        try:
            completed = await run(command)
        except errors.ProcessError as error:
            return None, f"{error.message}; {program.install}"
    version = _VERSION.search(completed.stdout)
    if completed.exit_code != 0 or version is None:
        return None, f"{path} does not report its version; {program.install}"
    return version[0].decode("ascii", "replace"), ""


def installed_version(distribution: str) -> str | None:
    """The version of an optional package, or None when it is not installed.

    Read from the names of the folders that installers leave beside packages: loading `importlib.metadata` takes longer
    than everything else that chooses an agent.
    """
    wanted = _SEPARATORS.sub("-", distribution).lower()
    for place in sys.path:
        try:
            names = os.listdir(place or os.curdir)  # noqa: PTH208 - an entry of the path is a text, and names are wanted
        except OSError:
            continue  # an archive, or a place that is not there
        for name in names:
            folder = _PACKAGE_FOLDER.fullmatch(name)
            if folder and _SEPARATORS.sub("-", folder["name"]).lower() == wanted:
                return folder["version"]
    return None


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
        return float(value) if 0 <= value <= _LARGEST_COUNT else None

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
        written = {model: models.part(model) for model in reversed(list(models))}
        return max(
            written,
            key=lambda model: written[model].count("outputTokens") or written[model].count("output_tokens"),
            default=None,
        )


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
    return text.strip().partition("\n")[0][:_MAX_DETAIL_CHARACTERS]


class Reading(ABC):
    """Takes the messages of one run in order, and reads its end. `is_answered`: only the program's end is left."""

    def __init__(self, program: Program, request: AgentRequest, emit: AgentEventSink) -> None:
        self.program = program
        self.request = request
        self.emit = emit
        self.session_id = ""
        self.is_answered = False

    @abstractmethod
    def take(self, message: Message) -> None:
        """Take the next message."""

    @abstractmethod
    def answer(self, completed: Completed) -> AgentResult:
        """The answer of a run that ended. Raises the AgentError that the end means."""

    def failure(self, text: str = "", raw_output: str = "", **more: Any) -> Failure:
        """What is known of every failure of this run."""
        common: Any = {"program": self.program, "asked_model": self.request.model, "session_id": self.session_id}
        return Failure(text=text, raw_output=raw_output, **common, **more)


async def run_program(
    program: Program, command: Command, reading: Reading, *, idle_timeout_seconds: float | None
) -> Completed:
    """Run a program to its end and hand over each message that it prints; a line that holds none is passed over.

    Raises NotInstalled, TimedOut, Crashed, or OutputInvalid where its last message is too long; the program is gone in
    every case. One that told its answer and then did not end has still answered.
    """
    agent = program.agent

    def take(line: bytes) -> None:
        message = message_on(line)
        if message is not None:
            reading.take(message)

    try:
        completed = await stream(
            command, on_line=take, idle_timeout_seconds=idle_timeout_seconds, is_over=lambda: reading.is_answered
        )
    except StreamTimedOut as error:
        if reading.is_answered:
            return Completed(0, error.stdout, error.stderr, command.timeout_seconds)
        raise errors.TimedOut(
            f"{agent}: {error.message}",
            agent=agent,
            hint=error.hint,
            raw_output=error.stdout.decode("utf-8", "replace"),
            session_id=reading.session_id,
        ) from error
    except errors.ProgramNotFound as error:
        raise errors.NotInstalled(f"{agent}: {error.message}", agent=agent, hint=program.install) from error
    except errors.ProcessError as error:
        raise errors.Crashed(f"{agent}: {error.message}", agent=agent, hint=error.hint) from error
    if completed.skipped_lines and not reading.is_answered:
        raise errors.OutputInvalid(
            f"{agent} gave an answer that is too long to be read",
            agent=agent,
            hint="ask for a shorter answer",
            raw_output=completed.stdout.decode("utf-8", "replace"),
            session_id=reading.session_id,
            cut_off=True,
        )
    return completed


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
    def service_of(self, _request: AgentRequest) -> str | None:
        """Where it asks, where the settings or the environment tell."""

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the program being gone."""
        prompt = self.checked_prompt(request)
        path = await self.usable_program()
        reading = self.reading(self.program, request, emit)
        with throw_away_places() as places:
            command = Command(
                argv=(str(path), *self.arguments(request, places)),
                cwd=request.working_dir,
                environment=self.environment(request, places),
                timeout_seconds=request.timeout_seconds,
                max_output_bytes=_KEPT_OUTPUT_BYTES,
                stdin=prompt.encode(),
            )
            completed = await run_program(
                self.program, command, reading, idle_timeout_seconds=request.idle_timeout_seconds
            )
            return self.finished(reading.answer(completed), request, places)

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing and never raises."""
        try:
            path = self.find()
        except errors.NotInstalled as error:
            return Availability(found=False, how_to_fix=error.hint)
        version, problem = await version_of(self.program, path, self.source)
        return self.availability(path, version, problem or self.problem_with(path, version))

    def availability(self, path: Path, version: str | None, problem: str = "") -> Availability:
        """What is known of a program that was found."""
        logged_in = self.has_login()
        return Availability(
            found=version is not None and not problem,
            version=version,
            logged_in=logged_in,
            how_to_fix=problem or ("" if logged_in else self.how_to_log_in(path)),
            default_model=self.source.get(self.model_variable) or None,
            path=str(path),
        )

    def checked_prompt(self, request: AgentRequest) -> str:
        """What the program reads. Raises InvalidRequest or PromptTooLong for a request that cannot be sent as it is."""
        validate(request, self.limits, agent=self.name)
        if problem := self.problem_with_tools(request):
            raise self.invalid(*problem)
        if request.permission_mode is PermissionMode.BYPASS:
            if not self.allow_bypass:
                raise self.invalid(
                    f"{self.name} was asked to bypass all permissions: it could run any command, change any file that"
                    " this user can, and send anything anywhere",
                    "use acceptEdits; or set allow_bypass in your own configuration, and only in a sandbox",
                )
            _log.warning(
                "%s bypasses all permissions in %s: it may do whatever this user can", self.name, request.working_dir
            )
        prompt = self.prompt_input(request)
        what = f"the prompt, with all that {self.name} is sent beside it,"
        refuse_length(prompt, self.limits, agent=self.name, what=what)
        return prompt

    def find(self) -> Path:
        """The program. Raises NotInstalled."""
        return found_program(self.program, self.configured)

    async def usable_program(self) -> Path:
        """The program that a run starts. Raises NotInstalled, and NotLoggedIn where it is known not to have a login."""
        path = self.find()
        if self.has_login() is False:
            raise errors.NotLoggedIn(
                f"{self.name} cannot be asked: there is no key in the environment, and no login of the program",
                agent=self.name,
                hint=self.program.log_in,
            )
        return path

    def problem_with(self, _path: Path, _version: str | None) -> str:
        """Why this version cannot be used, or nothing."""
        return ""

    def how_to_log_in(self, _path: Path) -> str:
        """What to do where there is no login."""
        return self.program.log_in

    def invalid(self, message: str, hint: str) -> errors.InvalidRequest:
        """The error of a request that cannot be sent as it is; nothing was started."""
        return errors.InvalidRequest(message, agent=self.name, hint=hint, attempts=0)

    def session_name(self, name: str) -> str:
        """The session of this name. Raises InvalidRequest: for another name a program may begin a new one."""
        try:
            return str(uuid.UUID(name))
        except ValueError as error:
            raise self.invalid(
                f"{self.name} cannot resume the session {name!r}: its sessions are named by UUIDs",
                "give the session_id of an earlier result, or leave resume_session out",
            ) from error

    def keeps_session(self, request: AgentRequest) -> bool:
        """Whether the session of a request is kept in the user's own directory of the program."""
        return self.keep_sessions or request.resume_session is not None

    @abstractmethod
    def has_login(self) -> bool | None:
        """Whether there is a key or a login. None when nobody can know."""

    def problem_with_tools(self, _request: AgentRequest) -> tuple[str, str] | None:
        """What is wrong with the tools that a request names, and a hint."""
        return None

    def prompt_input(self, request: AgentRequest) -> str:
        """The prompt as the program takes it for text."""
        return full_prompt(request)

    def arguments(self, _request: AgentRequest, _places: Places) -> tuple[str, ...]:
        """The program's arguments; files that they name are written to the places. Raises InvalidRequest."""
        return ()

    @abstractmethod
    def environment(self, request: AgentRequest, places: Places) -> dict[str, str]:
        """The whole environment of the program."""

    def finished(self, result: AgentResult, _request: AgentRequest, _places: Places) -> AgentResult:
        """The result, with what the program left in its places."""
        return result
