"""What may stand in the strings of machine formats that show them to people: SARIF, JUnit, GitLab, reviewdog."""

from __future__ import annotations

from codeloupe.system.sanitise import terminal

_CUT = "…"
# What stands where a secret was, in evidence and in what agents are shown.
_MASKS = ("[redacted]", "********")


def plain_line(text: str, *, longest: int) -> str:
    """One line without control, bidirectional and invisible characters; of a long text, the beginning."""
    return terminal(" ".join(_capped(text, longest).split()))


def plain_text(text: str, *, longest: int) -> str:
    """As `plain_line`, with its line ends."""
    return terminal(_capped(text, longest).strip("\n").rstrip(), keep_newlines=True)


def plain_code(code: str, *, longest: int) -> str:
    """Code with its tabs and line ends; what cannot be seen in it is shown escaped."""
    rows = _capped(code, longest).replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(terminal(part) for part in row.split("\t")) for row in rows)


def plain_path(path: str) -> str:
    """A path as text. One that is not UTF-8, or holds what cannot be shown, no longer names the file."""
    return terminal(path)


def is_inside(path: str) -> bool:
    """Whether a path names something below the root: a finding without a place may have any text as its path."""
    parts = path.split("/")
    return bool(path) and ".." not in parts and parts[0] != "" and "\0" not in path


def is_masked(text: str) -> bool:
    """Whether a secret was taken out of this text."""
    return any(mask in text for mask in _MASKS)


def _capped(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + _CUT
