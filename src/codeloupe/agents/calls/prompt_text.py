"""The text that goes to an agent: the prompt, and behind it the context by title."""

from __future__ import annotations

from codeloupe.model.agent import AgentRequest


def full_prompt(request: AgentRequest) -> str:
    """The prompt as it is, followed by each piece of context under its title."""
    pieces = (f"## {title}\n\n{text}" for title, text in request.context.items())
    return "\n\n".join((request.prompt, *pieces))
