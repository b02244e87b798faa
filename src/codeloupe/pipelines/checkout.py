"""The rules of the user's own working tree, which is never reset.

A stage starts only on accepted work, its gates judge everything that has changed since, and it is accepted only if the
checkout is still exactly as the judged attempt left it. Otherwise a person is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from codeloupe.errors import CodeloupeError
from codeloupe.model import pipeline as model
from codeloupe.pipelines.artifacts import listed
from codeloupe.pipelines.attempts import Attempts
from codeloupe.pipelines.context import Context
from codeloupe.pipelines.recovery import Action
from codeloupe.pipelines.stage_work import StageWork


class CheckoutRules(StageWork):
    """Checks whether the checkout allows an action of a stage."""

    def __init__(self, stage: model.StageDefinition, context: Context, attempts: Attempts) -> None:
        super().__init__(stage, context)
        self._attempts = attempts

    async def possible(self, action: Action) -> Action:
        """Return an action or, if it is impossible in the checkout as it is now, the question to a person."""
        record = self.record
        problem = await self.problem(action)
        if action.do == "escalate":
            if problem:
                problem = f"{action.reason}; {problem}"
        elif record.wants_approval == "escalation" and self.state.answer(self.name) is not None:
            # The files were restored, but the person also answered the question about them.
            problem = record.reason
        if not problem:
            return action
        # The checkout has no work that a person could approve.
        return Action("escalate", 0, problem)

    async def problem(self, action: Action) -> str:
        """Return why an action is impossible in the checkout as it is now; empty if it is possible.

        A stage begins with exactly the work that was accepted last. Its gates judge exactly the files of an attempt,
        and with these it is completed.
        """
        attempt = self.record.attempt(action.attempt)
        try:
            if action.do == "execute":
                return await self._problem_at_start()
            if action.do not in ("judge", "complete", "escalate") or attempt is None or not attempt.tree:
                return ""
            changed = await self.context.workspaces.changes(self.files.workspace(self.name), since=attempt.tree)
        except (CodeloupeError, OSError) as error:
            return str(error)
        if not changed:
            return ""
        what = f"the checkout is not as attempt {attempt.number} of {self.name} left it"
        return f"{what}; {self._how_to_restore(changed)}; the patch of the attempt is {attempt.diff_file}"

    async def _problem_at_start(self) -> str:
        """Return why a stage cannot begin. A person who has it run again lets its gates judge the changes, too."""
        record = self.record
        if record.start_tree and (record.attempts or not record.wants_approval):
            return ""
        accepted = self.state.run.checkout_tree or self.state.run.base_tree
        changed = await self.context.workspaces.changes(self.files.workspace(self.name), since=accepted)
        if not changed:
            return ""
        if not record.start_tree:
            await self._attempts.begin(wants_approval="escalation")
        return f"{self.name} cannot start on changes that were not accepted; {self._how_to_restore(changed)}"

    def _how_to_restore(self, changed: Sequence[str]) -> str:
        resume = f"`codeloupe pipeline resume {self.state.run.run_id}`"
        retry = f"`--retry {self.name}` for another attempt that includes them"
        return f"restore {listed(changed)} (ignored files do not count) and use {resume}, or add {retry}"
