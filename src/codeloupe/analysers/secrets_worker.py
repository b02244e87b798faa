"""The child process that searches lines for secrets.

Run as `python -I -m codeloupe.analysers.secrets_worker`. It reads one JSON object from stdin:

    {"budget_seconds": 20.0, "line_seconds": 1.0, "files": {"a.py": [[1, "text"], …], …}}

and writes a `Search` to stdout:

    {"hits": [{"file": "a.py", "line": 1, "kind": "Private Key", "values": ["…"]}, …],
     "slow": [["a.py", 3], …], "unfinished": ["b.py", …]}

which is for the parent alone, since `values` are the secrets themselves.

It is a process of its own because some of the patterns take quadratic time on a hostile line. A line that takes too
long is given up and named in `slow`; when the budget ends, what is left is named in `unfinished`.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType
from typing import Any

from msgspec import to_builtins

from codeloupe.analysers.secret_detectors import Finder, Search, search_file


class _TooSlow(Exception):
    """A line took longer than its share."""


def main() -> int:
    """Read the request, search, and write the answer; 0, or a traceback and 1 when the request is no request."""
    forbid_network()
    signal.signal(signal.SIGVTALRM, _give_up)
    request = json.load(sys.stdin)
    deadline, line_seconds = time.monotonic() + float(request["budget_seconds"]), float(request["line_seconds"])

    def guarded(find: Finder, seconds_left: float) -> Any:
        try:
            # The matcher of `re` looks for signals while it works, so this also ends a pattern that runs away. Only
            # time on a processor counts: a busy machine makes no line slow.
            signal.setitimer(signal.ITIMER_VIRTUAL, min(line_seconds, seconds_left))
            found = find()
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        except _TooSlow:
            return None
        return found

    search = Search([], [], [])
    for file, lines in request["files"].items():
        search_file(file, lines, search, deadline=deadline, guarded=guarded)
    json.dump(to_builtins(search), sys.stdout)
    return 0


def forbid_network() -> None:
    """Make every attempt to open a socket or to start a program fail, for the rest of this process."""

    def refuse(event: str, _arguments: tuple[object, ...]) -> None:
        if event.startswith(("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork")):
            raise PermissionError(f"{event} is not allowed while searching for secrets")

    sys.addaudithook(refuse)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise _TooSlow


if __name__ == "__main__":
    sys.exit(main())
