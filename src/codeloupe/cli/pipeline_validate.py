"""`codeloupe pipeline validate`: every mistake of every file, before anything is spent."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from codeloupe.cli.writing import write_result
from codeloupe.errors import CodeloupeError, UsageError
from codeloupe.pipeline.definition import load_pipeline
from codeloupe.reports.wording import counted
from codeloupe.system.untrusted import json_document, log_line, terminal, without_log_commands


def run(arguments: argparse.Namespace) -> int:
    """Check each file; the exit code is 2 when one of them is wrong."""
    found = [(path, *_checked(path)) for path in arguments.files]
    if arguments.json:
        write_result(_as_json(found))
    else:
        for path, error, about in found:
            _tell(path, error, about)
    return UsageError.exit_code if any(error is not None for _, error, _ in found) else 0


def _checked(path: Path) -> tuple[CodeloupeError | None, str]:
    try:
        definition = load_pipeline(path)
    except CodeloupeError as error:
        return error, ""
    stages = counted(len(definition.stages), "stage", "stages")
    inputs = f", {counted(len(definition.inputs), 'input', 'inputs')}" if definition.inputs else ""
    return None, f"{definition.name}, {stages}{inputs}"


def _tell(path: Path, error: CodeloupeError | None, about: str) -> None:
    if error is None:
        print(f"{log_line(str(path))}: valid ({log_line(about)})", flush=True)
        return
    print(without_log_commands(terminal(error.message, keep_newlines=True)), file=sys.stderr)
    if error.hint:
        print(f"  hint: {without_log_commands(terminal(error.hint, keep_newlines=True))}", file=sys.stderr)


def _as_json(found: list[tuple[Path, CodeloupeError | None, str]]) -> str:
    files = [
        {
            "file": str(path),
            "valid": error is None,
            "problems": [] if error is None else _problems(error),
            "hint": None if error is None else error.hint,
        }
        for path, error, _ in found
    ]
    return json_document(json.dumps({"schema_version": 1, "files": files}, indent=2, ensure_ascii=False)) + "\n"


def _problems(error: CodeloupeError) -> list[str]:
    """One text for each mistake; of several, the first line only says how many."""
    first, *rest = error.message.split("\n")
    return [line.strip() for line in rest] or [first]
