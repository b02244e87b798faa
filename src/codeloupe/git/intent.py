"""What a change is meant to do, in its author's words: the messages of its commits."""

from __future__ import annotations

import re

from codeloupe.git.command import git
from codeloupe.git.engine import DIFF_ATTRIBUTES, in_engine, temporary_engine
from codeloupe.git.repository import Repository, read_head
from codeloupe.git.scopes import Sides
from codeloupe.model.change import ScopeKind
from codeloupe.model.material import Intent

_MAX_COMMITS = 20
_MESSAGE_CHARACTERS = 2_000
# They say who was there, not what the change does.
_TRAILER = re.compile(r"(?:[A-Za-z-]{1,40}-by|cc|change-id|reviewed-on|git-svn-id)\s?:", re.IGNORECASE)


async def read_intent(repository: Repository, sides: Sides, *, context: str = "") -> Intent:
    """The messages of the commits under review, the newest first; none for what is not committed.

    The title is the branch of a branch, the subject of a single commit. Raises GitFailed when git cannot read them.
    """
    scope = sides.scope
    match scope.kind:
        case ScopeKind.BRANCH:
            head = await read_head(repository)
            messages = [] if head.sha is None else await _messages(repository, sides.base, head.sha)
            return Intent(title=head.branch or "", messages=tuple(map(_joined, messages)), context=context)
        case ScopeKind.RANGE | ScopeKind.COMMIT | ScopeKind.PULL_REQUEST if scope.head is not None:
            since = None if scope.kind is ScopeKind.COMMIT else sides.base
            messages = await _messages(repository, since, scope.head)
            if len(messages) == 1:
                subject, body = messages[0]
                return Intent(title=subject, messages=(body,) if body else (), context=context)
            return Intent(messages=tuple(map(_joined, messages)), context=context)
        case _:
            return Intent(context=context)


async def _messages(repository: Repository, since: str | None, until: str) -> list[tuple[str, str]]:
    """Subject and body of each commit; merges are left out, except one that was asked for alone."""
    limits = ("--max-count=1", until) if since is None else (f"--max-count={_MAX_COMMITS}", "--no-merges", until)
    others = () if since is None else (f"^{since}",)
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        words = ("log", "-z", "--no-show-signature", "--no-patch", "--format=tformat:%s%n%n%b")
        output = await git(in_engine(git_dir), *words, *limits, *others, "--")
    records = (record.decode("utf-8", "replace") for record in output.split(b"\0"))
    pairs = (record.partition("\n\n") for record in records if record.strip())
    return [(subject.strip()[:_MESSAGE_CHARACTERS], _without_trailers(body)) for subject, _, body in pairs]


def _without_trailers(body: str) -> str:
    lines = body.strip()[:_MESSAGE_CHARACTERS].split("\n")
    return "\n".join(line for line in lines if not _TRAILER.match(line)).strip()


def _joined(message: tuple[str, str]) -> str:
    return "\n\n".join(part for part in message if part)
