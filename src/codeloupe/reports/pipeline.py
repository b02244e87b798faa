"""Runs of pipelines as text for a person: the tree of a run, where its result is, what to do next; a table of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Unpack

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model import pipeline as model
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import WORKING_STATES, CriticVerdict, RecoveryStep, RunRecord, StageRecord, StageState
from codeloupe.reports import Look
from codeloupe.reports.history import moment
from codeloupe.reports.page import NARROWEST, Page, Text, cells
from codeloupe.reports.wording import counted, dollars, duration, quota_text, spent_text
from codeloupe.system.regex import regex

COULD_NOT_GO_ON, INTERRUPTED = 3, 130
# The style of each state, and its sign, in ASCII too.
_LOOKS = {
    StageState.PENDING: ("dim", "·", "."),
    StageState.RUNNING: ("cyan", "▸", ">"),
    StageState.GATING: ("cyan", "◆", "="),
    StageState.REWORKING: ("bold yellow", "↻", "~"),
    StageState.RECOVERING: ("bold yellow", "↺", "~"),
    StageState.WAITING_FOR_QUOTA: ("bold yellow", "⧗", "%"),
    StageState.AWAITING_APPROVAL: ("bold yellow", "?", "?"),
    StageState.COMPLETED: ("bold green", "✔", "+"),
    StageState.FAILED: ("bold red", "✖", "x"),
    StageState.CANCELLED: ("dim", "-", "-"),
    StageState.INTERRUPTED: ("bold yellow", "!", "!"),
}
_VERDICT_STYLES = dict(zip(CriticVerdict, ("bold green", "bold yellow", "bold red"), strict=True))
# An attempt is under way that is not in the list of those that produced a result.
_ATTEMPT_UNDER_WAY = frozenset({StageState.RUNNING, StageState.RECOVERING, StageState.REWORKING})
_COMMAND = regex(r"`(codeloupe pipeline resume [^`]+)`")
_STEPS = {
    RecoveryStep.FIRST: "call",
    RecoveryStep.RETRY: "retry",
    RecoveryStep.RESUME: "resumed session",
    RecoveryStep.FRESH: "fresh start",
}
_POINTS_SHOWN = 5
# Before the details of a stage: its part of the tree, and as much again.
_DETAIL_CELLS = 6


class Places(Struct, frozen=True, kw_only=True):
    """Where a run's files are. `result` and `patch` are None as long as they are not there."""

    directory: Path
    result: Path | None = None
    patch: Path | None = None


def render_run(
    run: RunRecord, places: Places, *, verbose: bool = False, now: datetime | None = None, **look: Unpack[Look]
) -> str:
    """The whole report, in lines of at most `width` cells; only paths and commands may be longer, to stay whole."""
    page = Page(**look, verbose=verbose)
    tree = Tree(page=page, now=now or datetime.now(UTC))
    closing = {
        "Spent": spent_text(run.usage),
        "Result": str(places.result or ""),
        "Patch": str(places.patch or ""),
        "Files": str(places.directory),
    }
    rows = [*tree.rows(run), Text()]
    rows += [Text((f"{label:<10}", "dim"), page.line(each)) for label, each in closing.items() if each]
    for number, (command, meaning) in enumerate(next_steps(run, places)):
        head = Text((f"{'' if number else 'Next':<10}", "dim"), (page.line(command), "cyan"), "  ")
        rows += tree.beside(head, page.line(meaning), "", stem=" " * 10)
    return page.printed(rows)


def render_runs(
    runs: Sequence[RunRecord], problems: Mapping[str, str], *, now: datetime | None = None, **look: Unpack[Look]
) -> str:
    """A table of runs in the order in which they come, and below it what cannot be read."""
    page = Page(**look)
    rows = [
        (
            (page.line(run.run_id), "cyan"),
            moment(run.started_at),
            page.line(run.pipeline),
            (state_text(run.state), _LOOKS[run.state][0]),
            f"{completed_stages(run)}/{len(run.stages)}",
            spent_on(run.usage).removeprefix("cost ") or "-",
            duration(run_seconds(run, now or datetime.now(UTC))),
        )
        for run in runs
    ]
    titles = ("RUN", "STARTED", "PIPELINE", "STATE", "STAGES", "COST", "TIME")
    # The name of a run begins with the moment when it was started.
    table = page.table(titles, rows, right="STAGES COST TIME", shrinks="PIPELINE", drops="STARTED COST TIME")
    return page.printed([*(table if rows else []), *(page.line(problems[name]) for name in sorted(problems))])


def next_steps(run: RunRecord, places: Places) -> list[tuple[str, str]]:
    """Commands that a person may want next, each with what it does."""
    verb, resume = "codeloupe pipeline", f"codeloupe pipeline resume {run.run_id}"
    waits, failed, outdated = [], [], []
    for stage in run.stages:
        again = f"{resume} --retry {quote(stage.name)}"
        retry = (again, "retries it; add --note to say what to do differently")
        if stage.state is StageState.FAILED:
            failed.append(retry)
        elif stage.state is StageState.COMPLETED and stage.outdated:
            outdated.append((again, "runs it again as it is defined now"))
        elif stage.state is StageState.AWAITING_APPROVAL:
            words = f"{run.run_id} {quote(stage.name)}"
            words += " --resume" if run.state is StageState.AWAITING_APPROVAL else ""
            advised = advised_command(stage)
            waits += [(f"{verb} approve {words}", "accepts its work and continues")] if has_work(stage) else []
            waits.append((advised, "continues, once you have done what the message above says") if advised else retry)
            waits.append((f"{verb} reject {words}", "fails the stage"))
    if run.state is StageState.COMPLETED:
        apply = (f"git apply {quote(str(places.patch))}", "puts the result into your working tree")
        is_patch = places.patch is not None and run.workspace is model.WorkspaceKind.WORKTREE
        return [*([apply] if is_patch else []), *outdated, *failed]
    follow = (f"{verb} status {run.run_id} --follow", "follows it until it stops")
    steps = {
        StageState.AWAITING_APPROVAL: waits,
        StageState.INTERRUPTED: [(resume, "continues; finished work is not paid for again")],
        StageState.WAITING_FOR_QUOTA: [(resume, "waits until the quota resets, and continues")],
        StageState.FAILED: failed,
        StageState.RUNNING: [*waits, follow],
        StageState.PENDING: [*waits, follow],
    }
    return steps.get(run.state, [])


class Tree(Struct, frozen=True, kw_only=True):
    """How to draw a run: where, at what moment, and how much. A `brief` one has at most two lines for each stage."""

    page: Page
    now: datetime
    brief: bool = False

    def rows(self, run: RunRecord) -> list[Text]:
        """The whole tree: the run, below it each stage, and below that the verdicts of its gates."""
        # Beside a name is a state, of which the longest has 17 cells, and before it the branch and the sign.
        room = max(min(self.page.width - 26, 32), 8)
        names = [self.page.cut(self.page.line(stage.name), room) for stage in run.stages]
        name_cells = max(map(cells, names), default=0)
        state_cells = max((len(stage_text(stage)) for stage in run.stages), default=0)
        rows, previous = list(self._run(run)), ""
        for position, (name, stage) in enumerate(zip(names, run.stages, strict=True), start=1):
            signs = ("`- |- ", "   |  ") if self.page.ascii_only else ("╰─ ├─ ", "   │  ")
            branch, stem = (pair[:3] if position == len(run.stages) else pair[3:] for pair in signs)
            style, *sign = _LOOKS[stage.state]
            head = Text(
                (branch, "dim"),
                (f"{sign[self.page.ascii_only]} ", style),
                (name + " " * (name_cells - cells(name)), "bold" if stage.state is not StageState.PENDING else "dim"),
                "  ",
                (stage_text(stage), style),
                " " * (state_cells - len(stage_text(stage)) + 2),
            )
            rows += self.beside(head, self._facts(stage, previous), "dim", stem=stem)
            rows += [Text((f"{stem:<{_DETAIL_CELLS}}", "dim"), detail) for detail in self._details(stage)]
            previous = stage.name
        return rows

    def beside(self, head: Text, text: str, style: str, *, indent: int = 0, stem: str = "") -> list[Text]:
        """A text beside its head, in lines that keep to the width; below the head where there is too little room."""
        used = cells(head.plain)
        room = self.page.width - indent - used
        if self.brief or cells(text) <= room:
            return [Text(head, (text, style))]
        above: list[Text] = []
        if used and room < 30:
            above, used = [head], cells(stem) + (3 if stem else 2)
        hang = Text((stem, "dim"), " " * (used - cells(stem)))
        lines = Text((" ".join(text.split()), style)).wrap(max(self.page.width - indent - used, NARROWEST))
        return above + [Text(hang if number or above else head, line) for number, line in enumerate(lines)]

    def _run(self, run: RunRecord) -> Iterator[Text]:
        state, style = state_text(run.state), _LOOKS[run.state][0]
        name = self.page.cut(self.page.line(run.pipeline), max(self.page.width - len(state) - 2, NARROWEST))
        facts = self._joined(run.run_id, duration(run_seconds(run, self.now)), spent_on(run.usage))
        yield from self.beside(Text((name, "bold"), "  ", (state, style), "  "), facts, "dim")
        # What one of its stages says already is not said twice.
        is_said = any(stage.reason and stage.reason in run.reason for stage in run.stages)
        if run.reason and not self.brief and not is_said:
            yield from self.beside(Text(), self.page.line(run.reason), style)

    def _facts(self, stage: StageRecord, previous: str) -> str:
        attempt, seconds = counted_attempt(stage), stage_seconds(stage, self.now)
        score = None if attempt is None else attempt.score
        # Of an attempt that is under way nothing is known yet.
        which = "last score" if stage.state in WORKING_STATES else "score"
        # That a stage follows the one above it goes without saying.
        follows = stage.needs not in ((), (previous,))
        return self._joined(
            attempt_text(stage),
            "" if score is None else f"{which} {score}",
            spent_on(stage.usage),
            "" if seconds is None else duration(seconds),
            " ".join(filter(None, (attempt.agent, attempt.model))) if attempt else "",
            f"after {', '.join(stage.needs)}" if follows else "",
        )

    def _details(self, stage: StageRecord) -> Iterator[Text]:
        style, is_done = _LOOKS[stage.state][0], stage.state is StageState.COMPLETED
        if self.brief:
            # What a person who waits wants to know: why it does not go on, or what the last gate missed.
            if stage.reason and not is_done:
                yield Text((self.page.line(stage.reason), style))
            elif stage.attempts and stage.attempts[-1].critiques and not is_done:
                yield from self._critique(stage.attempts[-1].critiques[-1], "", whole=False)
            return
        # The last failure says why, and what to do about it.
        open_ones = [] if is_done else open_failures(stage)
        if stage.reason and not (open_ones and stage.reason.startswith(open_ones[-1].message)):
            yield from self._prose(stage.reason, style)
        if outdated := stage.outdated_text:
            yield from self._prose(f"made before {outdated} changed", "bold yellow")
        yield from self._failures(stage.failures if self.page.verbose else open_ones, stage)
        for attempt in stage.attempts:
            label = f"attempt {attempt.number}: " if len(stage.attempts) > 1 else ""
            whole = self.page.verbose or attempt is counted_attempt(stage)
            for critique in attempt.critiques:
                yield from self._critique(critique, label, whole=whole)
            for note in attempt.notes if whole else ():
                yield from self._prose(f"note: {note}", "dim")
            if self.page.verbose and attempt.artifacts:
                yield from self._prose(f"{label}artifacts: {', '.join(attempt.artifacts)}", "dim")

    def _failures(self, failures: Sequence[model.FailedTry], stage: StageRecord) -> Iterator[Text]:
        """Why it does not go on; what has worked since is only counted."""
        shown = failures if self.page.verbose else failures[-_POINTS_SHOWN:]
        calls, named = (sum(each.kind != model.WORKSPACE_ERROR for each in some) for some in (stage.failures, shown))
        if rest := calls - named:
            yield Text((f"{counted(rest, 'earlier call')} failed", "dim"))
        # What failed alike several times is said once.
        alike: dict[str, list[model.FailedTry]] = {}
        for failure in shown:
            kind = "" if failure.kind == model.WORKSPACE_ERROR else f"{failure.kind}: "
            reason = f"{kind}{failure.message}{f' ({failure.hint})' if failure.hint else ''}"
            alike.setdefault(reason, []).append(failure)
        for reason, same in alike.items():
            steps = list(dict.fromkeys(_STEPS[failure.step] for failure in same))
            which = " and ".join(filter(None, (", ".join(steps[:-1]), steps[-1])))
            words = f"{which} failed{'' if len(same) == len(steps) else f', {len(same)} times in all'}: "
            if same[0].kind == model.WORKSPACE_ERROR:
                words = ""
            elif (gate := same[0].gate) is not None:
                words = f"gate {gate + 1} could not decide{'' if len(same) == 1 else f', {len(same)} times'}: "
            yield from self._prose(f"{words}{reason}", "bold yellow")

    def _critique(self, critique: model.Critique, label: str, *, whole: bool) -> Iterator[Text]:
        """A gate's verdict, with its summary beside it; one line unless the whole of it is wanted."""
        facts = (critique.gate.value, critique.verdict.value, critique.score)
        summary, words = critique.summary, " ".join(str(fact) for fact in facts if fact is not None)
        head = Text((label, "dim"), (f"{words}: " if summary else words, _VERDICT_STYLES[critique.verdict]))
        if not whole and not self.brief:
            room = self.page.width - _DETAIL_CELLS - cells(label) - len(words) - 2
            summary = self.page.cut(self.page.line(summary), room) if room >= 8 else ""
        yield from self._prose(summary, "", head)
        if whole and critique.verdict is not CriticVerdict.PASS:
            for points, sign in ((critique.blockers, "✖"), (critique.fixes, "→")):
                shown = points if self.page.verbose else points[:_POINTS_SHOWN]
                for point in shown:
                    yield from self._prose(point, "", Text((f"  {self.page.sign(sign)} ", "dim")))
                if rest := len(points) - len(shown):
                    yield Text((f"  and {rest:,} more", "dim"))

    def _prose(self, text: str, style: str, head: Text | None = None) -> list[Text]:
        return self.beside(head or Text(), self.page.line(text), style, indent=_DETAIL_CELLS)

    def _joined(self, *facts: str) -> str:
        return f" {self.page.sign('·')} ".join(self.page.line(fact) for fact in facts if fact)


def as_it_is(run: RunRecord, *, busy: bool) -> RunRecord:
    """The run as it really is: what its file says is under way is interrupted when no process works on it."""
    if busy or run.state in model.ENDED_STATES:
        return run
    gone = "the process that ran it is gone"
    stages = tuple(
        replace(stage, state=StageState.INTERRUPTED, reason=stage.reason or gone)
        if stage.state in WORKING_STATES
        else stage
        for stage in run.stages
    )
    stopped = run.state in WORKING_STATES or run.state is StageState.PENDING
    return replace(run, stages=stages, state=StageState.INTERRUPTED if stopped else run.state)


def exit_code_of(run: RunRecord) -> int | None:
    """None while a run goes on; 1 when a gate or a person said no to it, 3 when it waits or could not go on."""
    if run.state is StageState.FAILED:
        failed = [stage for stage in run.stages if stage.state is StageState.FAILED]
        last = (critique for stage in failed for each in stage.attempts[-1:] for critique in each.critiques)
        refused = any(critique.verdict is not CriticVerdict.PASS for critique in last)
        return 1 if refused else COULD_NOT_GO_ON
    waiting = (StageState.CANCELLED, StageState.AWAITING_APPROVAL, StageState.WAITING_FOR_QUOTA)
    waits = dict.fromkeys(waiting, COULD_NOT_GO_ON)
    return {StageState.COMPLETED: 0, StageState.INTERRUPTED: INTERRUPTED, **waits}.get(run.state)


def completed_stages(run: RunRecord) -> int:
    """How many of its stages are done."""
    return sum(stage.state is StageState.COMPLETED for stage in run.stages)


def state_text(state: StageState) -> str:
    """`awaiting approval`."""
    return state.value.replace("_", " ")


def stage_text(stage: StageRecord) -> str:
    """`awaiting approval`, or `waiting for quota until 17:42`."""
    if stage.state is StageState.WAITING_FOR_QUOTA:
        return quota_text(stage.quota_until, waiting=True)
    return state_text(stage.state)


def counted_attempt(stage: StageRecord) -> model.AttemptRecord | None:
    """The attempt that speaks for a stage: the one whose work goes on, else the last that produced a result."""
    return stage.chosen_attempt or (stage.attempts[-1] if stage.attempts else None)


def has_work(stage: StageRecord) -> bool:
    """Whether a stage that waits for a person has made something that the person can approve."""
    return stage.wants_approval != "escalation" or stage.chosen is not None


def open_failures(stage: StageRecord) -> list[model.FailedTry]:
    """What failed and has not worked since: no call produced that attempt, the gate did not decide."""
    kept = {attempt.number: attempt for attempt in stage.attempts if attempt.tree}
    return [
        failure
        for failure in stage.failures[stage.failures_before :]
        if failure.attempt not in kept
        or (failure.gate is not None and len(kept[failure.attempt].critiques) <= failure.gate)
    ]


def advised_command(stage: StageRecord) -> str:
    """The command that goes on with a stage, where its failure names one; else empty."""
    failures = open_failures(stage)
    found = _COMMAND.search(failures[-1].hint) if failures else None
    return found[1] if found else ""


def attempt_text(stage: StageRecord) -> str:
    """`attempt 2 of 3`, with `taken` when a later one was not; empty where there is only one to speak of."""
    under_way = stage.state in _ATTEMPT_UNDER_WAY
    if not stage.attempts and not under_way:
        return ""
    number = len(stage.earlier) + len(stage.attempts) + under_way
    taken = ""
    if not under_way and stage.chosen is not None and stage.attempts and stage.chosen != stage.attempts[-1].number:
        number, taken = stage.chosen, " taken"
    most = len(stage.earlier) + stage.max_attempts + stage.attempts_before
    if number < 1 or (number == 1 and most == 1):
        return ""
    limit = f" of {most}" if stage.max_attempts and number <= most else ""
    return f"attempt {number}{limit}{taken}"


def spent_on(usage: Usage) -> str:
    """`$0.06`; `cost unknown` or `$0.06 and more` when calls did not tell theirs; empty when nothing was asked."""
    if not usage.requests and not usage.cached and not usage.cost_usd:
        return ""
    if not usage.unknown_costs:
        return dollars(usage.cost_usd)
    return f"{dollars(usage.cost_usd)} and more" if usage.cost_usd else "cost unknown"


def stage_seconds(stage: StageRecord, now: datetime) -> float | None:
    """How long a stage took, or has taken so far; for one that rests without an end, what its attempts took."""
    if stage.ended_at is not None or stage.state in WORKING_STATES:
        begun = stage.started_at
        return None if begun is None else max(((stage.ended_at or now) - begun).total_seconds(), 0.0)
    return sum(attempt.duration_seconds for attempt in stage.attempts) or None


def run_seconds(run: RunRecord, now: datetime) -> float:
    """How long a run took, or has taken so far."""
    return max(((now if run.state in WORKING_STATES else run.updated_at) - run.started_at).total_seconds(), 0.0)
