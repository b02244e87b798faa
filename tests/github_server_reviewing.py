"""GitHub's rules for reviews and comments on lines, in its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.github_server_calls import Actor, Refused
from tests.github_server_patches import Patch, PatchLine, Side
from tests.github_server_records import Place
from tests.github_server_world import PullRequest

LONGEST_BODY = 65536
STATES = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}
ONE_PENDING = "can only have one pending review per pull request"
_NO_HUNK = ("diff_hunk", "can't be blank")


@dataclass(frozen=True, slots=True)
class Draft:
    """A comment that may be made."""

    place: Place
    body: str


class Misplaced(Exception):
    """A comment that the diff has no place for; `found` are fields of the thread, and what is wrong with them."""

    def __init__(self, *found: tuple[str, str]) -> None:
        super().__init__(found)
        self.found = found

    def of_review(self, *, short_words: bool) -> Refused:
        """The answer to a whole review: a sentence that does not say which comment is meant."""
        if short_words:
            return unprocessable(f"{self.found[0][0].replace('_', ' ').capitalize()} could not be resolved")
        sentences = [f"Pull request review thread {field.replace('_', ' ')} {words}" for field, words in self.found]
        return unprocessable(_listed(sentences))

    def of_comment(self, *, short_words: bool) -> Refused:
        """The answer to a single comment: fields."""
        if short_words:
            error = {**_named(*self.found[0]), "message": "could not be resolved"}
            return Refused(422, "Validation Failed", errors=[error])
        return Refused(422, "Validation Failed", errors=[_named(field, words) for field, words in self.found])


def _listed(sentences: Sequence[str]) -> str:
    if len(sentences) < 3:
        return " and ".join(sentences)
    return f"{', '.join(sentences[:-1])}, and {sentences[-1]}"


def _named(field: str, words: str) -> dict[str, str]:
    name = f"pull_request_review_thread.{field}"
    if (field, words) == _NO_HUNK:
        return {"resource": "PullRequestReviewComment", "code": "missing_field", "field": name}
    return {"resource": "PullRequestReviewComment", "code": "custom", "field": name, "message": f"{name} {words}"}


def draft(pull: PullRequest, entry: Mapping[str, Any], commit: str) -> Draft:
    """A comment as it would stand in the diff at a commit. Raises Misplaced."""
    if problem := body_problem(entry["body"]):
        raise Misplaced(("comments", problem))
    file = pull.file(entry["path"], commit)
    if file is None:
        raise Misplaced(("path", "is invalid"), _NO_HUNK)
    if entry.get("subject_type") == "file":
        return Draft(Place(path=file.path), entry["body"])
    if file.patch is None:
        raise Misplaced(("line", "must be part of the diff"), _NO_HUNK)
    return Draft(_place(file.path, file.patch, entry), entry["body"])


def body_problem(body: str) -> str | None:
    """What is wrong with the text of a comment."""
    if not body.strip():
        return "body can't be blank"
    if len(body) > LONGEST_BODY:
        return f"body is too long (maximum is {LONGEST_BODY} characters)"
    return None


def _place(path: str, patch: Patch, entry: Mapping[str, Any]) -> Place:
    side = _side(entry, "side", "RIGHT")
    if entry.get("line") is None:
        return _at_position(path, patch, entry.get("position"))
    last = patch.find(side, entry["line"])
    start_line, start_side = entry.get("start_line"), _side(entry, "start_side", side)
    if start_line is None:
        if last is None:
            raise Misplaced(("line", "must be part of the diff"), _NO_HUNK)
        return Place(path=path, line=entry["line"], side=side)
    _check_range(last, patch.find(start_side, start_line))
    return Place(path=path, line=entry["line"], side=side, start_line=start_line, start_side=start_side)


def _check_range(last: PatchLine | None, start: PatchLine | None) -> None:
    found: list[tuple[str, str]] = []
    if last is None:
        found.append(("line", "must be part of the diff"))
    if last is None or start is None or start.hunk != last.hunk:
        found.append(("start_line", "must be part of the same hunk as the line."))
    elif start.position >= last.position:
        found.append(("start_line", "must precede the end line."))
    if found:
        raise Misplaced(*found, *([_NO_HUNK] if last is None else []))


def _side(entry: Mapping[str, Any], name: str, default: Side) -> Side:
    side = entry.get(name, default)
    if side not in ("LEFT", "RIGHT"):
        raise Misplaced((name, "is not included in the list"))
    return "LEFT" if side == "LEFT" else "RIGHT"


def _at_position(path: str, patch: Patch, position: int | None) -> Place:
    line = None if position is None else patch.at_position(position)
    if line is None:
        raise Misplaced(("position", "is invalid"), _NO_HUNK)
    side: Side = "LEFT" if line.kind == "-" else "RIGHT"
    return Place(path=path, line=line.number(side), side=side)


def check_submission(pull: PullRequest, actor: Actor, event: str | None, *, body: str, has_comments: bool) -> None:
    """Raises Refused when somebody may not submit such a review."""
    own = pull.author == actor.user
    if event == "REQUEST_CHANGES" and not body.strip():
        raise unprocessable("You need to leave a comment indicating the requested changes.")
    if event == "COMMENT" and not body.strip() and not has_comments:
        raise unprocessable("Body can't be blank")
    if len(body) > LONGEST_BODY:
        raise unprocessable(f"Body is too long (maximum is {LONGEST_BODY} characters)")
    if own and event in ("APPROVE", "REQUEST_CHANGES"):
        what = "approve" if event == "APPROVE" else "request changes on"
        raise unprocessable(f"Can not {what} your own pull request")
    if event == "APPROVE" and actor.kind == "actions" and not pull.repository.actions_may_approve:
        raise unprocessable("GitHub Actions is not permitted to approve pull requests.")


def unprocessable(sentence: str) -> Refused:
    """A 422 with a sentence, as the endpoints of reviews give it."""
    return Refused(422, "Unprocessable Entity", errors=[sentence])
