"""The child process that reads Python files and follows what comes from outside.

Run as `python -I -m codeloupe.analysers.dataflow.worker`. It reads one JSON object from stdin:

    {"root": "/…", "files": [{"file": "a.py", "added": [1, 2, …]}, …]}

and writes one line of JSON to stdout for each file, as soon as it is done:

    {"file": "a.py", "failed": null, "quiet": {"7": ["S608"]},
     "flows": [{"harm": "py-sql-injection", "line": 9, "end_line": 9, "body": "…"}, …]}

It is a process of its own since no parser can be trusted with hostile text; nothing of the reviewed code is imported or
run. A file whose line is missing is the one that ended the process.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from codeloupe.analysers.dataflow.meanings import Harm, meanings
from codeloupe.analysers.dataflow.reading import Reader
from codeloupe.analysers.dataflow.syntax import parse
from codeloupe.analysers.dataflow.values import NOTHING_KNOWN, ClassNotes, Flow, Notes, OverBudget
from codeloupe.analysers.interface import read_regular_file

_MAX_BYTES = 1_500_000
_DEEPEST = 3000
_MOST_FLOWS = 200
_STEPS_A_CHARACTER = 4
_LEAST_STEPS = 20_000
_MOST_STEPS_NAMED = 4


def main() -> int:
    """Read the request and answer it file by file; 0, or a traceback and 1 when the request is no request."""
    sys.setrecursionlimit(_DEEPEST)
    request = json.load(sys.stdin)
    root = Path(request["root"])
    for row in request["files"]:
        answer = examine(root / row["file"], frozenset(row["added"]))
        sys.stdout.write(json.dumps({"file": row["file"], **answer}) + "\n")
        sys.stdout.flush()
    return 0


def examine(path: Path, added: frozenset[int]) -> dict[str, Any]:
    """What is to be said of one file, as the answer of the child holds it."""
    try:
        content = read_regular_file(path)
    except OSError as error:
        return _failed(f"cannot be read: {error.strerror}")
    if len(content) > _MAX_BYTES:
        return _failed(f"it is over {_MAX_BYTES:,} bytes, more than the data flow analysis takes")
    try:
        text = content.decode("utf-8", "replace").removeprefix("\ufeff")
        tree = parse(text)
        if tree is None:  # ruff says so
            return {"failed": None, "flows": [], "quiet": {}}
        notes = read_module(tree, len(text))
    except (RecursionError, MemoryError):
        return _failed("its code is nested too deeply to follow data through it")
    except OverBudget:
        return _failed("its code takes too many steps to follow data through it")
    except Exception as error:  # noqa: BLE001 - whatever it trips over, the other files are still to be read
        return _failed(f"the data flow analysis stumbled over it: {type(error).__name__}: {error}")
    flows = [flow for flow in notes.flows if not added.isdisjoint(_lines(flow))]
    return {"failed": None, "flows": [_told(flow, added) for flow in _distinct(flows)], "quiet": _quiet(notes)}


def read_module(tree: ast.Module, size: int) -> Notes:
    """All that is found in a module with a text of this size.

    Raises OverBudget or RecursionError for what was made to be hard to read.
    """
    notes = Notes(budget=_LEAST_STEPS + _STEPS_A_CHARACTER * size)
    top = Reader(notes, notes.globals)
    top.block(tree.body)
    for name in {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}:
        notes.globals[name] = NOTHING_KNOWN  # whatever a function gives it
    for function in top.waiting:
        top.summary(function, None)
    done = 0
    while len(notes.classes) > done:  # a method may hold a class of its own
        classes = list(notes.classes.values())[done:]
        done += len(classes)
        for known in classes:
            _read_class(top, known)
    return notes


def _read_class(top: Reader, known: ClassNotes) -> None:
    """Read the methods; and again, when one keeps outside text in the object that another may use."""
    for _ in range(2):
        for method in known.methods.values():
            top.notes.summaries.pop(id(method), None)
        for method in known.methods.values():
            top.summary(method, known)
        if not any(value.origins for value in known.attributes.values()):
            return


def _failed(reason: str) -> dict[str, Any]:
    return {"failed": reason, "flows": [], "quiet": {}}


def _lines(flow: Flow) -> set[int]:
    """Every line that makes a flow what it is."""
    return {flow.source_line, *flow.lines, *range(flow.line, min(flow.end_line, flow.line + 50) + 1)}


def _distinct(flows: Iterable[Flow]) -> list[Flow]:
    """One flow for each harm of a line, the one with the shortest way."""
    best: dict[tuple[Harm, int], Flow] = {}
    for flow in flows:
        known = best.get((flow.harm, flow.line))
        if known is None or len(flow.lines) < len(known.lines):
            best[flow.harm, flow.line] = flow
    return sorted(best.values(), key=lambda flow: (flow.line, flow.harm))[:_MOST_FLOWS]


def _told(flow: Flow, added: frozenset[int]) -> dict[str, Any]:
    """The flow at its sink; if the change did not touch that, at the last line of its way that the change added."""
    line, end_line = flow.line, flow.end_line
    if added.isdisjoint(range(line, end_line + 1)):
        line = end_line = max(_lines(flow) & added)
    return {"harm": flow.harm.value, "line": line, "end_line": end_line, "body": _body(flow)}


def _body(flow: Flow) -> str:
    why = meanings()[flow.harm].why
    if not flow.source:
        return why
    steps = sorted({line for line in flow.lines if line not in (flow.line, flow.source_line)})[:_MOST_STEPS_NAMED]
    way = f", by way of line{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))}" if steps else ""
    target = flow.target if " " in flow.target or "`" in flow.target else f"`{flow.target}`"
    source = flow.source if " " in flow.source else f"`{flow.source}`"
    return f"{_capital(source)} (line {flow.source_line}) reaches {target} (line {flow.line}){way}. {why}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _quiet(notes: Notes) -> dict[int, list[str]]:
    """Rules of ruff that have nothing to add at a line: all is harmless there, or it is part of a flow."""
    quiet: dict[int, set[str]] = {line: set(codes) for line, codes in notes.quiet.items()}
    for line, harms in notes.harmless.items():
        for harm in harms - notes.doubtful.get(line, set()):
            quiet.setdefault(line, set()).update(meanings()[harm].same_as)
    for flow in notes.flows:
        for line in _lines(flow):
            quiet.setdefault(line, set()).update(meanings()[flow.harm].same_as)
    return {line: sorted(codes) for line, codes in quiet.items() if codes}


if __name__ == "__main__":
    sys.exit(main())
