"""The lines that `codeloupe hook install` writes into a git hook, and how they get into a file and out of it again.

The block comes right after the first line, so that no `exit` or `exec` of an existing hook skips it. Its first line has
a checksum of the others: a block that someone has edited is recognised, and is neither replaced nor removed.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from msgspec import Struct

SHELL_LINE = "#!/bin/sh\n"
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"})
_CREATED = "# The file was created with it."
_BLOCK = """\
# Written by `codeloupe hook install`. Do not edit: `codeloupe hook uninstall {kind}` removes it.
{created}codeloupe={program}
[ -x "$codeloupe" ] || codeloupe=$(command -v codeloupe) || {{
    echo 'codeloupe: not found, neither where it was nor on the PATH, so nothing was reviewed.' >&2
    echo '  hint: install it, or remove its lines from this hook; git --no-verify skips hooks once' >&2
    exit 1
}}
"""
_PRE_COMMIT = """\
"$codeloupe" hook pre-commit{options} || exit $?
"""
# Git writes the pushed refs to the standard input, which the rest of the hook gets too.
_PRE_PUSH = """\
codeloupe_refs=
[ -t 0 ] || codeloupe_refs=$(cat)
printf '%s\\n' "$codeloupe_refs" | "$codeloupe" hook pre-push "$@"{options} || exit $?
if [ -n "$codeloupe_refs" ]; then
exec <<CODELOUPE_REFS
$codeloupe_refs
CODELOUPE_REFS
else
exec </dev/null
fi
"""


class Block(Struct, frozen=True):
    """The block of a hook; `created_file` if the file was not there before."""

    text: str
    created_file: bool


def render_block(kind: str, program: str, options: Sequence[str], *, created_file: bool) -> Block:
    """Return the block that calls `program`, or the one on the PATH, with these options of a review."""
    created = f"{_CREATED}\n" if created_file else ""
    words = "".join(f" {shlex.quote(option)}" for option in options)
    command = _PRE_PUSH if kind == "pre-push" else _PRE_COMMIT
    body = _BLOCK.format(kind=kind, created=created, program=shlex.quote(program)) + command.format(options=words)
    return Block(f"{_opening(kind)} {_checksum(body)} >>>\n{body}{_closing(kind)}\n", created_file)


def is_mentioned(text: str, kind: str) -> bool:
    """Return whether a hook has a line of a block, intact or not."""
    return any(line.startswith((_opening(kind), _closing(kind))) for line in text.splitlines())


def find_block(text: str, kind: str) -> Block | None:
    """Return the one intact block of a hook, or None."""
    pattern = rf"^{re.escape(_opening(kind))} ([0-9a-f]+) >>>\n(.*?)^{re.escape(_closing(kind))}(?:\n|\Z)"
    found = list(re.finditer(pattern, text, re.MULTILINE | re.DOTALL))
    if len(found) != 1:
        return None
    checksum, body = found[0].groups()
    rest = text[: found[0].start()] + text[found[0].end() :]
    if checksum != _checksum(body) or is_mentioned(rest, kind):
        return None
    return Block(found[0][0].removesuffix("\n") + "\n", f"{_CREATED}\n" in body)


def with_block(text: str, block: Block) -> str:
    """Return a hook with the block after its first line."""
    first, line_end, rest = text.partition("\n")
    if not line_end:
        return first + "\n" + block.text.removesuffix("\n")
    return f"{first}\n{block.text}{rest}"


def without_block(text: str, block: Block) -> str:
    """Return the hook as it was before `with_block`."""
    if block.text in text:
        return text.replace(block.text, "", 1)
    return text.replace("\n" + block.text.removesuffix("\n"), "", 1)


def is_shell_script(text: str) -> bool:
    """Return whether the first line names a shell that reads POSIX syntax, directly or through env."""
    first = text.partition("\n")[0]
    if not first.startswith("#!"):
        return False
    names = [PurePosixPath(word).name for word in first.removeprefix("#!").split(" ") if word]
    if names[:1] == ["env"]:
        names = [name for name in names[1:] if not name.startswith("-") and "=" not in name]
    return bool(names) and names[0] in _SHELLS


def _opening(kind: str) -> str:
    return f"# >>> codeloupe {kind}"


def _closing(kind: str) -> str:
    return f"# <<< codeloupe {kind} <<<"


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()[:12]
