"""Answers of a scripted model to a verification: one proof for each claim that it is asked about."""

import re

from codeloupe.testing import Json, RecordedRequest

ASKS_FOR_PROOFS = "Try to refute the claims"
_CLAIM = re.compile(r"<data-[0-9a-f]{8} claim (\d+) ")


def asks_for_proofs(request: RecordedRequest) -> bool:
    """Tell whether a request is a verification."""
    return request.mentions(ASKS_FOR_PROOFS)


def proofs(request: RecordedRequest, proof: str, reason: str, **fix: str) -> Json:
    """Return the same proof for each claim of a verification; a fix is `suggestion` and `replacement`."""
    numbers = sorted({int(number) for text in request.strings() for number in _CLAIM.findall(text)})
    return Json({"proofs": [{"claim": number, "reason": reason, "proof": proof, **fix} for number in numbers]})
