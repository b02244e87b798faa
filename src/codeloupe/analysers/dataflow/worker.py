"""The child process that reads Python files and follows the data in them.

Run as `python -I -m codeloupe.analysers.dataflow.worker`. For each file, stdin contains a line of JSON and then as many
bytes of content as it says:

    {"added": [1, 2, …], "size": 120}

For each file, in the same order, the worker writes a line of JSON to stdout as soon as the file is read:

    {"issues": [{"harm": "py-sql-injection", …}], "quiet": {"3": ["py-sql-injection"]}, "failed": ""}

It is a separate process because no parser can be trusted with hostile text. Nothing of the reviewed code is imported or
run. It imports little, because a review waits for its start.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
from typing import Any

from codeloupe.analysers.dataflow.harms import MEANINGS, Harm
from codeloupe.analysers.dataflow.module import read_module
from codeloupe.analysers.dataflow.notes import Flow, Notes, OverBudget
from codeloupe.analysers.dataflow.outline import Outline
from codeloupe.analysers.dataflow.relevance import parts_to_read
from codeloupe.analysers.dataflow.syntax import parse
from codeloupe.system.regex import regex

MOST_BYTES = 1_500_000
MOST_SECONDS = 20
_MOST_ISSUES = 200
_LONE_CARRIAGE_RETURN = regex(rb"\r(?!\n)")

Answer = dict[str, Any]
"""The answer for one file, as it is written to stdout."""


class _OutOfTime(Exception):
    """One file takes too long."""


def main() -> None:
    """Read files from stdin and answer each of them."""
    sys.setrecursionlimit(3000)
    # A syntax tree contains no cycles, so a search for garbage in each new one finds nothing.
    gc.set_threshold(100_000)
    signal.signal(signal.SIGALRM, _stop)
    requests = sys.stdin.buffer
    for header in requests:
        request = json.loads(header)
        content = requests.read(request["size"])
        signal.alarm(MOST_SECONDS)
        answer = examine(content, frozenset(request["added"]))
        signal.alarm(0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _stop(*_: object) -> None:
    raise _OutOfTime


def examine(content: bytes, added: frozenset[int]) -> Answer:
    """Return the answer for one file with these added lines."""
    try:
        return _examine(content, added)
    except (RecursionError, MemoryError):
        reason = "its code is nested too deeply for the data flow analysis"
    except OverBudget:
        reason = "the data flow analysis needs too many steps for it"
    except _OutOfTime:
        reason = f"the data flow analysis did not finish within {MOST_SECONDS} s"
    except Exception as error:  # noqa: BLE001 - an error on one file must not stop the analysis of the others
        reason = f"the data flow analysis failed on it: {type(error).__name__}: {error}"
    return _answer(failed=reason)


def _answer(issues: list[Answer] | None = None, quiet: dict[int, list[str]] | None = None, failed: str = "") -> Answer:
    return {"issues": issues or [], "quiet": quiet or {}, "failed": failed}


def _examine(content: bytes, added: frozenset[int]) -> Answer:
    if len(content) > MOST_BYTES:
        return _answer(failed=f"it is larger than {MOST_BYTES:,} bytes, the limit of the data flow analysis")
    if _LONE_CARRIAGE_RETURN.search(content):
        # Python starts a new line there and git does not, so the added lines would be other lines.
        return _answer(failed="it contains a carriage return that is not part of a line end")
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    outline = Outline(text)
    wanted = parts_to_read(outline, added)
    if wanted is None:
        return _answer()
    tree = parse(text)
    if tree is None:
        # Ruff reports the syntax error.
        return _answer()
    notes = read_module(tree, outline, wanted, len(text))
    issues = [_issue(flow, added) for flow in _shortest_flows(notes, added)]
    quiet: dict[int, list[str]] = {}
    for line, rules in notes.quiet_rules(tree, added).items():
        quiet[line] = sorted(rules)
    return _answer(issues[:_MOST_ISSUES], quiet)


def _shortest_flows(notes: Notes, added: frozenset[int]) -> list[Flow]:
    """Return, for each harm at a line, the shortest flow that contains an added line."""
    shortest: dict[tuple[int, Harm], Flow] = {}
    for flow in notes.flows:
        if added.isdisjoint(flow.all_lines()):
            continue
        place = (flow.line, flow.harm)
        known = shortest.get(place)
        if known is None or len(flow.lines) < len(known.lines):
            shortest[place] = flow
    return [shortest[place] for place in sorted(shortest)]


def _issue(flow: Flow, added: frozenset[int]) -> Answer:
    """Return the issue at the sink, or at the last added line of the flow if the change did not touch the sink."""
    first = flow.line
    last = flow.end_line
    if added.isdisjoint(range(first, last + 1)):
        first = last = max(flow.all_lines() & added)
    return {"harm": flow.harm.value, "line_start": first, "line_end": last, "body": _body(flow)}


def _body(flow: Flow) -> str:
    why = MEANINGS[flow.harm].why
    if not flow.source:
        return why
    source = f"`{flow.source}`"
    if " " in flow.source:
        source = flow.source[:1].upper() + flow.source[1:]
    target = flow.target
    if " " not in target and "`" not in target:
        target = f"`{target}`"
    steps = sorted(set(flow.lines) - {flow.line, flow.source_line})[:4]
    via = ""
    if steps:
        noun = "line" if len(steps) == 1 else "lines"
        via = f" via {noun} {', '.join(map(str, steps))}"
    return f"{source} (line {flow.source_line}) flows into {target} (line {flow.line}){via}. {why}"


if __name__ == "__main__":
    main()
