"""`codeloupe spending` through the program, on both databases."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from codeloupe.store import open_database
from codeloupe.store.interface import Database
from codeloupe.store.spending import Cost, add_spending, month_of
from codeloupe.testing import StandInServer, Text
from tests.program import Ended
from tests.warm_program import codeloupe

ALL = ("all", "all work")
CODE = ("repository origin:1", "example.com/team/code")
TOOLS = ("repository origin:2", "example.com/team/tools")
CORE = ("team core", "core")
WEB = ("team web", "web")
TEXT = """\
Spending in 2026-11 (UTC)

  all work                $12.40 of $50.00  7 requests, 2 of unknown cost

by agent
  claude_cli              $12.40            5 requests
  codex                   $0.00             2 requests, 2 of unknown cost

by repository
  example.com/team/code   $10.00 of $20.00  4 requests
  example.com/team/tools  $2.40 of $20.00   3 requests, 2 of unknown cost

by team
  core                    $10.00 of $30.00  4 requests
  web                     $2.40             3 requests, 2 of unknown cost

other months
  2026-10                 $1.00             1 request
"""


class Store:
    """A database with spending, and the program that shows it."""

    def __init__(self, database: Database, folder: Path, environment: Mapping[str, str]) -> None:
        self.database = database
        self.folder = folder
        self.environment = environment

    def fill(self) -> None:
        with self.database.writing() as connection:
            for month, agent, budgets, cost in (
                ("2026-10", "codex", [ALL, CODE], Cost(1.0, 1, 0)),
                ("2026-11", "claude_cli", [ALL, CODE, CORE], Cost(10.0, 4, 0)),
                ("2026-11", "claude_cli", [ALL, TOOLS, WEB], Cost(2.4, 1, 0)),
                ("2026-11", "codex", [ALL, TOOLS, WEB], Cost(0.0, 2, 2)),
            ):
                add_spending(connection, month, agent, budgets=budgets, cost=cost)

    def spending(self, *words: str, **settings: str) -> Ended:
        set_by_variables = {f"CODELOUPE_{name.upper()}": value for name, value in settings.items()}
        return codeloupe("spending", *words, cwd=self.folder, environment={**self.environment, **set_by_variables})


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    environment = {"CODELOUPE_HOME": str(tmp_path / "state")}
    url = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        environment["CODELOUPE_DATABASE"] = url
    with open_database(url, tmp_path / "state") as database:
        yield Store(database, tmp_path, environment)


BUDGETS = {
    "team": "core",
    "monthly_budget_usd": "50",
    "monthly_team_budget_usd": "30",
    "monthly_repository_budget_usd": "20",
}


@pytest.mark.defect("W8")
def test_spending_is_shown_against_the_budgets(store: Store) -> None:
    store.fill()
    ended = store.spending("--month", "2026-11", **BUDGETS)
    assert (ended.exit_code, ended.stdout) == (0, TEXT)
    assert ("enforced in a shared database" in ended.stderr) is not store.database.is_shared


def test_json_has_the_same_amounts_by_budget_and_agent(store: Store) -> None:
    store.fill()
    shown: dict[str, Any] = json.loads(store.spending("--month", "2026-11", "--json", **BUDGETS).stdout)
    assert (shown["schema_version"], shown["month"]) == (1, "2026-11")
    assert [(each["kind"], each["name"], each["limit_usd"]) for each in shown["budgets"]] == [
        ("all", "all work", 50.0),
        ("repository", "example.com/team/code", 20.0),
        ("repository", "example.com/team/tools", 20.0),
        ("team", "core", 30.0),
        ("team", "web", None),
    ]
    assert shown["budgets"][2]["agents"] == [
        {"agent": "claude_cli", "usd": 2.4, "requests": 1, "unknown_costs": 0},
        {"agent": "codex", "usd": 0.0, "requests": 2, "unknown_costs": 2},
    ]
    assert [each["month"] for each in shown["months"]] == ["2026-11", "2026-10"]


def test_without_calls_nothing_is_created(tmp_path: Path) -> None:
    state = tmp_path / "state"
    ended = codeloupe("spending", cwd=tmp_path, environment={"CODELOUPE_HOME": str(state)})
    assert ended.exit_code == 0
    assert "No agent calls were made." in ended.stdout
    assert not state.exists()


def test_a_month_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    ended = codeloupe("spending", "--month", "2026-13", cwd=tmp_path)
    assert ended.exit_code == 2
    assert "2026-13 is not a month" in ended.stderr


def test_a_call_of_the_program_is_shown_for_this_month(store: Store) -> None:
    with StandInServer([Text("hello")]) as server:
        environment = {**store.environment, "ANTHROPIC_API_KEY": "stand-in", "ANTHROPIC_BASE_URL": server.url}
        words = ("agent", "run", "--agent", "api", "--model", "anthropic:claude-opus-4-8", "Say hello.")
        called = codeloupe(*words, cwd=store.folder, environment=environment)
    assert called.exit_code == 0, called.stderr
    shown: dict[str, Any] = json.loads(store.spending("--json").stdout)
    assert shown["month"] == month_of(store.database.clock())
    assert [(each["kind"], each["requests"]) for each in shown["budgets"]] == [("all", 1), ("repository", 1)]
    assert [each["agent"] for each in shown["budgets"][0]["agents"]] == ["api"]
