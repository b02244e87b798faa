"""Keeps the one summary of a pull request: posted once, changed after that."""

from __future__ import annotations

from collections.abc import Sequence

from codeloupe.errors import ForgeRefused
from codeloupe.forges.github.failures import GONE
from codeloupe.forges.github.reading import read_comments
from codeloupe.forges.marker import Marker, MarkKind
from codeloupe.forges.sending import Sending
from codeloupe.forges.summary_text import summary_body
from codeloupe.model.publication import Plan, PostedComment, SummaryChange, WithoutComment


def own_summaries(comments: Sequence[PostedComment], marker: Marker) -> tuple[PostedComment, ...]:
    """The comments that are by us and bear the mark of a summary, the oldest first."""
    found = [(comment, marker.read(comment.body)) for comment in comments if comment.is_ours]
    return tuple(comment for comment, mark in found if mark is not None and mark.kind is MarkKind.SUMMARY)


async def post_summary(
    plan: Plan, refused: Sequence[WithoutComment], *, sending: Sending
) -> tuple[SummaryChange, PostedComment | None]:
    """Post or change it. A second one, which two runs at once may have left, is deleted."""
    body = summary_body(plan, refused, marker=sending.marker)
    known = own_summaries(plan.pull_request.comments, sending.marker)
    if not known:
        return SummaryChange.CREATED, await _post(body, sending)
    change = SummaryChange.UNCHANGED
    if known[0].body.strip() != body.strip():
        await sending.breathe()
        try:
            await sending.client.edit_comment(known[0].comment_id, body)
        except ForgeRefused as error:
            if error.status not in GONE:
                raise
            # Somebody has deleted it since it was read.
            return SummaryChange.CREATED, await _post(body, sending)
        change = SummaryChange.UPDATED
    await remove_doubles(known, sending)
    return change, known[0]


async def remove_doubles(summaries: Sequence[PostedComment], sending: Sending) -> None:
    """Delete each summary but the oldest, which all runs take for the one. Raises ForgeError."""
    for extra in summaries[1:]:
        await sending.breathe()
        await sending.client.delete_comment(extra.comment_id)


async def _post(body: str, sending: Sending) -> PostedComment | None:
    found: list[PostedComment] = []

    async def send() -> None:
        made = await sending.client.post_comment(body)
        posted = PostedComment(comment_id=int(made["id"]), body=body, is_ours=True, url=str(made.get("html_url", "")))
        found.append(posted)

    async def is_done() -> bool:
        found.extend(own_summaries(await read_comments(sending.client), sending.marker))
        return bool(found)

    await sending.once(send, is_done)
    return found[0] if found else None
