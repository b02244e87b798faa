"""Log lines on stderr. Apart from what runs coroutines, so that a verb without any does not load an event loop."""

from __future__ import annotations

import logging
import sys

from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import log_line, terminal, without_log_commands


def set_up_logging(*, verbose: bool, debug: bool = False) -> None:
    """Log to stderr when asked, with `debug` also what is sent to agents and what they answer.

    Without either the library's records go nowhere, since events tell the same.
    """
    logger = logging.getLogger("codeloupe")
    if not verbose and not debug:
        logger.addHandler(logging.NullHandler())
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)


class _SafeFormatter(logging.Formatter):
    """Log lines without secrets and without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text that is safe on a terminal and in a CI log.

        It is one line, but for a debug record: there each line behind the first is set in, so that none looks like
        a record of its own.
        """
        text = redact(super().format(record))
        if record.levelno > logging.DEBUG:
            return log_line(text)
        return without_log_commands(terminal(text, keep_newlines=True).replace("\n", "\n    "))
