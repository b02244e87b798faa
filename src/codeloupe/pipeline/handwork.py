"""What a person changed by hand in a workspace while its stage waited: no part of the work, but not lost either."""

from __future__ import annotations

import logging

from codeloupe.errors import CodeloupeError
from codeloupe.model.pipeline import StageRecord
from codeloupe.pipeline.surroundings import Surroundings

_PATCH = "by-hand.patch"
_log = logging.getLogger(__name__)


async def spare_handwork(around: Surroundings, record: StageRecord) -> None:
    """Keep as a patch what the workspace of a stage that waited holds beside the attempt that was shown there.

    What goes on is the attempt as its gates saw it, and the workspace is filled anew. In the user's own tree nothing
    is ever put back. Raises nothing: where it cannot be kept, that is told.
    """
    shown = next((attempt for attempt in record.attempts if attempt.number == record.chosen), None)
    if around.is_checkout or shown is None or not shown.tree:
        return
    name = around.places.attempt(record.name, shown.number, _PATCH)
    try:
        found = (await around.workspaces.keep(around.places.workspace(record.name))).tree
        # Where it could not be filled with what was to be shown, it holds what was there before.
        if found in {attempt.tree for attempt in record.attempts}:
            return
        around.places.write(name, await around.workspaces.diff(shown.tree, found))
    except (CodeloupeError, OSError) as error:
        _log.warning("what was changed by hand in the workspace of %s cannot be kept: %s", record.name, error)
        return
    words = f"what was changed by hand while it waited is no part of attempt {shown.number}; it is kept in {name}"
    around.book.tell(around.book.event("note", words, stage=record.name))
