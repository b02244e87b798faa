"""Files, units, findings and material for the tests of prompts."""

from typing import Any

from codeloupe.git.diff import parse_diff
from codeloupe.model.change import Expert, FileChange, Unit, UnitPart
from codeloupe.model.finding import Claim, Finding, FindingStatus, Severity, Source
from codeloupe.reviewers.prompt import PromptMaterial

FENCE = "data-0123abcd"
CORRECTNESS = Expert(name="correctness", description="Wrong results.", focus=("wrong conditions", "lost errors"))
SECURITY = Expert(name="security", description="Ways in.", focus=("injection", "secrets in code"))


def file_from(diff: str | bytes) -> FileChange:
    """Return the one file of a diff."""
    raw = diff.encode() if isinstance(diff, str) else diff
    (file,) = parse_diff(raw)
    return file


def modified(body: str | bytes, *, path: str = "src/a.py", start: int = 1) -> FileChange:
    """Return a file with one hunk of this body, whose counts are made to fit."""
    raw = body.encode() if isinstance(body, str) else body
    signs = [row[:1] for row in raw.split(b"\n")[:-1]]
    old = sum(sign in (b" ", b"-", b"") for sign in signs)
    new = sum(sign in (b" ", b"+", b"") for sign in signs)
    header = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -{start},{old} +{start},{new} @@\n"
    return file_from(header.encode() + raw)


def unit_of(*files: FileChange, experts: tuple[Expert, ...] = (CORRECTNESS, SECURITY), tokens: int = 10) -> Unit:
    """Return a unit with the whole of some files."""
    parts = tuple(UnitPart(file, file.hunks) for file in files)
    return Unit(name="1", parts=parts, experts=experts, tokens=tokens)


def material(**fields: Any) -> PromptMaterial:
    """Return material with a known marker."""
    return PromptMaterial(fence=FENCE, **fields)


def make_claim(title: str = "wrong", *, severity: Severity = Severity.HIGH, **fields: Any) -> Claim:
    """Return an agent's claim; it is on line 1 of a.py if nothing else is given."""
    chosen = {"file": "a.py", "body": "why", "line_start": 1, "line_end": 1, "evidence": "x = 1", **fields}
    return Claim(reporter="claude", source=Source.AGENT, severity=severity, title=title, **chosen)


def make_finding(
    *claims: Claim, status: FindingStatus = FindingStatus.OPEN, fingerprint: str = "0123456789abcdef"
) -> Finding:
    """Return a finding of some claims, or of one; its severity is the first claim's."""
    made = claims or (make_claim(),)
    return Finding(claims=made, severity=made[0].severity, status=status, fingerprint=fingerprint)
