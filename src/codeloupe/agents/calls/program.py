"""Vendors' agent programs: where one is, its version, and one run of it, read line by line."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from codeloupe.errors import (
    AgentError,
    ConnectionFailed,
    Crashed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    ProcessError,
    ProgramNotFound,
    PromptTooLong,
    RateLimited,
    Refused,
    TimedOut,
)
from codeloupe.model.agent import AgentLimits, AgentRequest, PermissionMode, TokenUsage
from codeloupe.system.command import Command, Completed, find_program
from codeloupe.system.environment import NETWORK_NAMES, inherited_environment
from codeloupe.system.running import run
from codeloupe.system.streaming import StreamTimedOut, stream
from codeloupe.system.temporary import temporary_directory

PERSON_NAMES = ("USER", "LOGNAME")
"""Who the user is: some programs look their login up by it. Only for a program that runs in the user's home."""

_QUIET = {"NO_COLOR": "1", "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "DISABLE_AUTOUPDATER": "1"}


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
    source: Mapping[str, str], *, home: Path, temporary: Path, names: Iterable[str], settings: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of an agent program; whatever is not named here does not reach it.

    Of `source` it has the search path without relative entries, the time zone, `NETWORK_NAMES` and `names`, where
    they are set and not empty. Telemetry and updates are off. `settings` has the last word.
    """
    kept = {name: source[name] for name in ("TZ", *NETWORK_NAMES, *names) if source.get(name)}
    return {
        **inherited_environment(),
        **_search_path(source),
        **kept,
        **_QUIET,
        "HOME": str(home),
        "TMPDIR": str(temporary),
        **settings,
    }


def _search_path(source: Mapping[str, str]) -> dict[str, str]:
    # A relative entry means the current directory, which may be the reviewed tree with programs of its own.
    entries = [entry for entry in source.get("PATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    return {"PATH": os.pathsep.join(entries)} if entries else {}


KEPT_OUTPUT_BYTES = 256 * 1024
_VERSION_SECONDS = 20.0
_VERSION = re.compile(rb"\d+\.\d+[\w.+-]*")
_DEAD_PROXY = "http://127.0.0.1:9"


class Program(Struct, frozen=True, kw_only=True):
    """A program as its users know it. `install` is a command; `log_in` says what to set or run."""

    agent: str
    command: str
    install: str
    log_in: str


class Reading(Protocol):
    """What takes the messages of one run in order."""

    @property
    def session_id(self) -> str:
        """The session, once it was told."""

    @property
    def is_answered(self) -> bool:
        """Whether the run is over and has told how, so that only the program's end is left."""

    def take(self, message: Mapping[str, Any]) -> None:
        """Take the next message."""


def found_program(program: Program, configured: str | None) -> Path:
    """The configured program, else the one on the PATH. Raises NotInstalled, with the command that installs it."""
    found = find_program(configured or program.command)
    if found is None:
        where = f"at {configured}" if configured else "on the PATH"
        raise NotInstalled(
            f"{program.agent} cannot be used: there is no {program.command} program {where}",
            agent=program.agent,
            hint=program.install,
        )
    # It is started in the directory of the request, not in ours.
    return Path(found).absolute()


async def version_of(program: Program, path: Path, source: Mapping[str, str]) -> tuple[str | None, str]:
    """The version, or None and what is wrong. Needs no network, so it gets none."""
    proxies = {"HTTPS_PROXY": _DEAD_PROXY, "HTTP_PROXY": _DEAD_PROXY, "GEMINI_CLI_NO_RELAUNCH": "true"}
    with throw_away_places() as places:
        settings = {**proxies, "CODEX_HOME": str(places.home)}
        command = Command(
            argv=(str(path), "--version"),
            cwd=places.root,
            environment=agent_environment(
                source, home=places.home, temporary=places.temporary, names=(), settings=settings
            ),
            timeout_seconds=_VERSION_SECONDS,
            max_output_bytes=64 * 1024,
        )
        try:
            completed = await run(command)
        except ProcessError as error:
            return None, f"{error.message}; {program.install}"
    version = _VERSION.search(completed.stdout)
    if completed.exit_code != 0 or version is None:
        return None, f"{path} does not report its version; {program.install}"
    return version[0].decode("ascii", "replace"), ""


async def run_program(
    program: Program, command: Command, reading: Reading, *, idle_timeout_seconds: float | None
) -> Completed:
    """Run a program to its end and hand over each message that it prints; a line that holds none is passed over.

    Raises NotInstalled, TimedOut, Crashed, or OutputInvalid where its last message is too long; the program is gone in
    every case. One that told its answer and then did not end has still answered.
    """

    def take(line: bytes) -> None:
        message = message_on(line)
        if message is not None:
            reading.take(message)

    try:
        completed = await stream(
            command, on_line=take, idle_timeout_seconds=idle_timeout_seconds, is_over=lambda: reading.is_answered
        )
    except StreamTimedOut as error:
        if not reading.is_answered:
            raise _timed_out(program, error, reading) from error
        return Completed(0, error.stdout, error.stderr, command.timeout_seconds)
    except ProcessError as error:
        raise _not_run(program, error) from error
    if completed.skipped_lines and not reading.is_answered:
        raise OutputInvalid(
            f"{program.agent} gave an answer that is too long to be read",
            agent=program.agent,
            hint="ask for a shorter answer",
            raw_output=completed.stdout.decode("utf-8", "replace"),
            session_id=reading.session_id,
            cut_off=True,
        )
    return completed


def message_on(line: bytes) -> Mapping[str, Any] | None:
    """The message on a line of output, or None for a line that holds none."""
    try:
        # Programs pass on bytes of files and tools: what is no UTF-8 in a text does not take the message with it.
        message = json.loads(line.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def refuse_bypass(request: AgentRequest, *, allowed: bool, agent: str) -> None:
    """Raises InvalidRequest for a request that bypasses permissions where that was not allowed on purpose."""
    if request.permission_mode is PermissionMode.BYPASS and not allowed:
        raise InvalidRequest(
            f"{agent} was asked to bypass all permissions: it could run any command, change any file that this user"
            " can, and send anything anywhere",
            agent=agent,
            hint="use acceptEdits; or set allow_bypass in your own configuration, and only in a sandbox",
        )


def refuse_length(prompt: str, limits: AgentLimits, *, agent: str) -> None:
    """Raises PromptTooLong for a prompt that is too long with all that was put around it."""
    sizes = (
        (len(prompt), limits.max_prompt_characters, "characters"),
        (len(prompt.encode()), limits.max_prompt_bytes, "bytes"),
    )
    for size, most, unit in sizes:
        if most is not None and size > most:
            raise PromptTooLong(
                f"the prompt, with all that {agent} is sent beside it, has {size:,} {unit}; it takes at most {most:,}",
                agent=agent,
                hint="send less at once, or use an agent that takes more",
            )


def _timed_out(program: Program, error: StreamTimedOut, reading: Reading) -> TimedOut:
    return TimedOut(
        f"{program.agent}: {error.message}",
        agent=program.agent,
        hint=error.hint,
        raw_output=error.stdout.decode("utf-8", "replace"),
        session_id=reading.session_id,
    )


def _not_run(program: Program, error: ProcessError) -> AgentError:
    if isinstance(error, ProgramNotFound):
        return NotInstalled(f"{program.agent}: {error.message}", agent=program.agent, hint=program.install)
    return Crashed(f"{program.agent}: {error.message}", agent=program.agent, hint=error.hint)


_MAX_TEXT_CHARACTERS = 500
_TAIL_CHARACTERS = 4000
_MAX_SEARCHED_CHARACTERS = 20_000
_SECONDS_BY_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RETRY_AFTER = re.compile(
    r"(?:try again|retry(?:ing)?)\s(?:after|in)\s(\d{1,9}(?:\.\d{1,9})?)\s?(ms|s|m|h|d)", re.IGNORECASE
)


class Kind(Struct, frozen=True):
    """A kind of failure: its error, what happened in words behind the agent's name, and what to do next.

    An empty hint stands for the program's own: how to log in, how to install it, or which model was asked for.
    """

    error: type[AgentError]
    what: str
    hint: str = ""


NOT_LOGGED_IN = Kind(NotLoggedIn, "has no login that the service accepts, or no credit")
LIMITED = Kind(RateLimited, "sent too many requests, or used up a quota", "wait a while")
OVERLOADED = Kind(Overloaded, "found the service overloaded or failing", "try again later, or another model")
UNREACHED = Kind(
    ConnectionFailed,
    "got no usable reply from the service",
    "check the network, the proxy and the address of the service",
)
TOO_LONG = Kind(PromptTooLong, "was given a prompt that is too long", "send less at once")
CUT_OFF = Kind(OutputInvalid, "was cut off in the middle of its answer", "ask for a shorter answer")
EMPTY = Kind(OutputInvalid, "ended well, but its answer is empty", "ask again, or with another prompt or model")
REFUSED = Kind(
    Refused, "was refused an answer by the model or its safeguards", "rephrase the request, or ask another model"
)
INVALID = Kind(InvalidRequest, "sent a request that the service rejected")
TOO_OLD = Kind(NotInstalled, "does not know a flag that keeps it safe: it is too old")
WITHOUT_NODE = Kind(NotInstalled, "needs Node.js, which is not on the PATH", "install Node.js 20 or newer")

_BY_STATUS = {
    401: NOT_LOGGED_IN,
    402: NOT_LOGGED_IN,
    403: NOT_LOGGED_IN,
    408: UNREACHED,
    413: TOO_LONG,
    429: LIMITED,
}
Patterns = Iterable[tuple[re.Pattern[str], Kind]]


class Failure(Struct, frozen=True, kw_only=True):
    """What a program told of a failure. `output` is what the model said before it, without what the program says."""

    program: Program
    text: str = ""
    status: int | None = None
    asked_model: str | None = None
    model: str | None = None
    retry_after_seconds: float | None = None
    session_id: str = ""
    raw_output: str = ""
    output: str = ""
    cost_usd: float | None = None
    usage: TokenUsage | None = None


def kind_of_status(status: int | None) -> Kind | None:
    """What a status means, or None for one that is no failure."""
    if status is None or status < 400:
        return None
    return _BY_STATUS.get(status) or (OVERLOADED if status >= 500 else INVALID)


def kind_in(text: str, patterns: Patterns) -> Kind | None:
    """The kind of the first pattern that is in the text."""
    searched = text[:_MAX_SEARCHED_CHARACTERS]
    return next((kind for pattern, kind in patterns if pattern.search(searched)), None)


def error_of(kind: Kind, failure: Failure) -> AgentError:
    """The error of a failure whose kind is known."""
    agent = failure.program.agent
    status = "" if failure.status is None else f" ({failure.status})"
    text = one_line(failure.text)
    more: dict[str, Any] = {"raw_output": failure.raw_output, "session_id": failure.session_id}
    message = f"{agent} {kind.what}{status}{': ' if text else ''}{text}"
    if kind.error is RateLimited:
        more["retry_after_seconds"] = failure.retry_after_seconds
    if kind.error is OutputInvalid:
        more |= {"output": failure.output, "cut_off": kind is CUT_OFF}
    error = kind.error(message, agent=agent, hint=kind.hint or _own_hint(kind, failure), **more)
    error.cost_usd, error.usage = failure.cost_usd, failure.usage
    if isinstance(error, OutputInvalid):
        error.model = failure.model
    return error


def crashed(failure: Failure, *, exit_code: int, stderr: str) -> Crashed:
    """The error of a program that ended without telling why."""
    tail = stderr[-_TAIL_CHARACTERS:].strip()
    said = f"; it said: {one_line(tail)}" if tail else ""
    return Crashed(
        f"{failure.program.agent} ended without a result, with exit code {exit_code}{said}",
        agent=failure.program.agent,
        status=exit_code,
        stderr_tail=tail,
        hint="run `codeloupe doctor`, and try again; the raw output is kept",
        raw_output=failure.raw_output,
        session_id=failure.session_id,
    )


def retry_after_in(text: str) -> float | None:
    """The seconds that a sentence such as "try again in 1.5s" names."""
    found = _RETRY_AFTER.search(text[:_MAX_SEARCHED_CHARACTERS])
    return float(found[1]) * _SECONDS_BY_UNIT[found[2].lower()] if found else None


def one_line(text: str) -> str:
    """The text on one line, and not too long for a message."""
    line = " ".join(text[:_MAX_SEARCHED_CHARACTERS].split())
    return line if len(line) <= _MAX_TEXT_CHARACTERS else f"{line[:_MAX_TEXT_CHARACTERS]} ..."


def _own_hint(kind: Kind, failure: Failure) -> str:
    if kind.error is NotLoggedIn:
        return failure.program.log_in
    if kind.error is NotInstalled:
        return failure.program.install
    return f"check the model, which was {failure.asked_model or 'the default of the program'}"


_MAX_DETAIL_CHARACTERS = 80
_LARGEST_COUNT = 10**15


def text_of(value: object) -> str:
    """The value if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int:
    """The value if it is a number that can be a count, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= _LARGEST_COUNT else 0


def cost_of(value: object) -> float | None:
    """The value if it is a number that can be a price in dollars, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LARGEST_COUNT else None


def mapping_of(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_of(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def detail_of(text: str) -> str:
    """The first line of what a tool was used on, cut to a length for a display."""
    return text.strip().partition("\n")[0][:_MAX_DETAIL_CHARACTERS]


_SEPARATORS = re.compile(r"[-_.]+")
_FOLDER = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-[^-]+)?\.(?:dist|egg)-info")


def installed_version(distribution: str) -> str | None:
    """Its version, or None when it is not installed."""
    wanted = _normal(distribution)
    for place in sys.path:
        try:
            names = os.listdir(place or os.curdir)  # noqa: PTH208 - an entry of the path is a text, and names are wanted
        except OSError:
            continue  # an archive, or a place that is not there
        for name in names:
            folder = _FOLDER.fullmatch(name)
            if folder and _normal(folder["name"]) == wanted:
                return folder["version"]
    return None


def _normal(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()
