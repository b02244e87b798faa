"""`codeloupe history trends`: findings, share fixed, cost and time, by week, expert and reviewer."""

from __future__ import annotations

import argparse

from codeloupe.cli.history_place import at_least, identity_of, laid_out, nothing_yet
from codeloupe.cli.options import look_of
from codeloupe.cli.writing import write_result
from codeloupe.model.history import TrendKey, Trends
from codeloupe.reports.history import render_trends, trends_json
from codeloupe.store.history import SqliteHistory


def run(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Show the trends; a history without entries is no error."""
    weeks = at_least(arguments.weeks, 1, "--weeks")
    identity = identity_of(history, arguments)
    keys = [TrendKey(word) for word in dict.fromkeys(arguments.by)] if arguments.by else list(TrendKey)
    names = None if identity is None else identity.names
    told = [_last_weeks(trends, weeks) for trends in history.trends(keys, repositories=names)]
    shown = [trends for trends in told if trends.rows]
    if arguments.json:
        write_result(trends_json(told))
    elif shown:
        write_result(render_trends(shown, **laid_out(look_of(arguments.color))))
    else:
        write_result(nothing_yet(identity))
    return 0


def _last_weeks(trends: Trends, weeks: int) -> Trends:
    return trends if trends.by is not TrendKey.WEEK else Trends(trends.by, trends.rows[-weeks:], trends.problems)
