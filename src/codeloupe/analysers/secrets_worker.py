"""The child process that searches lines for secrets.

Run as `python -I -m codeloupe.analysers.secrets_worker`. It reads one JSON object from stdin:

    {"budget_seconds": 20.0, "line_seconds": 1.0, "files": [{"file": "a.py", "lines": [[1, "text"], …]}, …]}

and writes one to stdout:

    {"hits": [{"file": "a.py", "line": 1, "kind": "Private Key", "values": ["…"]}, …],
     "slow": [["a.py", 3], …], "unfinished": ["b.py", …]}

`values` are the secrets themselves, so the output is for the parent alone; with an empty `kind` the line holds no
finding of its own and only belongs to one, as the body of a private key does.

It is a process of its own because some of the patterns take quadratic time on a hostile line. A line that takes too
long is given up and named in `slow`; when the budget ends, what is left is named in `unfinished`.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from msgspec import Struct, field

from codeloupe.analysers.secret_detectors import PRIVATE_KEY, Detectors, Hit, find_secrets, load_detectors

_KEY_LOOKAHEAD_LINES = 6
_KEY_BODY_LINES = 120
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{32,}")
_BEHIND_HEADER = ("-----", ":")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{8,}")

Line = tuple[int, str]


class _TooSlow(Exception):
    """A line took longer than its share."""


class _Findings(Struct):
    hits: list[dict[str, Any]] = field(default_factory=list)
    slow: list[tuple[str, int]] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


def main() -> int:
    """Read the request, search, and write the answer; 0, or a traceback and 1 when the request is no request."""
    forbid_network()
    signal.signal(signal.SIGVTALRM, _give_up)
    request = json.load(sys.stdin)
    deadline, line_seconds = time.monotonic() + float(request["budget_seconds"]), float(request["line_seconds"])
    detectors = load_detectors()
    found = _Findings()
    for entry in request["files"]:
        lines = [(int(number), str(text)) for number, text in entry["lines"]]
        _search_file(detectors, entry["file"], lines, found, deadline=deadline, line_seconds=line_seconds)
    json.dump({"hits": found.hits, "slow": found.slow, "unfinished": found.unfinished}, sys.stdout)
    return 0


def forbid_network() -> None:
    """Make every attempt to open a socket or to start a program fail, for the rest of this process."""
    sys.addaudithook(_refuse)


def _refuse(event: str, _arguments: tuple[object, ...]) -> None:
    if event.startswith(("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork")):
        raise PermissionError(f"{event} is not allowed while searching for secrets")


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise _TooSlow


def _search_file(
    detectors: Detectors, file: str, lines: Sequence[Line], found: _Findings, *, deadline: float, line_seconds: float
) -> None:
    for index, (number, text) in enumerate(lines):
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            found.unfinished.append(file)
            return
        try:
            # The matcher of `re` looks for signals while it works, so this also ends a pattern that runs away. Only
            # time on a processor counts: a busy machine makes no line slow.
            signal.setitimer(signal.ITIMER_VIRTUAL, min(line_seconds, seconds_left))
            hits = find_secrets(detectors, file, text)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        except _TooSlow:
            found.slow.append((file, number))
            continue
        for hit in hits:
            if hit.kind == PRIVATE_KEY:
                _add_private_key(file, lines[index : index + _KEY_BODY_LINES], hit, found)
            else:
                found.hits.append({"file": file, "line": number, "kind": hit.kind, "values": [hit.value]})


def _add_private_key(file: str, lines: Sequence[Line], header: Hit, found: _Findings) -> None:
    """A header counts only with key material behind it; text that merely mentions the header is no key."""
    if not header.value.startswith(_BEHIND_HEADER):
        return
    number = lines[0][0]
    following = [text for offset, (line, text) in enumerate(lines) if offset and line == number + offset]
    near = [header.value, *following[:_KEY_LOOKAHEAD_LINES]]
    if following and not any(_KEY_MATERIAL.search(text) for text in near):
        return
    found.hits.append({"file": file, "line": number, "kind": header.kind, "values": _KEY_BODY.findall(header.value)})
    for offset, text in enumerate(following, start=1):
        if "-----END" in text:
            break
        found.hits.append({"file": file, "line": number + offset, "kind": "", "values": _KEY_BODY.findall(text)})


if __name__ == "__main__":
    sys.exit(main())
