"""Check runs and commit statuses: what GitHub's REST API does with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.github_server_calls import Answer, Call, Handler, Refused, invalid, not_found
from tests.github_server_documents import repository
from tests.github_server_records import CheckRun, Status
from tests.github_server_remarks import check_run, status

_REPOSITORY = "/repos/{owner}/{repo}"
_LONGEST_DESCRIPTION = 140
_MAY_PUSH = ("admin", "maintain", "write")
_WORST_FIRST = ("error", "failure", "pending", "success")


def _need_app(call: Call) -> None:
    """Only Apps make check runs, and the token of Actions is one of an App."""
    if not call.actor.is_integration:
        raise Refused(403, "You must authenticate via a GitHub App.")
    call.need("checks")


def create_check_run(call: Call) -> Answer:
    _need_app(call)
    repo, body = call.repository, call.body
    if repo.resolve(body["head_sha"]) != body["head_sha"]:
        raise Refused(422, f"No commit found for SHA: {body['head_sha']}")
    run = CheckRun(
        id=repo.world.new_id(),
        app=call.actor.app_slug or "github-actions",
        name=body["name"],
        head_sha=body["head_sha"],
        started_at=repo.world.now(),
    )
    _fill(run, body, repo.world.now())
    repo.check_runs.append(run)
    return Answer(201, check_run(repo, run, call.url))


def update_check_run(call: Call) -> Answer:
    _need_app(call)
    repo, run = call.repository, _check_run(call)
    if run.app != (call.actor.app_slug or "github-actions"):
        raise Refused(
            403, f"Invalid app_id `{run.app}` - check run can only be modified by the GitHub App that made it."
        )
    _fill(run, call.body or {}, repo.world.now())
    return Answer(200, check_run(repo, run, call.url))


def _fill(run: CheckRun, body: Mapping[str, Any], now: str) -> None:
    output = body.get("output", {})
    if body.get("status") == "completed" and body.get("conclusion") is None and run.conclusion is None:
        raise invalid("CheckRun", "conclusion", code="missing_field")
    for name in ("name", "external_id", "details_url", "started_at", "status", "conclusion", "completed_at"):
        if name in body:
            setattr(run, name, body[name])
    for name in ("title", "summary", "text"):
        if name in output:
            setattr(run, name, output[name])
    run.annotations.extend(output.get("annotations", ()))
    if "conclusion" in body:
        run.status = "completed"
        run.completed_at = body.get("completed_at", now)


def _check_run(call: Call) -> CheckRun:
    number = call.number("check_run_id")
    found = next((each for each in call.repository.check_runs if each.id == number), None)
    if found is None:
        raise not_found()
    return found


def get_check_run(call: Call) -> Answer:
    return Answer(200, check_run(call.repository, _check_run(call), call.url))


def _sha(call: Call) -> str:
    sha = call.repository.resolve(call.parameters["ref"])
    if sha is None:
        raise Refused(422, f"No commit found for SHA: {call.parameters['ref']}")
    return sha


def list_check_runs(call: Call) -> Answer:
    """The check runs of a commit; of one name and App the latest, unless all are asked for."""
    repo, sha = call.repository, _sha(call)
    found = [each for each in repo.check_runs if each.head_sha == sha]
    if call.query.get("filter", "latest") == "latest":
        found = list({(each.app, each.name): each for each in found}.values())
    name, state = call.query.get("check_name"), call.query.get("status")
    found = [each for each in found if name in (None, each.name) and state in (None, each.status)]
    return call.page(found[::-1], lambda each: check_run(repo, each, call.url), within="check_runs")


def create_status(call: Call) -> Answer:
    call.need("statuses")
    repo, body, sha = call.repository, call.body, call.parameters["sha"]
    if not call.actor.is_integration and repo.permission_of(call.actor.user.login) not in _MAY_PUSH:
        raise not_found()
    if sha not in repo.commits:
        raise Refused(422, f"No commit found for SHA: {sha}")
    if len(body.get("description") or "") > _LONGEST_DESCRIPTION:
        words = f"description is too long (maximum is {_LONGEST_DESCRIPTION} characters)"
        raise invalid("Status", "description", words)
    made = Status(
        id=repo.world.new_id(),
        sha=sha,
        state=body["state"],
        context=body.get("context", "default"),
        description=body.get("description"),
        target_url=body.get("target_url"),
        creator=call.actor.user,
        created_at=repo.world.now(),
    )
    repo.statuses.append(made)
    return Answer(201, status(repo, made, call.url))


def list_statuses(call: Call) -> Answer:
    repo, sha = call.repository, _sha(call)
    found = [each for each in repo.statuses if each.sha == sha]
    return call.page(found[::-1], lambda each: status(repo, each, call.url))


def combined_status(call: Call) -> Answer:
    """The latest status of each context, and the worst of them."""
    repo, sha = call.repository, _sha(call)
    latest = list({each.context: each for each in repo.statuses if each.sha == sha}.values())
    states = {each.state for each in latest}
    worst = next((state for state in _WORST_FIRST if state in states), "pending")
    base = f"{call.url}/repos/{repo.full_name}"
    document = {
        "state": "failure" if worst == "error" else worst,
        "statuses": [status(repo, each, call.url, whole=False) for each in latest],
        "sha": sha,
        "total_count": len(latest),
        "repository": repository(repo, call.url),
        "commit_url": f"{base}/commits/{sha}",
        "url": f"{base}/commits/{sha}/status",
    }
    return Answer(200, document)


HANDLERS: dict[tuple[str, str], Handler] = {
    ("POST", f"{_REPOSITORY}/check-runs"): create_check_run,
    ("GET", f"{_REPOSITORY}/check-runs/{{check_run_id}}"): get_check_run,
    ("PATCH", f"{_REPOSITORY}/check-runs/{{check_run_id}}"): update_check_run,
    ("GET", f"{_REPOSITORY}/commits/{{ref}}/check-runs"): list_check_runs,
    ("POST", f"{_REPOSITORY}/statuses/{{sha}}"): create_status,
    ("GET", f"{_REPOSITORY}/commits/{{ref}}/statuses"): list_statuses,
    ("GET", f"{_REPOSITORY}/commits/{{ref}}/status"): combined_status,
}
