"""Data flow in Python files, read in a child process: what a request holds, followed to where it does harm."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codeloupe.analysers.dataflow.meanings import Harm, meanings
from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget, Issue, is_test_file, read_regular_file
from codeloupe.errors import AnalyserFailed, OutputTooLarge, ProcessTimedOut, ProgramNotFound
from codeloupe.system.process import Command, Completed, inherited_environment, run

_NAME = "dataflow"
_WORKER = "codeloupe.analysers.dataflow.worker"
_SUFFIXES = (".py", ".pyw")
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_ONE_FILE_SECONDS = 20.0
# Without any of these there is nothing to find in a file, and no child is started for it.
_WORTH_READING = re.compile(
    rb"request|environ|RequestHandler|\.recv|random|set_cookie|CERT_NONE|hashlib|hmac|execute|shell\s*=|os\.system|"
    rb"os\.popen|\beval\(|\bexec\(|@\w+\.(?:get|post|put|patch|delete|route|websocket)\(|"
    rb"assert .{0,200}\.(?:is_|has_|can_|check_)"
)


class DataflowAnalyser:
    """Outside text that reaches a query, a command, a path, a page and the like; and secrets made by chance.

    Test files are not read: what they pass around is made up. `program` is the Python interpreter of the child; None is
    the one that runs now.
    """

    name = _NAME

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    def accepts(self, path: str) -> bool:
        """Whether the name is that of a Python file that is no test."""
        return path.lower().endswith(_SUFFIXES) and not is_test_file(path)

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Follow data through the files. One that cannot be read, or ends the child, is in `failed`.

        Raises AnalyserFailed when the child's answer cannot be read, or a ProcessError.
        """
        deadline = time.monotonic() + target.timeout_seconds
        waiting = [file for file in target.files if _is_worth_reading(target.root / file)]
        rows: list[dict[str, Any]] = []
        while waiting:
            answered, reason = await self._attempt(target, waiting, deadline)
            rows += answered
            waiting = waiting[len(answered) :]
            if waiting and reason:
                rows.append({"file": waiting.pop(0), "failed": reason, "flows": [], "quiet": {}})
        return _report(rows)

    async def version(self) -> str:
        """The version of Python whose parser it uses."""
        return platform.python_version()

    async def _attempt(
        self, target: AnalysisTarget, files: Sequence[str], deadline: float
    ) -> tuple[list[dict[str, Any]], str]:
        """The answers for the files up to the one that ended the child, if one did, and how it did."""
        request = {
            "root": str(target.root.absolute()),
            "files": [{"file": file, "added": sorted(target.added_lines.get(file, ()))} for file in files],
        }
        left = max(deadline - time.monotonic(), 0.1)
        seconds = min(left, _ONE_FILE_SECONDS) if len(files) == 1 else left / 2
        try:
            completed = await run(self._command(json.dumps(request).encode("ascii"), seconds))
        except (ProcessTimedOut, OutputTooLarge):
            if len(files) > 1:  # one of them is to blame: each half by itself
                return await self._halves(target, files, deadline)
            return [], "the data flow analysis did not finish with it in time"
        return _answers(completed, files)

    async def _halves(
        self, target: AnalysisTarget, files: Sequence[str], deadline: float
    ) -> tuple[list[dict[str, Any]], str]:
        middle = len(files) // 2
        answered, reason = await self._attempt(target, files[:middle], deadline)
        if len(answered) < middle:
            return answered, reason
        more, reason = await self._attempt(target, files[middle:], deadline)
        return [*answered, *more], reason

    def _command(self, stdin: bytes, timeout_seconds: float) -> Command:
        program = self._program or sys.executable
        if not program:
            raise ProgramNotFound(
                "the Python interpreter that runs this program is not known",
                program="python",
                hint="start it by its path",
            )
        return Command(
            argv=(program, "-I", "-m", _WORKER),
            cwd=Path(os.sep),
            environment=inherited_environment(),
            timeout_seconds=timeout_seconds,
            max_output_bytes=_MAX_OUTPUT_BYTES,
            stdin=stdin,
        )


def _is_worth_reading(path: Path) -> bool:
    try:
        return _WORTH_READING.search(read_regular_file(path)) is not None
    except OSError:
        return True  # the child says why it cannot be read


def _answers(completed: Completed, files: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    try:
        rows = [json.loads(line) for line in completed.stdout.splitlines()]
    except (ValueError, RecursionError) as error:
        raise _failure("wrote something that is not its JSON", completed) from error
    if [row.get("file") for row in rows] != list(files[: len(rows)]):
        raise _failure("answered for other files than it was given", completed)
    if len(rows) == len(files):
        return rows, ""
    if completed.exit_code > 0:
        raise _failure(f"ended with exit code {completed.exit_code}", completed)
    return rows, f"the data flow analysis died of signal {-completed.exit_code}"


def _failure(what: str, completed: Completed) -> AnalyserFailed:
    lines = completed.stderr.strip().splitlines()
    detail = f": {lines[-1][:300]}" if lines else ""
    return AnalyserFailed(f"{_NAME} {what}{detail}", analyser=_NAME, hint="please report this")


def _report(rows: Sequence[dict[str, Any]]) -> AnalyserReport:
    return AnalyserReport(
        issues=tuple(_issue(row["file"], flow) for row in rows for flow in row["flows"]),
        failed={row["file"]: row["failed"] for row in rows if row["failed"]},
        quiet={row["file"]: {int(line): frozenset(codes) for line, codes in row["quiet"].items()} for row in rows},
    )


def _issue(file: str, flow: dict[str, Any]) -> Issue:
    meaning = meanings()[Harm(flow["harm"])]
    return Issue(
        file=file,
        line_start=flow["line"],
        line_end=flow["end_line"],
        rule=flow["harm"],
        severity=meaning.severity,
        category="security",
        title=meaning.title,
        body=flow["body"],
        suggestion=meaning.fix,
    )
