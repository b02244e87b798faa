"""Whether what an agent returned counts as an answer: a program that ended well may still have said nothing."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from codeloupe.agents.calls.schemas import check_output
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.ports import Agent

# Checking takes some milliseconds for so much text; more is done beside the event loop.
_QUICK_CHARACTERS = 64 * 1024


async def checked_answer(result: AgentResult, request: AgentRequest, agent: Agent) -> AgentResult:
    """The result with `structured` as asked for. Raises OutputInvalid, which keeps the answer and its cost."""
    if not result.output.strip() and result.structured is None:
        raise OutputInvalid(
            f"the answer of {agent.name} is empty",
            agent=agent.name,
            hint="try again, or another model",
            raw_output=result.raw_output,
            session_id=result.session_id,
            cost_usd=result.total_cost_usd,
            usage=result.usage,
        )
    if request.output_schema is None:
        return result
    if len(result.output) + len(result.raw_output) <= _QUICK_CHARACTERS:
        checked = check_output(result, request.output_schema)
    else:
        checked = await asyncio.to_thread(check_output, result, request.output_schema)
    if agent.limits.schema and result.structured is None:
        note = f"{agent.name} gave its structured answer as text, and it was read from there"
        return replace(checked, notes=(*checked.notes, note))
    return checked
