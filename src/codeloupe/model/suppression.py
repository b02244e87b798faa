"""Why a finding is not counted although it stands: an entry of the baseline, or a comment in the code."""

from __future__ import annotations

from datetime import date
from enum import StrEnum

from msgspec import Struct


class SuppressionKind(StrEnum):
    """Where a suppression stands."""

    BASELINE = "baseline"
    INLINE = "inline"


class Suppression(Struct, frozen=True, kw_only=True):
    """One reason to leave a finding out of the verdict. `expires` is the last day on which it holds.

    `entry` is the fingerprint that an entry of the baseline has, which may be an older one than the finding's.
    """

    kind: SuppressionKind
    reason: str
    owner: str = ""
    expires: date | None = None
    entry: str = ""
