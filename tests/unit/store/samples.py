"""Results, requests and a clock for the tests of the store."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode, TokenUsage

# Any code point, halves of surrogate pairs among them.
any_text = st.text(st.characters(exclude_categories=()), max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
_counts = st.integers(min_value=0)
_texts = st.lists(any_text, max_size=3).map(tuple)
results = st.builds(
    AgentResult,
    success=st.booleans(),
    output=any_text | st.text(min_size=1500, max_size=2000),
    agent=any_text,
    structured=json_values,
    session_id=any_text,
    duration_ms=_counts,
    num_turns=_counts,
    total_cost_usd=st.none() | st.floats(min_value=0, allow_nan=False),
    usage=st.builds(TokenUsage, input_tokens=_counts, cached_tokens=_counts, output_tokens=_counts),
    model=st.none() | any_text,
    files_changed=_texts,
    permission_denials=_texts,
    attempts=_counts,
    raw_output=any_text,
    error=st.none() | any_text,
    from_ledger=st.booleans(),
    inexact=any_text,
    other_answers=_texts,
    stored=st.booleans(),
    notes=_texts,
)
# Few and telling characters, so that texts which run into each other would meet.
_short = st.text(st.sampled_from('ab":,[]{}\\\0\n\ud800'), max_size=3)
_maybe = st.none() | _short
request_fields: dict[str, st.SearchStrategy[Any]] = {
    "prompt": _short,
    "model": _maybe,
    "fallback_model": _maybe,
    "system_prompt": _maybe,
    "append_system_prompt": _maybe,
    "permission_mode": st.sampled_from(PermissionMode),
    "tools": st.none() | st.lists(_short, max_size=2).map(tuple),
    "max_turns": st.none() | st.integers(1, 3),
    "output_schema": st.none() | st.dictionaries(_short, json_values, max_size=2),
    "accept_any_output": st.booleans(),
    "resume_session": _maybe,
    "context": st.dictionaries(_short, _short, max_size=2),
}
requests = st.fixed_dictionaries(request_fields).map(lambda fields: request(**fields))


def request(**changes: Any) -> AgentRequest:
    """A request; `changes` replaces any field."""
    return AgentRequest(**{"prompt": "look", "working_dir": Path("somewhere"), **changes})


def result(output: str = "answer", **changes: Any) -> AgentResult:
    """A finished call; `changes` replaces any field."""
    return AgentResult(**{"success": True, "output": output, "agent": "scripted", **changes})


class SetClock:
    """A wall clock that stands still until it is moved."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
