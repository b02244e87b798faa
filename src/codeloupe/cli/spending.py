"""`codeloupe spending`: the cost of agent calls by month, repository, team and agent, against the budgets."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

import msgspec

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, examples, option
from codeloupe.cli.verbs import note, set_up_logging, write_result
from codeloupe.config.loading import database_url, user_settings
from codeloupe.config.schema import Settings
from codeloupe.errors import UsageError
from codeloupe.reports.wording import counted, dollars
from codeloupe.store import open_database
from codeloupe.store.interface import Database
from codeloupe.store.spending import Cost, Spending, SpendingRow, month_of
from codeloupe.store.sqlite import state_directory
from codeloupe.system.untrusted import terminal

_KINDS = ("all", "repository", "team")
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_NOT_ENFORCED = "the monthly budgets are only compared: they are enforced in a shared database"


class AgentSpending(msgspec.Struct, frozen=True):
    """The cost of one agent."""

    agent: str
    usd: float
    requests: int
    unknown_costs: int


class BudgetSpending(msgspec.Struct, frozen=True, kw_only=True):
    """The cost that was paid from one budget, with its limit in the settings, if there is one."""

    kind: str
    name: str
    limit_usd: float | None
    usd: float
    requests: int
    unknown_costs: int
    agents: tuple[AgentSpending, ...]


class MonthSpending(msgspec.Struct, frozen=True):
    """The cost of all work in a month."""

    month: str
    usd: float
    requests: int
    unknown_costs: int


class SpendingReport(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `codeloupe spending --json`. `months` are all months with calls, the newest first."""

    schema_version: int = 1
    month: str
    budgets: tuple[BudgetSpending, ...] = ()
    months: tuple[MonthSpending, ...] = ()


def configure(parser: Parser) -> None:
    """Add the options of `spending`."""
    option(parser, "--month", "YYYY-MM", "the month to show, in UTC (default: this month)")
    options.add(parser, "--json")
    examples(parser, "codeloupe spending", "codeloupe spending --month 2026-11 --json")


def run(arguments: argparse.Namespace) -> int:
    """Show what was spent. Raise UsageError, ConfigError and StoreError."""
    set_up_logging()
    if arguments.month is not None and not _MONTH.fullmatch(arguments.month):
        raise UsageError(f"{terminal(arguments.month)} is not a month", hint="give a month such as 2026-11")
    settings = user_settings(os.environ)
    with open_database(database_url(os.environ), state_directory(os.environ)) as database:
        report = _report(database, settings, arguments.month)
        is_shared = database.is_shared
    if arguments.json:
        write_result(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
        return 0
    write_result(_as_text(report))
    if not is_shared and any(budget.limit_usd is not None for budget in report.budgets):
        note(_NOT_ENFORCED)
    return 0


def _report(database: Database, settings: Settings, month: str | None) -> SpendingReport:
    chosen = month or month_of(database.clock())
    # Reading must not create a database.
    if not database.is_made():
        return SpendingReport(month=chosen)
    spending = Spending(database)
    months: list[MonthSpending] = []
    for name, cost in spending.months().items():
        months.append(MonthSpending(name, cost.usd, cost.requests, cost.unknown_costs))
    budgets = _budgets(spending.rows(chosen), settings)
    return SpendingReport(month=chosen, budgets=budgets, months=tuple(months))


def _budgets(rows: Sequence[SpendingRow], settings: Settings) -> tuple[BudgetSpending, ...]:
    """Return the budgets of a month: of all work, of repositories and of teams, each kind by its cost."""
    grouped: dict[str, list[SpendingRow]] = {}
    for row in rows:
        grouped.setdefault(row.budget, []).append(row)
    budgets = [_budget(name, own, settings) for name, own in grouped.items()]
    budgets.sort(key=lambda budget: (_KINDS.index(budget.kind), -budget.usd, budget.name))
    return tuple(budgets)


def _budget(name: str, rows: Sequence[SpendingRow], settings: Settings) -> BudgetSpending:
    kind, _, key = name.partition(" ")
    total = Cost()
    agents: list[AgentSpending] = []
    for row in rows:
        total = total.plus(row.cost)
        agents.append(AgentSpending(row.agent, row.cost.usd, row.cost.requests, row.cost.unknown_costs))
    agents.sort(key=lambda agent: (-agent.usd, agent.agent))
    return BudgetSpending(
        kind=kind,
        name=rows[-1].label,
        limit_usd=_limit(kind, key, settings),
        usd=total.usd,
        requests=total.requests,
        unknown_costs=total.unknown_costs,
        agents=tuple(agents),
    )


def _limit(kind: str, key: str, settings: Settings) -> float | None:
    if kind == "all":
        return settings.monthly_budget_usd
    if kind == "repository":
        return settings.monthly_repository_budget_usd
    # The limit of another team is in the settings of that team.
    if key == settings.team:
        return settings.monthly_team_budget_usd
    return None


def _as_text(report: SpendingReport) -> str:
    sections: list[tuple[str, list[tuple[str, str, str]]]] = []
    for kind, title in (("all", ""), ("repository", "by repository"), ("team", "by team")):
        of_kind = [budget for budget in report.budgets if budget.kind == kind]
        sections.append((title, [_line(budget.name, budget, budget.limit_usd) for budget in of_kind]))
        if kind == "all" and of_kind:
            sections.append(("by agent", [_line(agent.agent, agent) for agent in of_kind[0].agents]))
    others = [_line(month.month, month) for month in report.months if month.month != report.month]
    sections.append(("other months", others))
    lines = [f"Spending in {report.month} (UTC)"]
    if not report.budgets:
        lines += ["", "No agent calls were made."]
    widths = _widths(sections)
    for title, rows in sections:
        if rows:
            lines.append("")
        if rows and title:
            lines.append(title)
        for name, amount, requests in rows:
            lines.append(f"  {name:<{widths[0]}}  {amount:<{widths[1]}}  {requests}")
    return "\n".join(lines) + "\n"


def _widths(sections: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]) -> tuple[int, int]:
    """Return the widths of the first two columns, which are the same in all sections."""
    name_width = 0
    amount_width = 0
    for _, rows in sections:
        for name, amount, _ in rows:
            name_width = max(name_width, len(name))
            amount_width = max(amount_width, len(amount))
    return name_width, amount_width


def _line(
    name: str, cost: BudgetSpending | AgentSpending | MonthSpending, limit_usd: float | None = None
) -> tuple[str, str, str]:
    """Return a name, its cost (`$12.40 of $50.00`), and its requests (`12 requests, 3 of unknown cost`)."""
    amount = dollars(cost.usd)
    if limit_usd is not None:
        amount = f"{amount} of {dollars(limit_usd)}"
    requests = counted(cost.requests, "request")
    if cost.unknown_costs:
        requests = f"{requests}, {cost.unknown_costs:,} of unknown cost"
    return terminal(name), amount, requests
