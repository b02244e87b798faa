"""Reviews and pull requests to publish: one small file in three states, its findings, and a call of the publisher."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.findings.verdict import conclude
from codeloupe.forges.forge import Patience
from codeloupe.forges.publishing import PublishRequest, publish_github
from codeloupe.model.agent import Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, Source
from codeloupe.model.publication import Publication, PublishOptions, StatusKind
from codeloupe.model.review import Coverage, Policy, Review, ReviewerInfo, Verdict
from codeloupe.reports.json_v1 import render_json
from tests.findings_material import make_finding
from tests.github_server import GitHubServer
from tests.github_server_world import Comment, PullRequest, Repository

BASE = "b" * 40
FIRST, SECOND, THIRD = "1" * 40, "2" * 40, "3" * 40
ROWS = tuple(f"value_{number} = compute({number})" for number in range(1, 41))


def patch(rows: Sequence[str] = ROWS, *, start: int = 1) -> str:
    """The patch of a file that the change adds, or of a hunk that begins further down."""
    added = "\n".join(f"+{row}" for row in rows)
    return f"@@ -{0 if start == 1 else start},0 +{start},{len(rows)} @@\n{added}"


FILES = {"app.py": patch(), "other.py": patch()}


def finding(line: int = 4, *, file: str = "app.py", **changes: Any) -> Finding:
    """A finding of an external reviewer, whose claims count without proof. `end` or `proof` may close it."""
    ordinary: dict[str, Any] = {
        "source": Source.EXTERNAL,
        "line_start": line,
        "line_end": line,
        "category": "correctness",
        "title": f"Wrong result in line {line}",
        "body": "It fails for zero.",
        "evidence": ROWS[(line - 1) % len(ROWS)],
        "fingerprint": f"{file.replace('/', '.')}-fingerprint-{line:04}",
    }
    return make_finding(file=file, **{**ordinary, **changes})


def review(*findings: Finding, head: str | None = FIRST, **changes: Any) -> Review:
    """A review of these findings with what follows from them, unless the changes say something else."""
    whole = Review(
        review_id="abcdef0123456789",
        scope=Scope(ScopeKind.RANGE, BASE, head, "main...topic"),
        reviewer=ReviewerInfo("scripted", "for a test"),
        verdict=Verdict.PASS,
        complete=True,
        exit_code=0,
        summary="",
        policy=Policy(),
        findings=findings,
        coverage=Coverage(files_total=2, files_reviewed=2, units_total=2),
        usage=Usage(requests=2, input_tokens=1_000, output_tokens=200, cost_usd=0.12, duration_seconds=3.0),
    )
    return replace(conclude(replace(whole, **changes)), **changes)


class Sleeper(list[float]):
    """Sleeps of no time, kept."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@dataclass(frozen=True)
class Desk:
    """A GitHub server with one pull request, and a directory for reports."""

    server: GitHubServer
    directory: Path

    @property
    def repo(self) -> Repository:
        return self.server.repository("octo/demo")

    @property
    def pull(self) -> PullRequest:
        return self.repo.pulls[1]

    @property
    def first(self) -> Comment:
        return self.pull.review_comments[0]

    def publish(
        self,
        reviewed: Review,
        *,
        sleeper: Sleeper | None = None,
        environment: dict[str, str] | None = None,
        status: StatusKind | None = None,
        **options: Any,
    ) -> Publication:
        """Publish a review, from a report in a file, without waiting; options may be those of the request too."""
        report = write_report(self.directory / "review.json", reviewed)
        fields: dict[str, Any] = {"repo": self.directory, "pull_request": "octo/demo#1", "review": str(report)}
        for name in PublishRequest.__struct_fields__:
            if name in options:
                fields[name] = options.pop(name)
        request = PublishRequest(**fields, options=PublishOptions(**options), status=status)
        variables = {"GITHUB_TOKEN": self.server.token, "GITHUB_API_URL": self.server.url, **(environment or {})}
        patience = Patience(sleep=Sleeper() if sleeper is None else sleeper)
        return asyncio.run(publish_github(request, environment=variables, patience=patience))


def write_report(path: Path, reviewed: Review) -> Path:
    """A report in a file, as `codeloupe review --format json` writes it."""
    path.write_text(render_json(reviewed), encoding="utf-8")
    return path


def event_file(path: Path, **event: Any) -> Path:
    path.write_text(json.dumps(event), encoding="utf-8")
    return path
