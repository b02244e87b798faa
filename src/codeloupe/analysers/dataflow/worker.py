"""The child process that reads Python files and follows what comes from outside.

Run as `python -I -m codeloupe.analysers.dataflow.worker`. It reads one JSON object from stdin:

    {"root": "/…", "files": {"a.py": [1, 2, …], …}}

with the numbers of the added lines, and writes a list with an `AnalyserReport` for each file to stdout. It is a process
of its own since no parser can be trusted with hostile text; nothing of the reviewed code is imported or run.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from pathlib import Path

from msgspec import to_builtins

from codeloupe.analysers.dataflow.reading import Reader
from codeloupe.analysers.dataflow.syntax import parse
from codeloupe.analysers.dataflow.values import MEANINGS, NOTHING_KNOWN, Flow, Harm, Notes, OverBudget
from codeloupe.analysers.interface import AnalyserReport, Issue
from codeloupe.config.files import read_regular_file
from codeloupe.model.finding import Severity


def main() -> None:
    """Read the request and answer it."""
    sys.setrecursionlimit(3000)
    request = json.load(sys.stdin)
    reports = [examine(Path(request["root"]), file, frozenset(added)) for file, added in request["files"].items()]
    json.dump(to_builtins(reports, str_keys=True), sys.stdout)


def examine(root: Path, file: str, added: frozenset[int]) -> AnalyserReport:
    """What is to be said of one file with these added lines."""
    try:
        return _examined(root, file, added)
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    except (RecursionError, MemoryError):
        why = "its code is nested too deeply for the data flow analysis"
    except OverBudget:
        why = "the data flow analysis needs too many steps for it"
    except Exception as error:  # noqa: BLE001 - whatever it trips over, the other files are still to be read
        why = f"the data flow analysis failed on it: {type(error).__name__}: {error}"
    return AnalyserReport(failed={file: why})


def _examined(root: Path, file: str, added: frozenset[int]) -> AnalyserReport:
    content = read_regular_file(root / file)
    if len(content) > 1_500_000:
        why = "it is larger than 1,500,000 bytes, the limit of the data flow analysis"
        return AnalyserReport(failed={file: why})
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    tree = parse(text)
    if tree is None:  # ruff says so
        return AnalyserReport()
    notes = read_module(tree, len(text))
    best: dict[tuple[int, Harm], Flow] = {}  # for each harm of a line the flow with the shortest way
    # Defects that other analysers need not report on a line: all is harmless there, or it is part of a flow.
    quiet: dict[int, set[str]] = defaultdict(set, {line: set(codes) for line, codes in notes.quiet.items()})
    for (line, harm), is_harmless in notes.harmless.items():
        if is_harmless:
            quiet[line].add(harm.value)
    for flow in notes.flows:
        lines = _lines(flow)
        known = best.get((flow.line, flow.harm))
        if not added.isdisjoint(lines) and (known is None or len(flow.lines) < len(known.lines)):
            best[flow.line, flow.harm] = flow
        for line in lines:
            quiet[line].add(flow.harm.value)
    issues = tuple(_issue(file, best[place], added) for place in sorted(best)[:200])
    return AnalyserReport(issues, quiet={file: {line: frozenset(codes) for line, codes in quiet.items() if codes}})


def read_module(tree: ast.Module, size: int) -> Notes:
    """All that is found in a module with a text of this size. Raises OverBudget or RecursionError."""
    notes = Notes(budget=20_000 + 4 * size)
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
            for _ in range(2):  # again, when a method keeps outside text in the object that another may use
                for method in known.methods.values():
                    notes.summaries.pop(id(method), None)
                for method in known.methods.values():
                    top.summary(method, known)
                if not any(value.origins for value in known.attributes.values()):
                    break
    return notes


def _lines(flow: Flow) -> set[int]:
    """Every line that makes a flow what it is."""
    return {flow.source_line, *flow.lines, *range(flow.line, min(flow.end_line, flow.line + 50) + 1)}


def _way(flow: Flow) -> str:
    """Return the first lines between source and sink as words, such as ` via lines 6, 7`; empty without one."""
    steps = sorted(set(flow.lines) - {flow.line, flow.source_line})[:4]
    if not steps:
        return ""
    noun = "line" if len(steps) == 1 else "lines"
    return f" via {noun} {', '.join(map(str, steps))}"


def _issue(file: str, flow: Flow, added: frozenset[int]) -> Issue:
    """The flow at its sink; if the change did not touch that, at the last line of its way that the change added."""
    meaning = MEANINGS[flow.harm]
    line, end_line, body = flow.line, flow.end_line, meaning.why
    if added.isdisjoint(range(line, end_line + 1)):
        line = end_line = max(_lines(flow) & added)
    if flow.source:
        way = _way(flow)
        target = flow.target if " " in flow.target or "`" in flow.target else f"`{flow.target}`"
        source = flow.source[:1].upper() + flow.source[1:] if " " in flow.source else f"`{flow.source}`"
        body = f"{source} (line {flow.source_line}) flows into {target} (line {flow.line}){way}. {body}"
    return Issue(
        file=file,
        line_start=line,
        line_end=end_line,
        rule=flow.harm.value,
        severity=Severity.parse(meaning.severity),
        category="security",
        title=meaning.title,
        body=body,
        suggestion=meaning.fix,
    )


if __name__ == "__main__":
    main()
