"""One review for an orchestrator: within its time, with its warnings told, and every failure in words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct

from codeloupe.config.schema import Settings
from codeloupe.errors import CodeloupeError, UsageError
from codeloupe.model.events import Event, ReviewerChosen, UnitFinished, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.model.scope import ScopeRequest
from codeloupe.runtime import Runtime
from codeloupe.system.redaction import redact

ReviewFunction = Callable[..., Awaitable[Review]]
"""`codeloupe.review`, or anything that is called like it."""

WarningSink = Callable[[str], None]

TIMEOUT = "timeout"
_log = logging.getLogger(__name__)


def own_review(shared: Runtime | None) -> ReviewFunction:
    """`codeloupe.review`, or the review of a runtime, for whoever counts on an agent: without one it fails."""

    async def review(scope: ScopeRequest, *, settings: Settings | None, **options: Any) -> Review:
        if shared is not None:
            return await shared.review(scope, needs_agent=True, **options)
        async with Runtime(settings) as runtime:
            return await runtime.review(scope, needs_agent=True, **options)

    return review


class Trouble(Struct, frozen=True):
    """Why a review did not come to its end; `fatal` when trying again makes no sense."""

    words: str
    fatal: bool = False


class Voice:
    """Tells each warning once, and the log who reviews what. Keeps what was found so far, and the warnings."""

    def __init__(self, sink: WarningSink | None, what: str) -> None:
        self._sink = sink
        self.what = what
        self.warnings: set[str] = set()
        self.findings: list[Finding] = []

    def take(self, event: Event) -> None:
        """Take an event of the review."""
        match event:
            case ReviewerChosen(reviewer):
                _log.info("Starting review for %s with %s", self.what, reviewer.type)
            case Warned(message):
                self.warn(message)
            case UnitFinished(findings=findings):
                self.findings += findings
            case _:
                pass

    def warn(self, message: str) -> None:
        """Tell a warning, unless it was told before. A sink that fails takes nothing from the review."""
        if message in self.warnings:
            return
        self.warnings.add(message)
        if self._sink is None:
            return
        try:
            self._sink(message)
        except Exception:  # noqa: BLE001 - it is the caller's own code, and may raise anything
            _log.warning("a warning could not be passed on: %s", message, exc_info=True)


async def trouble_of(work: Coroutine[Any, Any, None], *, timeout: float | None) -> Trouble | None:
    """Do some work within its time; why it did not come to its end, or None. Only a cancellation is raised."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await work
    except TimeoutError as error:
        return Trouble(TIMEOUT) if limit.expired() else _unexpected(error)
    except CodeloupeError as error:
        _log.warning("the review failed", exc_info=True)
        words = f"{error.message} ({error.hint})" if error.hint else error.message
        return Trouble(redact(words), fatal=isinstance(error, UsageError))
    except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, an orchestrator gets an answer
        return _unexpected(error)
    return None


def _unexpected(error: Exception) -> Trouble:
    _log.error("the review failed", exc_info=error)
    return Trouble(redact(f"{type(error).__name__}: {error}"))
