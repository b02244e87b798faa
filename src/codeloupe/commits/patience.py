"""When a sweep stops asking: as inside one review, a failure that stays makes the next commits pointless."""

from __future__ import annotations

from codeloupe.model.sweep import CommitReview

# Nobody can log in, install a program or mend a database while the others wait. A budget that is spent is not among
# them: it refuses by itself, at no cost, and lets through what was bought before.
_LASTING = frozenset(("not_logged_in", "not_installed", "ledger_failed"))
_BUDGET = "budget_exhausted"
_INVALID_REQUEST = "invalid_request"
# One may be the fault of its commit, such as a prompt that a service refuses; two without any answer are not.
_INVALID_REQUESTS = 2
_FAILURES_IN_A_ROW = 20


class Patience:
    """Watches how commits end.

    It is over at a failure that lasts, at the second invalid request before any answer, and at twenty commits in a row
    of which nothing could be reviewed. `reason` is then the failure that ended it.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._answered = False
        self._invalid_requests = 0
        self._in_a_row = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be begun."""
        return bool(self.reason)

    def note(self, outcome: CommitReview) -> None:
        """Tell how a commit ended. One of which something was reviewed, or nothing was asked, is no failure here."""
        review = outcome.review
        if review is not None and review.coverage.files_reviewed:
            self._answered, self._in_a_row = True, 0
            return
        if not outcome.failure or (review is not None and not review.coverage.units_failed):
            return
        kinds = {error.kind for error in review.errors} if review is not None else set[str]()
        if _BUDGET in kinds:
            return
        self._in_a_row += 1
        self._invalid_requests += _INVALID_REQUEST in kinds
        refused = not self._answered and self._invalid_requests >= _INVALID_REQUESTS
        if kinds & _LASTING or refused or self._in_a_row >= _FAILURES_IN_A_ROW:
            self.reason = self.reason or outcome.failure
