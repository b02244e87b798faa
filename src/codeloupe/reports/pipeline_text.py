"""A run of a pipeline as text for a person: its tree, where its result is, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from msgspec import Struct

from codeloupe.model.pipeline import RunRecord, StageState
from codeloupe.model.pipeline_definition import WorkspaceKind
from codeloupe.reports.pipeline_rows import Row, Tree, wrapped
from codeloupe.reports.pipeline_words import advised_command, has_work
from codeloupe.reports.plain_table import Sheet, cells, finished
from codeloupe.reports.wording import spent_in_words

_LABEL_CELLS = 10
_NOTE = "add --note to say what to do differently"


class Places(Struct, frozen=True, kw_only=True):
    """Where a run lies. `result` and `patch` are None as long as they are not there."""

    directory: Path
    result: Path | None = None
    patch: Path | None = None


def render_run(
    run: RunRecord,
    places: Places,
    *,
    width: int,
    color: bool,
    ascii_only: bool = False,
    verbose: bool = False,
    now: datetime | None = None,
) -> str:
    """The whole report, in lines of at most `width` cells; only paths and commands may be longer, to stay whole.

    Without `color` there is no escape sequence in it; with `ascii_only` no character outside ASCII.
    """
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    tree = Tree(sheet=sheet, now=now or datetime.now(UTC), verbose=verbose)
    lines = [_painted(sheet, row) for row in tree.rows(run)]
    return finished([*lines, "", *_closing(sheet, run, places)])


def _painted(sheet: Sheet, row: Row) -> str:
    return "".join(sheet.paint(text, style) for text, style in row)


def _closing(sheet: Sheet, run: RunRecord, places: Places) -> Iterator[str]:
    rows = [
        ("Spent", spent_in_words(run.usage)),
        ("Result", "" if places.result is None else str(places.result)),
        ("Patch", "" if places.patch is None else str(places.patch)),
        ("Files", str(places.directory)),
    ]
    for label, value in rows:
        if value:
            yield f"{sheet.paint(f'{label:<{_LABEL_CELLS}}', 'dim')}{sheet.clean(value)}"
    for number, (command, meaning) in enumerate(next_steps(run, places)):
        label = f"{'Next' if not number else '':<{_LABEL_CELLS}}"
        shown, why = sheet.clean(command), sheet.clean(meaning)
        fits = _LABEL_CELLS + cells(shown) + 2 + cells(why) <= sheet.width
        yield sheet.paint(label, "dim") + sheet.paint(shown, "cyan") + (f"  {why}" if fits else "")
        if not fits:
            yield from (" " * (_LABEL_CELLS + 2) + line for line in wrapped(why, sheet.width - _LABEL_CELLS - 2))


def next_steps(run: RunRecord, places: Places) -> Sequence[tuple[str, str]]:
    """Commands that a person may want next, each with what it does."""
    verb, name = "codeloupe pipeline", run.run_id
    match run.state:
        case StageState.COMPLETED:
            is_patch = places.patch is not None and run.workspace is WorkspaceKind.WORKTREE
            apply = [(f"git apply {quote(str(places.patch))}", "puts the result into your working tree")]
            outdated = [stage.name for stage in run.stages if stage.outdated and stage.state is StageState.COMPLETED]
            again = [
                (f"{verb} resume {name} --retry {stage}", "runs it again as it is defined now") for stage in outdated
            ]
            return [*(apply if is_patch else []), *again, *_retries(run, verb)]
        case StageState.AWAITING_APPROVAL:
            return _answers(run, verb, "--resume")
        case StageState.INTERRUPTED:
            return [(f"{verb} resume {name}", "continues; finished work is not paid for again")]
        case StageState.FAILED:
            return _retries(run, verb)
        case StageState.RUNNING | StageState.PENDING:
            return [*_answers(run, verb), (f"{verb} status {name} --follow", "follows it until it stops")]
        case _:
            return []


def _retries(run: RunRecord, verb: str) -> list[tuple[str, str]]:
    failed = [stage.name for stage in run.stages if stage.state is StageState.FAILED]
    return [(f"{verb} resume {run.run_id} --retry {quote(stage)}", f"tries it again; {_NOTE}") for stage in failed]


def _answers(run: RunRecord, verb: str, option: str = "") -> list[tuple[str, str]]:
    """What a person may say about each stage that waits."""
    answers: list[tuple[str, str]] = []
    for stage in run.stages:
        if stage.state is not StageState.AWAITING_APPROVAL:
            continue
        name = quote(stage.name)
        if has_work(stage):
            answers.append((f"{verb} approve {run.run_id} {name} {option}".rstrip(), "accepts its work and continues"))
        if advised := advised_command(stage):
            answers.append((advised, "continues, once you have done what is said above"))
        else:
            answers.append((f"{verb} resume {run.run_id} --retry {name}", f"tries it again; {_NOTE}"))
        answers.append((f"{verb} reject {run.run_id} {name} {option}".rstrip(), "fails the stage"))
    return answers
