"""Places in SARIF: relative addresses below the root of the sources, and regions of lines."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from codeloupe.model.finding import Finding
from codeloupe.system.untrusted import is_inside, plain_code

SOURCE_ROOT = "%SRCROOT%"
_LONGEST_SNIPPET = 8_000
_LARGEST_LINE = 2**31 - 1


def artifact(path: str) -> dict[str, str]:
    """The address of a file; every byte of its name that could mean something in an address is encoded."""
    return {"uri": quote(_path_bytes(path), safe="/"), "uriBaseId": SOURCE_ROOT}


def location(finding: Finding) -> dict[str, Any]:
    """Where a finding of a known file is: the file and lines, or the file alone when it has no place in it."""
    physical: dict[str, Any] = {"artifactLocation": artifact(finding.file)}
    if 0 < finding.first_line <= _LARGEST_LINE:
        physical["region"] = _region(finding)
    return {"physicalLocation": physical}


def _region(finding: Finding) -> dict[str, Any]:
    start = finding.first_line
    lines: dict[str, Any] = {"startLine": start, "endLine": min(max(start, finding.last_line), _LARGEST_LINE)}
    if finding.evidence.strip():
        lines["snippet"] = {"text": plain_code(finding.evidence.rstrip("\n"), longest=_LONGEST_SNIPPET)}
    return lines


def file_locations(paths: tuple[str, ...], *, most: int) -> list[dict[str, Any]]:
    """The first of some files, without lines."""
    inside = [path for path in dict.fromkeys(paths) if is_inside(path)][:most]
    return [{"physicalLocation": {"artifactLocation": artifact(path)}} for path in inside]


def _path_bytes(path: str) -> bytes:
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # No path of git holds such a character; a model may write anything.
        return path.encode("utf-8", "surrogatepass")
