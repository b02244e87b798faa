"""Units and material for the tests of prompts."""

from __future__ import annotations

from codeloupe.engine.prompt import PromptMaterial
from codeloupe.git.diff import parse_diff
from codeloupe.model.change import Expert, FileChange, Unit, UnitPart

FENCE = "data-0123abcd"
CORRECTNESS = Expert(name="correctness", description="Wrong results.", focus=("wrong conditions", "lost errors"))
SECURITY = Expert(name="security", description="Ways in.", focus=("injection", "secrets in code"))


def file_from(diff: str | bytes) -> FileChange:
    """The one file of a diff."""
    (file,) = parse_diff(diff.encode() if isinstance(diff, str) else diff)
    return file


def modified(body: str | bytes, *, path: str = "src/a.py", start: int = 1) -> FileChange:
    """A file with one hunk of this body, whose counts are made to fit."""
    raw = body.encode() if isinstance(body, str) else body
    rows = [row[:1] for row in raw.split(b"\n")[:-1]]
    old = sum(sign in (b" ", b"-", b"") for sign in rows)
    new = sum(sign in (b" ", b"+", b"") for sign in rows)
    header = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -{start},{old} +{start},{new} @@\n"
    return file_from(header.encode() + raw)


def unit_of(*files: FileChange, experts: tuple[Expert, ...] = (CORRECTNESS, SECURITY)) -> Unit:
    return Unit(name="1", parts=tuple(UnitPart(file, file.hunks) for file in files), experts=experts, tokens=10)


def material(**fields: object) -> PromptMaterial:
    return PromptMaterial(fence=FENCE, **fields)  # type: ignore[arg-type]  # the fields are those of the material
