"""What a reader of the verdict should know about how the change was read."""

from __future__ import annotations

from collections.abc import Iterator

from codeloupe.git.guidance import guidance_changed
from codeloupe.model.review import ReviewError
from codeloupe.model.scope import FetchedScope, ScopeRequest
from codeloupe.planning.prepare import Prepared


def remarks_of(plan: Prepared, request: ScopeRequest) -> Iterator[ReviewError]:
    """Yield an assumed base, edited guidance of an untrusted change, and guidance that was not used."""
    if isinstance(request, FetchedScope) and request.assumed_base:
        what = f"the remote does not say which branch this pull request goes to: {request.assumed_base} was assumed"
        yield ReviewError("assumed_base", f"{what}; give its base to compare with another")
    changed = guidance_changed(plan.change)
    if not plan.trusted and changed:
        message = f"the change edits {', '.join(changed)}; the base's version was used for this review"
        yield ReviewError("rules_changed", message)
    for one in plan.unused_guidance:
        yield ReviewError("guidance_unused", f"{one.path} was not used: {one.unused}")
