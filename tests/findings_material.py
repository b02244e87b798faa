"""Claims and findings for tests, made from flat keywords."""

from typing import Any

from msgspec.structs import asdict, replace

from codeloupe.model.finding import Claim, Finding, Severity, Source

_OF_FINDING = frozenset(Finding.__struct_fields__) - {"claims", "severity"}
_ORDINARY: dict[str, Any] = {
    "reporter": "scripted",
    "source": Source.AGENT,
    "severity": Severity.HIGH,
    "title": "Wrong result",
    "file": "a.py",
    "line_start": 3,
    "line_end": 3,
    "evidence": "x = 1",
}


def make_claim(**flat: Any) -> Claim:
    """Return a high claim of an agent about a line, with these fields changed. One without a place has no lines."""
    claim = Claim(**{**_ORDINARY, **flat})
    return claim if claim.anchored else replace(claim, line_start=None, line_end=None)


def make_finding(*further: Claim, **flat: Any) -> Finding:
    """Return a finding with one claim of these fields, and further claims. It counts, unless `counts` is given."""
    of_finding = {name: value for name, value in flat.items() if name in _OF_FINDING}
    of_claim = {name: value for name, value in flat.items() if name not in _OF_FINDING}
    claim = make_claim(**of_claim)
    return Finding(claims=(claim, *further), severity=claim.severity, **of_finding)


def changed_finding(finding: Finding, **flat: Any) -> Finding:
    """Return the finding with these fields of it, or of its main claim, changed."""
    before = {**asdict(finding.main_claim), **{name: getattr(finding, name) for name in _OF_FINDING}}
    return make_finding(*finding.claims[1:], **{**before, **flat})
