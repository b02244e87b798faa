"""Running coroutines from a verb, and saying on stderr what there is to say beside the result."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from codeloupe.config.loading import LoadedSettings
from codeloupe.system.untrusted import log_line

_Result = TypeVar("_Result")


class Interrupted(KeyboardInterrupt):
    """Somebody stopped a command; says what is kept of it, and which command goes on."""

    def __init__(self, kept: str, words: Sequence[str], *more: str) -> None:
        """`words` are those that the command was called with, its verb first; `more` options belong to them as well."""
        # Right after the verb, since what follows a `--` is no option.
        again = [words[0], *(word for word in more if word not in words), *words[1:]]
        command = shlex.join(("codeloupe", *(word for word in again if word != "--fresh")))
        same = "the same command" if len(command) > 200 else f"`{command}`"
        super().__init__(f"{kept}; {same} continues")


def note(text: str, *, quiet: bool = False) -> None:
    """Say something on stderr, in one line."""
    if not quiet:
        print(f"codeloupe: {log_line(text)}", file=sys.stderr, flush=True)


def tell_notes(loaded: LoadedSettings, *, quiet: bool) -> LoadedSettings:
    """Say on stderr what is to be known of some settings, and give them back."""
    for text in loaded.notes:
        note(text, quiet=quiet)
    return loaded


def run_to_end(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine. Ctrl-C, SIGTERM and a terminal that is closed cancel it and raise KeyboardInterrupt.

    So its children and temporary directories are gone. Where SIGINT is ignored, as in a job that a script put into the
    background, SIGTERM still ends it; a SIGHUP that is ignored, as by nohup, stays so.
    """
    task: asyncio.Task[Any] | None = None
    is_terminated = False

    async def noted() -> _Result:
        nonlocal task
        task = asyncio.current_task()
        return await work

    def terminate(*_: object) -> None:
        nonlocal is_terminated
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.raise_signal(signal.SIGINT)
        elif task is not None:
            is_terminated = True
            task.get_loop().call_soon_threadsafe(task.cancel)
        else:
            raise KeyboardInterrupt

    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    before = {number: signal.signal(number, terminate) for number in (signal.SIGTERM, *hangup)}
    try:
        return asyncio.run(noted())
    except asyncio.CancelledError:
        if is_terminated:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
