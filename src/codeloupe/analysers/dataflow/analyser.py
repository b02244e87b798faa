"""Data flow in Python files, read in a child process: what a request holds, followed to where it does harm."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from contextlib import suppress

from msgspec import ValidationError, convert

from codeloupe.analysers import programs
from codeloupe.analysers.dataflow import Answer
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, is_test_file, read_regular_file
from codeloupe.errors import OutputTooLarge, ProcessTimedOut
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

# Without any of these there is nothing to find in a file, and no child is started for it.
_WORTH_READING = regex(
    rb"request|environ|RequestHandler|\.recv|random|set_cookie|CERT_NONE|hashlib|hmac|execute|shell\s*=|os\.system|"
    rb"os\.popen|\beval\(|\bexec\(|@\w+\.(?:get|post|put|patch|delete|route|websocket)\(|"
    rb"assert .{0,200}\.(?:is_|has_|can_|check_)"
)


class DataflowAnalyser(Analyser):
    """Outside text that reaches a query, a command, a path, a page and the like. Tests are not read."""

    name = "dataflow"

    def accepts(self, path: str) -> bool:
        """Whether the name is that of a Python file that is no test."""
        return path.lower().endswith((".py", ".pyw")) and not is_test_file(path)

    async def version(self) -> str:
        """The version of Python whose parser it uses."""
        return platform.python_version()

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Follow data through the files; what cannot be read is in `failed`. Raises AnalyserFailed, ProcessError."""
        deadline = time.monotonic() + target.timeout_seconds
        answers: list[Answer] = []
        files = []
        for file in target.files:
            with suppress(OSError):  # the child says why it cannot be read
                if not _WORTH_READING.search(read_regular_file(target.root / file)):
                    continue
            files.append(file)

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

        broken = await programs.in_halves(files, attempt)
        return AnalyserReport(
            issues=tuple(issue for answer in answers for issue in answer.issues),
            failed={**{answer.file: answer.failed for answer in answers if answer.failed}, **broken},
            quiet={answer.file: {line: frozenset(codes) for line, codes in answer.quiet.items()} for answer in answers},
        )


def _answers(completed: Completed, files: Sequence[str]) -> list[Answer]:
    what = "wrote something that is not its JSON"
    with suppress(ValueError, ValidationError, RecursionError):
        answers = [convert(json.loads(line), Answer, str_keys=True) for line in completed.stdout.splitlines()]
        if [answer.file for answer in answers] != list(files[: len(answers)]):
            what = "answered for other files than it was given"
        elif len(answers) < len(files) and completed.exit_code > 0:
            what = f"ended with exit code {completed.exit_code}"
        else:
            return answers
    raise programs.failure("dataflow", what, completed.stderr, hint="please report this")
