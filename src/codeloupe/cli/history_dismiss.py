"""`codeloupe history dismiss`: a finding that does not count from the next review on, and why; or the list of them."""

from __future__ import annotations

import argparse
import getpass
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from codeloupe.cli.history_place import here
from codeloupe.cli.writing import write_result
from codeloupe.engine.history import SHORT_ID
from codeloupe.errors import UsageError
from codeloupe.model.history import Dismissal, RepositoryIdentity
from codeloupe.reports.history_words import moment
from codeloupe.store.history import SqliteHistory
from codeloupe.system.redaction import redact
from codeloupe.system.sanitise import terminal

_SHORTEST_PREFIX = 6
_LONGEST_REASON = 1_000
_MOST_LISTED = 8
_FINGERPRINT = re.compile(r"[0-9a-f]{1,64}")
_WHERE = "`codeloupe history show -v` has the fingerprint of each finding"


def run(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Dismiss, take back, or list. Raises UsageError for a finding that nobody saw, and without a reason."""
    identity = here(history, arguments)()
    if arguments.fingerprint is None and (arguments.undo or arguments.reason is not None):
        raise UsageError("no finding was named", hint=_WHERE)
    if arguments.fingerprint is None:
        write_result(_listed(history, identity))
    elif arguments.undo:
        write_result(_taken_back(history, identity, arguments.fingerprint))
    else:
        write_result(_dismissed(history, identity, arguments.fingerprint, arguments.reason))
    return 0


def _dismissed(history: SqliteHistory, identity: RepositoryIdentity, word: str, reason: str | None) -> str:
    why = " ".join((reason or "").split())
    if not why or len(why) > _LONGEST_REASON:
        what = "a reason is required" if not why else f"the reason is longer than {_LONGEST_REASON:,}"
        raise UsageError(what, hint='add --reason "what makes it no defect"')
    prefix = _prefix(word)
    found = history.fingerprints(prefix, repositories=identity.names, limit=_MOST_LISTED + 1)
    if not found:
        raise UsageError(f"no saved finding of {identity.label or 'this directory'} is {word!r}", hint=_WHERE)
    fingerprint = _only(word, found)
    # Kept for good and shown to others, so no secret may get into it by mistake.
    dismissal = Dismissal(
        fingerprint=fingerprint,
        repository=identity.names[0],
        reason=redact(why),
        who=_who(),
        at=datetime.now(UTC),
        finding=history.finding(fingerprint, repositories=identity.names),
    )
    history.dismiss(dismissal)
    where = history.findings_of([fingerprint], repositories=identity.names)[-1]
    place = terminal(f"{fingerprint[:SHORT_ID]} in {where.file}")
    undo = f"`codeloupe history dismiss {fingerprint[:SHORT_ID]} --undo` takes it back"
    return f"Dismissed {place}: the next review does not count it.\n{undo}.\n"


def _taken_back(history: SqliteHistory, identity: RepositoryIdentity, word: str) -> str:
    prefix = _prefix(word)
    found = [one.fingerprint for one in history.dismissals(identity.names) if one.fingerprint.startswith(prefix)]
    if not found:
        raise UsageError(f"{word!r} is not dismissed", hint="`codeloupe history dismiss` lists what is")
    fingerprint = _only(word, found)
    history.take_back(fingerprint, repositories=identity.names)
    return f"Taken back: {fingerprint[:SHORT_ID]} counts again in the next review.\n"


def _listed(history: SqliteHistory, identity: RepositoryIdentity) -> str:
    rows = [
        terminal(f"{one.fingerprint[:SHORT_ID]}  {moment(one.at)}  {one.who or 'somebody'}: {one.reason}")
        for one in history.dismissals(identity.names)
    ]
    return "".join(f"{row}\n" for row in rows) or f"Nothing is dismissed in {terminal(identity.label)}.\n"


def _prefix(word: str) -> str:
    prefix = word.strip().lower()
    if not _FINGERPRINT.fullmatch(prefix) or len(prefix) < _SHORTEST_PREFIX:
        what = f"{word!r} is not a fingerprint: it needs at least {_SHORTEST_PREFIX} digits and letters a to f"
        raise UsageError(what, hint=_WHERE)
    return prefix


def _only(word: str, found: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(found))
    if len(distinct) > 1:
        raise UsageError(f"{word!r} matches several: {', '.join(distinct)}", hint="give more digits")
    return distinct[0]


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user that the system does not know
        return ""
