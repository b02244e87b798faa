"""Data flow in Python files, read in a child process: what a request holds, followed to where it does harm."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import ValidationError, convert

from codeloupe.analysers import programs
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, is_test_file
from codeloupe.analysers.languages import language_of
from codeloupe.config.files import read_regular_file
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

    def accepts(self, path: str, start: bytes = b"") -> bool:
        """Return whether the file is written in Python and not a test."""
        return language_of(path, start) == "Python" and not is_test_file(path)

    async def version(self) -> str:
        """The version of Python whose parser it uses."""
        return platform.python_version()

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Follow data through the files; what cannot be read is in `failed`. Raises AnalyserFailed, ProcessError."""
        reports: list[AnalyserReport] = []
        files = []
        for file in target.files:
            with suppress(OSError):  # the child says why it cannot be read
                if not _WORTH_READING.search(read_regular_file(target.root / file)):
                    continue
            files.append(file)

        async def attempt(files: Sequence[str], left: float) -> str | None:
            added = {file: sorted(target.added_lines.get(file, ())) for file in files}
            completed = await programs.execute(
                *(self._program or sys.executable, "-I", "-m", "codeloupe.analysers.dataflow.worker"),
                seconds=min(left, 20.0) if len(files) == 1 else left / 2,
                stdin=json.dumps({"root": str(target.root.absolute()), "files": added}).encode("ascii"),
            )
            if completed.exit_code < 0:
                return f"dataflow died of signal {-completed.exit_code}"
            try:
                reports.extend(convert(json.loads(completed.stdout), list[AnalyserReport], str_keys=True))
            except (ValueError, ValidationError, RecursionError) as error:
                what = f"gave no answer that can be read (exit code {completed.exit_code})"
                raise programs.failure("dataflow", what, completed.stderr, hint="please report this") from error
            return None

        deadline = time.monotonic() + target.timeout_seconds
        failed = await programs.in_halves("dataflow", files, deadline, attempt)
        quiet: dict[str, Mapping[int, frozenset[str]]] = {}
        for report in reports:
            failed |= report.failed
            quiet |= report.quiet
        return AnalyserReport(tuple(issue for report in reports for issue in report.issues), failed, quiet=quiet)
