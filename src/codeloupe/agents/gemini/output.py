"""What the gemini program reads and prints: the prompt as it takes it for text, and what its end means.

It reads every file that is mentioned as `@path`, and the directory of that name with all its files; a diff is full of
`@`. No setting turns this off. So an invisible character is put behind each `@`, which makes it the name of no file,
and the model is told about it.

An exit code of 0 tells nothing: the program ends with it also when it was ended from outside, when the service sent
nothing, when it sent nothing itself, and when it did not get rid of its output in time, which is then cut. The other
format that it has, one document at its end, is cut for every long answer. An answer that a model broke off since its
tokens were used up is not marked as such in either. Other exit codes are the HTTP status modulo 256, or a number of
its own; the status is also in its stderr and often in its sentences.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from codeloupe.agents.calls import failures as kinds
from codeloupe.agents.calls.program import Message, Reading
from codeloupe.agents.calls.schemas import schema_words
from codeloupe.errors import AgentError, Crashed, InvalidRequest, TurnsExhausted
from codeloupe.model.agent import AgentRequest, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken, full_prompt
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

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
    kinds.TOO_LONG, what="ended at once and sent nothing, as it does when a prompt does not fit the window of the model"
)
_TURNS = kinds.Kind(TurnsExhausted, "used all its turns without an answer", "allow more turns, or ask for less")
_UNKNOWN = kinds.Kind(Crashed, "ended without an answer", "try again; the raw output is kept")
_SETTINGS = kinds.Kind(
    InvalidRequest,
    "cannot read its settings, which may be those in the working directory",
    "mend .gemini/settings.json there, or use another agent",
)
_BY_EXIT_CODE = {41: kinds.NOT_LOGGED_IN, 42: kinds.INVALID, 52: _SETTINGS, 53: _TURNS, 55: kinds.TOO_OLD}
_STATUS_IN_TEXT = regex(r'"code":\s?([45]\d\d)\b')
_STATUS_IN_STDERR = regex(r"^\s{0,4}(?:status|code): ([45]\d\d)\b", re.MULTILINE)
_DELAY_MS = regex(r"^\s{0,4}retryDelayMs: (\d{1,12})", re.MULTILINE)
# These words say more than a status does.
_ABOVE_STATUS = kinds.patterns(
    (r"max session turns", _TURNS),
    (r"api[ _]key[ _](?:not valid|invalid|expired)|must specify the GEMINI_API_KEY", kinds.NOT_LOGGED_IN),
    (
        r"error authenticating|authorization is required|requires billing|billing (?:account )?is (?:disabled|not)",
        kinds.NOT_LOGGED_IN,
    ),
    (
        r"maximum number of tokens|token count .{0,40}exceeds|context window|request payload size exceeds",
        kinds.TOO_LONG,
    ),
    (r"blocked due to|prohibited content|recitation|blocklist", kinds.REFUSED),
    (r"returned an empty response", kinds.EMPTY),
)
_BELOW_STATUS = kinds.patterns(
    (r"quota|rate limit|resource.?exhausted|too many requests", kinds.LIMITED),
    (r"overloaded|high demand|unavailable|no capacity", kinds.OVERLOADED),
    (r"model .{0,80}not found|is not found for api version", kinds.INVALID),
    (
        r"without a finish reason|malformed|incomplete json|invalid stream|unexpected token|not valid json",
        kinds.UNREACHED,
    ),
    (
        r"fetch failed|terminated|socket|econn|enotfound|eai_again|etimedout|certificate|network|timed? ?out",
        kinds.UNREACHED,
    ),
)
_BY_STDERR = kinds.patterns(
    (r"unknown arguments?:", kinds.TOO_OLD),
    (r"node.{0,3}: no such file", kinds.WITHOUT_NODE),
)


def prompt_input(request: AgentRequest) -> str:
    """What the program reads: the prompt, what it has no place of its own for, and the schema in words."""
    head = ""
    if request.append_system_prompt and request.system_prompt is None:
        head = f"{request.append_system_prompt}\n\n"
    tail = "" if request.output_schema is None else schema_words(request.output_schema)
    text = f"{head}{full_prompt(request)}{tail}"
    if _MENTION.search(text):
        return _WARNING + _MENTION.sub(f"@{JOINER}", text)
    # A line before it, since a prompt that begins with a slash would be a command of the program.
    return f"\n{text}" if text.startswith("/") else text


def restored(answer: str) -> str:
    """The answer of a model with a plain `@` where it repeats one with the invisible character."""
    return _ESCAPED_JOINER.sub("@", answer.replace(f"@{JOINER}", "@"))


class GeminiReading(Reading):
    """Takes the messages of one run in order."""

    def __init__(self, program: kinds.Program, request: AgentRequest, emit: AgentEventSink) -> None:
        super().__init__(program, request, emit)
        self._model: str | None = None
        self._has_repeated_prompt = False
        self._pieces: list[str] = []
        self._turns = 0
        self._is_answering = False
        self._used: dict[str, str] = {}
        self._denials: list[str] = []
        self._last_error = ""
        self._result: Message | None = None

    def take(self, message: Message) -> None:
        """Take the next message."""
        agent = self.program.agent
        match message.get("type"), message.get("role"):
            case "init", _:
                self.session_id = message.text("session_id")
                self._model = message.text("model") or None
            case "message", "user":
                self._has_repeated_prompt = True
            case "message", "assistant":
                self._begin_turn()
                self._pieces.append(message.text("content"))
            case "tool_use", _:
                self._begin_turn()
                tool, detail = message.text("tool_name"), message.part("parameters").detail(_DETAIL_NAMES)
                self._used[message.text("tool_id")] = f"{tool} {detail}".strip()
                self.emit(ToolUsed(agent, tool, detail))
            case "tool_result", _:
                self._take_tool_result(message)
            case "error", _:
                self._last_error = message.text("message")
            case "result", _:
                self._result, self.is_answered = message, True
                usage = _usage(message.part("stats"))
                if usage.input_tokens:
                    self.emit(TokensSpent(agent, usage.input_tokens, usage.output_tokens))

    def answer(self, completed: Completed) -> AgentResult:
        """The answer of a run that ended. Raises the AgentError that its end means."""
        exit_code, stderr = completed.exit_code, completed.stderr
        raw_output = completed.stdout.decode("utf-8", "replace")
        output = restored("".join(self._pieces))
        failure = self.failure(self._last_error, raw_output, model=self._model, output=output)
        if self._result is None:
            # It loses what is left of its output when it ends, and repeats the prompt there before it sends it.
            if exit_code == 0 and self.session_id and not self._has_repeated_prompt:
                raise kinds.error_of(_SENT_NOTHING, failure)
            raise _cut_short(failure, exit_code=exit_code, stderr=stderr)
        stats = self._result.part("stats")
        failure = replace(failure, usage=_usage(stats))
        if self._result.get("status") != "success":
            text = self._result.part("error").text("message") or self._last_error
            raise failed(replace(failure, text=text), exit_code=exit_code, stderr=stderr)
        if not output.strip():
            raise kinds.error_of(kinds.EMPTY if stats.part("models") else _SENT_NOTHING, failure)
        return AgentResult(
            success=True,
            output=output,
            agent=self.program.agent,
            session_id=self.session_id,
            duration_ms=round(completed.seconds * 1000),
            num_turns=self._turns,
            usage=_usage(stats),
            # Before the one that answers, the program may ask a small one which to ask.
            model=stats.busiest("models") or self._model or self.request.model,
            permission_denials=tuple(self._denials),
            raw_output=raw_output,
        )

    def _begin_turn(self) -> None:
        if not self._is_answering:
            self._is_answering = True
            self._turns += 1
            self.emit(TurnTaken(self.program.agent, self._turns))

    def _take_tool_result(self, message: Message) -> None:
        self._is_answering = False
        # What was said before a tool was used is not the answer.
        self._pieces.clear()
        used = self._used.pop(message.text("tool_id"), "")
        error = message.part("error")
        words = error.text("message")
        is_blocked = message.text("output").startswith(_BLOCKED)
        if is_blocked or error.get("type") in _DENIED or any(phrase in words for phrase in _DENIED_IN_WORDS):
            self._denials.append(used)


def _usage(stats: Message) -> TokenUsage:
    sent = stats.count("input_tokens")
    # What a model thought counts as output too, but stands only in the total.
    written = max(stats.count("output_tokens"), stats.count("total_tokens") - sent)
    return TokenUsage(input_tokens=sent, cached_tokens=stats.count("cached"), output_tokens=written)


def failed(failure: kinds.Failure, *, exit_code: int, stderr: str) -> AgentError:
    """The error of a run that told a failure, whatever its exit code."""
    status = _status(failure.text, exit_code, stderr)
    kind = (
        kinds.kind_in(failure.text, _ABOVE_STATUS)
        or kinds.kind_of_status(status)
        or kinds.kind_in(failure.text, _BELOW_STATUS)
        or _BY_EXIT_CODE.get(exit_code, _UNKNOWN)
    )
    told = _DELAY_MS.findall(stderr)
    wait = int(told[-1]) / 1000 if told else kinds.retry_after_in(failure.text)
    return kinds.error_of(kind, replace(failure, status=status, retry_after_seconds=wait))


def _cut_short(failure: kinds.Failure, *, exit_code: int, stderr: str) -> AgentError:
    words = stderr.strip()
    if kinds.kind_in(words, _BY_STDERR) is None and exit_code:
        if known := _BY_EXIT_CODE.get(exit_code):
            return kinds.error_of(known, replace(failure, text=words))
        if _status("", exit_code, stderr) is not None:
            return failed(replace(failure, text=words), exit_code=exit_code, stderr=stderr)
    return kinds.ended_without_result(failure, _BY_STDERR, exit_code=exit_code, stderr=words)


def _status(text: str, exit_code: int, stderr: str) -> int | None:
    told = _STATUS_IN_TEXT.findall(text) or _STATUS_IN_STDERR.findall(stderr)
    if told:
        return int(told[-1])
    # Exit codes from 41 to 55 are the program's own; a status from 400 to 511 leaves 144 to 255, and 529 leaves 17.
    by_code = exit_code + 256
    if exit_code == 529 % 256:
        return 529
    return by_code if 400 <= by_code < 512 else None
