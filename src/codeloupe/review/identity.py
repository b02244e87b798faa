"""What makes a finding the same finding tomorrow: path, category, rule and quote; not line numbers or wording."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from codeloupe.model.finding import Finding

_VERSION = "1"


def with_fingerprints(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings with their fingerprints. The same defect twice in a file gets two, told apart by order."""
    seen: Counter[str] = Counter()
    named: list[Finding] = []
    for finding in sorted(findings, key=lambda item: (item.file, item.line_start, item.line_end)):
        core = "\0".join((finding.file, finding.category, finding.rule or "", _normalised(finding.evidence)))
        seen[core] += 1
        text = f"{_VERSION}\0{core}\0{seen[core]}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        named.append(replace(finding, fingerprint=digest[:32]))
    return tuple(named)


def _normalised(quote: str) -> str:
    """A quote without its white space, which reformatting changes."""
    return re.sub(r"\s+", "", quote)
