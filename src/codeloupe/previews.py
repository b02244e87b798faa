"""What a review would look at, without running it: no agent is asked, and nothing is kept."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.git.repository import opening_once
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.model.review import Preview, PreviewFile
from codeloupe.model.scope import DefaultScope, ScopeRequest
from codeloupe.planning.experts import experts_of
from codeloupe.planning.prepare import fetched, prepare
from codeloupe.planning.select import with_and_without_lines
from codeloupe.planning.settings import settings_for
from codeloupe.planning.units import plan_units, tokens_of
from codeloupe.reviewers.prompt import PromptMaterial, new_fence, review_prompt


async def preview(
    scope: ScopeRequest | None = None, *, repo: Path | str = ".", settings: Settings | None = None, calls: AgentCalls
) -> Preview:
    """What a review would look at and what not, without running it. Raises as `review` does."""
    async with AsyncExitStack() as stack:
        stack.enter_context(opening_once())
        request, place = await stack.enter_async_context(fetched(scope or DefaultScope(), Path(repo)))
        settings = await settings_for(request, place, settings, calls.environment)
        prepared = await stack.enter_async_context(prepare(request, place, settings, must_match=True))
        files, without_lines = with_and_without_lines(prepared.selection.files)
        reasons = {skip.file: skip for skip in (*prepared.selection.skipped, *without_lines)}
        shown = {file.path for file in prepared.change.files}
        # What the agent that is asked first adds to each call, as far as that is known without looking for it.
        names: tuple[str, ...] = settings.reviewers or (settings.reviewer_type,)
        if names[0] == "auto":
            names = calls.names(settings)
        own_tokens = 0
        if names and (names[0] in calls.own or names[0] in AGENT_NAMES):
            own_tokens = calls.agent(names[0], settings).limits.own_tokens
        units = plan_units(
            files,
            effort=settings.effort,
            experts=experts_of(settings),
            passes=settings.passes,
            apart=len(settings.experts) > 1,
            own_tokens=own_tokens,
        )
        tokens = sum(unit.tokens for unit in units)
        if units:
            sample = review_prompt(units[0], PromptMaterial(fence=new_fence()))
            around = tokens_of(sample.system) + tokens_of(json.dumps(sample.schema)) + tokens_of(sample.text)
            tokens += max(0, around - units[0].tokens) * len(units)
        return Preview(
            scope=prepared.change.scope,
            files=tuple(PreviewFile(file, reasons.get(file.path)) for file in prepared.change.files),
            out_of_reach=tuple(skip for skip in reasons.values() if skip.file not in shown),
            units=len(units),
            prompt_tokens_estimate=tokens,
        )
