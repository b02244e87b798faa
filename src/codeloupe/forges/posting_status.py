"""Shows the outcome beside the commit: as a check run, or as a commit status."""

from __future__ import annotations

from typing import Any

from codeloupe.forges.sending import Sending
from codeloupe.forges.summary_text import check_summary, check_title, status_description
from codeloupe.model.publication import Conclusion, Plan, StatusKind

NAME = "codeloupe"
_EXTERNAL_ID = "codeloupe publish"


async def post_status(plan: Plan, sending: Sending) -> None:
    """Set it, once for each commit and outcome. Raises ForgeError."""
    match plan.options.status:
        case StatusKind.CHECK:
            await _post_check(plan, sending)
        case StatusKind.COMMIT:
            await _post_commit_status(plan, sending)
        case StatusKind.NONE:
            return


async def _post_check(plan: Plan, sending: Sending) -> None:
    head = plan.pull_request.head
    run: dict[str, Any] = {
        "name": NAME,
        "status": "completed",
        "conclusion": plan.conclusion.value,
        "external_id": _EXTERNAL_ID,
        "output": {"title": check_title(plan.review), "summary": check_summary(plan.review)},
    }

    async def own_run() -> int | None:
        runs = await sending.client.check_runs(head, NAME)
        return next((int(each["id"]) for each in runs if each.get("external_id") == _EXTERNAL_ID), None)

    async def is_done() -> bool:
        return await own_run() is not None

    known = await own_run()
    if known is not None:
        await sending.breathe()
        await sending.client.edit_check_run(known, run)
    else:
        await sending.once(lambda: sending.client.post_check_run({**run, "head_sha": head}), is_done)


async def _post_commit_status(plan: Plan, sending: Sending) -> None:
    head = plan.pull_request.head
    status = {"state": commit_state(plan), "context": NAME, "description": status_description(plan.review)}

    async def is_done() -> bool:
        """Whether the newest status of ours says the same."""
        ours = (each for each in await sending.client.statuses(head) if each.get("context") == NAME)
        newest = next(ours, None)
        return newest is not None and all(newest.get(name) == value for name, value in status.items())

    if not await is_done():
        await sending.once(lambda: sending.client.post_status(head, status), is_done)


def commit_state(plan: Plan) -> str:
    """A commit status knows no neutral: what could not be reviewed is an error, unless the policy lets it pass."""
    if plan.conclusion is Conclusion.NEUTRAL:
        return "success" if plan.review.passed else "error"
    return plan.conclusion.value
