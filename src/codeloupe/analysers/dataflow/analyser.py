"""Data flow in Python files, read in a child process: what a request holds, followed to where it does harm."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import ValidationError, convert

from codeloupe.analysers import programs
from codeloupe.analysers.dataflow import Answer
from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget, is_test_file, read_regular_file
from codeloupe.errors import AnalyserFailed, OutputTooLarge, ProcessTimedOut
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

# Without any of these there is nothing to find in a file, and no child is started for it.
_WORTH_READING = regex(
    rb"request|environ|RequestHandler|\.recv|random|set_cookie|CERT_NONE|hashlib|hmac|execute|shell\s*=|os\.system|"
    rb"os\.popen|\beval\(|\bexec\(|@\w+\.(?:get|post|put|patch|delete|route|websocket)\(|"
    rb"assert .{0,200}\.(?:is_|has_|can_|check_)"
)


class DataflowAnalyser:
    """Outside text that reaches a query, a command, a path, a page and the like; and secrets made by chance.

    Test files are not read: what they pass around is made up. `program` is the Python interpreter of the child; None is
    the one that runs now.
    """

    name = "dataflow"
    needs_only_added_lines = False

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    def accepts(self, path: str) -> bool:
        """Whether the name is that of a Python file that is no test."""
        return path.lower().endswith((".py", ".pyw")) and not is_test_file(path)

    async def version(self) -> str:
        """The version of Python whose parser it uses."""
        return platform.python_version()

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Follow data through the files. One that cannot be read, or ends the child, is in `failed`.

        Raises AnalyserFailed when the child's answer cannot be read, or a ProcessError.
        """
        deadline = time.monotonic() + target.timeout_seconds
        answers: list[Answer] = []
        failed: dict[str, str] = {}

        async def attempt(files: Sequence[str]) -> str | None:
            left = max(deadline - time.monotonic(), 0.1)
            added = {file: sorted(target.added_lines.get(file, ())) for file in files}
            try:
                completed = await programs.execute(
                    *(self._program or programs.python(), "-I", "-m", "codeloupe.analysers.dataflow.worker"),
                    seconds=min(left, 20.0) if len(files) == 1 else left / 2,
                    stdin=json.dumps({"root": str(target.root.absolute()), "files": added}).encode("ascii"),
                )
            except (ProcessTimedOut, OutputTooLarge):
                return "the data flow analysis did not finish with it in time"
            found = _answers(completed, files)
            if len(found) < len(files):
                return f"the data flow analysis died of signal {-completed.exit_code}"
            answers.extend(found)
            return None

        if files := [file for file in target.files if _is_worth_reading(target.root / file)]:
            await programs.in_halves(files, attempt, failed)
        return AnalyserReport(
            issues=tuple(issue for answer in answers for issue in answer.issues),
            failed={**{answer.file: answer.failed for answer in answers if answer.failed}, **failed},
            quiet={answer.file: {line: frozenset(codes) for line, codes in answer.quiet.items()} for answer in answers},
        )


def _is_worth_reading(path: Path) -> bool:
    try:
        return _WORTH_READING.search(read_regular_file(path)) is not None
    except OSError:
        return True  # the child says why it cannot be read


def _answers(completed: Completed, files: Sequence[str]) -> list[Answer]:
    def failure(what: str) -> AnalyserFailed:
        return programs.failure("dataflow", what, completed.stderr, hint="please report this")

    try:
        answers = [convert(json.loads(line), Answer, str_keys=True) for line in completed.stdout.splitlines()]
    except (ValueError, ValidationError, RecursionError) as error:
        raise failure("wrote something that is not its JSON") from error
    if [answer.file for answer in answers] != list(files[: len(answers)]):
        raise failure("answered for other files than it was given")
    if len(answers) < len(files) and completed.exit_code > 0:
        raise failure(f"ended with exit code {completed.exit_code}")
    return answers
