"""What a text names for its reader: options where the program shows it, parameters where a caller of the library reads.

A text is written with either. In it a name between backticks is a key of the settings, which both have, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# What is an option of the program, and what that is to a caller of the library. The first that fits counts.
_PARAMETERS = {
    r"without --commit: codeloupe review (\S+)": r'as RangeScope("\1")',
    r"since: --base (\S+), or (\S+)": r'since: BaseScope("\1"), or RangeScope("\2")',
    r"--commit ([^\s;,]+)": r'CommitScope("\1")',
    r"--input (\S+)=VALUE": r'inputs={"\1": VALUE}',
    "--repo DIR": "repo=DIR",
    "--repo": "repo",
    "--diff-file FILE": "DiffScope(NAME, DATA)",
    "--staged": "StagedScope()",
    "--uncommitted": "UncommittedScope()",
    "--commit": "CommitScope",
    "--untrusted --base REF": "BaseScope(REF), Settings(untrusted=True)",
    "--base REF": "BaseScope(REF)",
    "--base": "base",
    "--pr": "PullRequestScope",
    "--untrusted": "Settings(untrusted=True)",
    "--exclude": "Settings(exclude=...)",
    "--include": "Settings(include=...)",
    "--fresh": "fresh=True",
    "--fail-on": "fail_on",
    "--min-severity": "min_severity",
    "--model": "model",
}
# What is a parameter of the library, and the option for it.
_OPTIONS = {
    "max_budget_usd": "--max-budget-usd",
    "max_tokens": "--max-tokens",
    "max_requests": "--max-requests",
    "max_turns": "--max-turns",
    "idle_timeout_seconds": "--idle-timeout",
    "timeout_seconds": "--timeout",
    "permission_mode": "--permission-mode",
    "fallback_model": "--fallback-model",
    "append_system_prompt": "--append-system-prompt",
    "system_prompt": "--system-prompt",
    "resume_session": "--resume",
    "fork_session": "--fork",
    "output_schema": "--schema",
    "leave tools out": "leave --tools out",
    "keep sessions": "add --keep-session",
}
_names_options: ContextVar[bool] = ContextVar("names_options", default=False)


@contextmanager
def hints_for_the_program() -> Iterator[None]:
    """Let texts name the options of the program, for as long as the context is open; else they name parameters."""
    token = _names_options.set(True)
    try:
        yield
    finally:
        _names_options.reset(token)


def for_its_reader(text: str) -> str:
    """The text with the names that whoever reads it can give."""
    known = _OPTIONS if _names_options.get() else _PARAMETERS
    pattern = "|".join(rf"(?<![\w`-])(?:{one})(?![\w`-])" for one in known)
    return re.sub(pattern, lambda match: _said(match[0], known), text)


def _said(words: str, known: dict[str, str]) -> str:
    return next(re.sub(one, other, words) for one, other in known.items() if re.fullmatch(one, words))
