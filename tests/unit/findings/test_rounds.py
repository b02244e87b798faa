"""A branch that is reviewed in rounds by scripted agents, with real git and a real history, in this process."""

import asyncio
import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine import review as review_project
from codeloupe.model.agent import AgentLimits, AgentRequest
from codeloupe.model.change import Effort, PathInstruction
from codeloupe.model.events import Event, Warned
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review, ReviewerInfo
from codeloupe.model.scope import BaseScope, ScopeRequest, StagedScope, UncommittedScope
from codeloupe.reports import Layout
from codeloupe.reports.text import render_text
from codeloupe.reviewers.choose import ChosenReviewer
from codeloupe.testing import AgentStep, Json, ScriptedAgent
from tests.repository import GitRepository

pytestmark = pytest.mark.program

_FILE = re.compile(r"^=== (\S+)")
_BUG = re.compile(r"^[+ ].*bug_(\w+)\(")


def code(*bugs: str) -> str:
    """A function for each name, with a line that the finder finds, and enough between them for a hunk of its own."""
    return "".join(
        f"def work_{bug}(items):\n"
        + "".join(f"    step_{number} = {bug!r}\n" for number in range(8))
        + f"    return bug_{bug}(items)\n\n\n"
        for bug in bugs
    )


A, B, C = "Fault a", "Fault b", "Fault c"
BOTH_OPEN = {A: "open", B: "open"}
BOTH_GONE = {A: "gone", B: "gone"}
GUARDED = code("a").replace("    step_7 =", "    if not items:\n        return None\n    step_7 =")
SHELL = "import subprocess\n\n\ndef run(word):\n    subprocess.run(word, shell=True)\n"
OFFLINE = ChosenReviewer(ReviewerInfo("offline", "for a test"))


@dataclass
class Finder:
    """Reports each line of the diff it is shown with a call of `bug_NAME`, as a model would; not the `overlooked`."""

    severity: str = "critical"
    overlooked: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    bad_items: bool = False

    def __call__(self, request: AgentRequest) -> AgentStep:
        found: list[dict[str, Any]] = []
        file = ""
        for line in request.prompt.split("\n"):
            if header := _FILE.match(line):
                file = header[1]
                if file in self.failing:
                    return Json({"findings": "none of your business"})
            elif (bug := _BUG.match(line)) and bug[1] not in self.overlooked:
                found.append(self._claim(file, line[1:], bug[1]))
        if self.bad_items:
            found.append({**self._claim("a.py", "x", "y"), "severity": "enormous"})
        return Json({"findings": found})

    def _claim(self, file: str, quote: str, bug: str) -> dict[str, Any]:
        words = {"title": f"Fault {bug}", "body": f"It is wrong: {bug}.", "category": "correctness"}
        return {"file": file, "line": 1, "quote": quote, "severity": self.severity, **words}


def chosen(step: Callable[[AgentRequest], AgentStep], name: str = "scripted", *, tools: bool = False) -> ChosenReviewer:
    agent = ScriptedAgent([step], name=name, limits=AgentLimits(schema=True, tools=tools))
    return ChosenReviewer(ReviewerInfo(name, "for a test"), (agent,))


@dataclass
class Work:
    """The branch `work` of a repository; each review is a round."""

    project: GitRepository
    finder: Finder = field(default_factory=Finder)
    asked: int = 0
    notes: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)

    def write(self, name: str, text: str, *, commit: bool = True) -> None:
        self.project.write(name, text)
        if commit:
            self.project.commit()

    def review(self, *reviewers: ChosenReviewer, scope: ScopeRequest | None = None, **given: Any) -> Review:
        asking = reviewers or (chosen(self.finder),)
        events: list[Event] = []
        options = {name: given.pop(name) for name in ("fresh", "since_last", "context") if name in given}
        settings = Settings(**{"verify": False, "guidance": True, **given})
        given = {"repo": self.project.path, "settings": settings, "reviewers": asking, "emit": events.append}
        outcome = asyncio.run(review_project(scope, **given, **options))
        self.notes = [event.message for event in events if isinstance(event, Warned)]
        agents = [agent for one in asking for agent in one.agents if isinstance(agent, ScriptedAgent)]
        self.prompts = [request.prompt for agent in agents for request in agent.requests]
        self.asked = len(self.prompts)
        return outcome


def states(review: Review) -> dict[str, str]:
    """The status of each finding by its title."""
    return {finding.title: finding.status.value for finding in review.findings}


def the(review: Review, title: str) -> Finding:
    """The one finding of that title."""
    [found] = [finding for finding in review.findings if finding.title == title]
    return found


@pytest.fixture(scope="module")
def branch(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Branch `work` with a commit over `main`; each test has a copy."""
    repository = GitRepository(tmp_path_factory.mktemp("branch") / "repository")
    repository.commit_files({"README.md": "work\n"})
    repository.commit_files({"a.py": code("a"), "b.py": code("b")}, branch="work")
    return repository


@pytest.fixture
def rounds(branch: GitRepository, tmp_path: Path) -> Work:
    return Work(branch.copied_to(tmp_path / "repository"))


@pytest.fixture
def reviewed(rounds: Work) -> Work:
    """After a first round."""
    assert states(rounds.review()) == {A: "new", B: "new"}
    return rounds


def blocks(review: Review) -> bool:
    return review.exit_code == 1 and review.verdict.value == "FAIL"


def test_an_analysers_finding_whose_line_left_the_change_does_not_count(rounds: Work) -> None:
    rounds.write("c.py", SHELL)
    exact = {finding.title for finding in rounds.review(OFFLINE).findings if finding.file == "c.py"}
    assert exact
    # The base takes over what was done so far, and the work goes on right below: the analyser reports added lines.
    rounds.project.git("branch", "--force", "main", "HEAD")
    rounds.write("c.py", f"{SHELL}    return word\n")
    second = rounds.review(OFFLINE)
    assert [finding for finding in second.findings if finding.title in exact and finding.is_open] == []


def test_a_finding_in_a_renamed_file_is_the_same_finding_also_where_its_unit_failed(rounds: Work) -> None:
    first = rounds.review()
    rounds.project.git("mv", "a.py", "moved.py")
    rounds.project.commit()
    rounds.finder.failing = {"moved.py"}
    failed = rounds.review(effort=Effort.HIGH)
    assert (states(failed)[A], failed.complete) == ("open", False)
    # Files that failed are asked about again.
    rounds.finder.failing = set()
    second = rounds.review()
    assert (states(second), second.complete) == (BOTH_OPEN, True)
    assert (the(second, A).file, the(second, A).fingerprint) == ("moved.py", the(first, A).fingerprint)


def test_a_file_whose_answer_was_not_exact_is_asked_about_again(rounds: Work) -> None:
    rounds.finder.bad_items = True
    for review in (rounds.review(), rounds.review()):
        assert {error.kind for error in review.errors} == {"invalid_item", "invalid_answer"}
        assert not review.complete


def test_several_reviewers_carry_a_finding_over_once(rounds: Work) -> None:
    one, other = Finder(), Finder()
    first = rounds.review(chosen(one, "one"), chosen(other, "other"))
    again = rounds.review(chosen(one, "one"), chosen(other, "other"))
    assert rounds.asked == 0
    assert [(finding.title, finding.agreement) for finding in again.findings] == [(A, 2), (B, 2)]
    assert [finding.seen_by for finding in again.findings] == [finding.seen_by for finding in first.findings]


def test_what_analysers_found_beside_an_agent_is_not_carried_over_by_the_agent(rounds: Work) -> None:
    rounds.write("c.py", "def run(word):\n    eval(word)\n", commit=False)
    told = [
        [(one.title, one.agreement, one.seen_by) for one in review.findings if one.file == "c.py"]
        for review in (rounds.review(chosen(rounds.finder), OFFLINE) for _ in range(2))
    ]
    assert told[0]
    assert told[0] == told[1]
    rounds.write("c.py", "def run(word):\n    eval(word)  # noqa: S307\n", commit=False)
    third = rounds.review(chosen(rounds.finder), OFFLINE)
    assert len({(one.file, one.line_start, one.title) for one in third.findings}) == len(third.findings)


def test_hidden_findings_are_carried_over_to_a_stricter_policy(rounds: Work) -> None:
    rounds.finder.severity = "low"
    first = rounds.review(min_severity=Severity.HIGH)
    assert (first.findings, first.hidden_findings) == ((), 2)
    second = rounds.review(fail_on=Severity.LOW)
    assert (rounds.asked, states(second), second.exit_code) == (0, BOTH_OPEN, 1)


def test_other_conditions_ask_again(reviewed: Work) -> None:
    changes: list[dict[str, Any]] = [
        {"effort": Effort.LOW},
        {"passes": 2},
        {"experts": ("security",)},
        {"instructions": (PathInstruction(("*.py",), "Look twice."),)},
        {"context": "It must be fast."},
        {},
    ]
    for changed in changes:
        again = reviewed.review(**changed)
        assert again.usage.requests + again.usage.cached > 0, changed
    larger = chosen(reviewed.finder)
    reviewed.review(replace(larger, info=replace(larger.info, model="larger")))
    assert reviewed.asked == 1
    # Guidance, and a mode of a file.
    reviewed.write("REVIEW.md", "Look at the names.\n")
    reviewed.review()
    assert reviewed.asked == 1
    (reviewed.project.path / "a.py").chmod(0o755)
    reviewed.review()
    assert reviewed.asked == 1


def test_since_last_reports_new_code_and_is_incomplete_if_an_omitted_finding_blocks(reviewed: Work) -> None:
    reviewed.write("c.py", code("c").replace("bug_c", "fine"), commit=False)
    review = reviewed.review(since_last=True)
    assert (states(review), reviewed.asked) == ({}, 1)
    assert (review.verdict.value, review.exit_code) == ("INCOMPLETE", 3)
    assert "only code that the last review has not covered" in review.summary
    assert "converged" not in review.summary
    told = "--since-last omits 2 open findings of high or above in code that an earlier review covered"
    assert [(error.kind, error.message) for error in review.errors] == [("left_open", told)]
    assert told in " ".join(render_text(review, Layout(width=100)).split())


def test_a_round_continues_from_one_since_the_last(reviewed: Work) -> None:
    reviewed.write("d.py", code("d"), commit=False)
    assert states(reviewed.review(since_last=True)) == {"Fault d": "new"}
    (reviewed.project.path / "d.py").unlink()
    # A second one is about what neither saw.
    reviewed.write("c.py", code("c"), commit=False)
    assert states(reviewed.review(since_last=True)) == {C: "new"}
    reviewed.finder.overlooked = {"a", "b"}
    assert states(reviewed.review()) == {**BOTH_OPEN, C: "open"}


def test_a_committed_finding_is_gone_from_the_next_uncommitted_changes(rounds: Work) -> None:
    rounds.write("c.py", code("c"), commit=False)
    assert states(rounds.review(scope=UncommittedScope())) == {C: "new"}
    rounds.project.commit()
    rounds.write("d.py", code("d"), commit=False)
    assert states(rounds.review(scope=UncommittedScope())) == {C: "gone", "Fault d": "new"}


def test_staged_changes_go_on_as_others_do(rounds: Work) -> None:
    rounds.write("c.py", code("c"), commit=False)
    rounds.project.git("add", "c.py")
    rounds.review(scope=StagedScope())
    rounds.write("c.py", "fine = 1\n", commit=False)
    assert states(rounds.review(scope=StagedScope())) == {C: "open"}
    rounds.project.git("add", "c.py")
    assert states(rounds.review(scope=StagedScope())) == {C: "fixed"}


def test_another_clone_with_other_work_on_the_same_branch_takes_nothing_away(reviewed: Work) -> None:
    place = reviewed.project.path.parent / "clone"
    reviewed.project.git("clone", "--quiet", "--branch", "work", str(reviewed.project.path), str(place))
    clone = copy.copy(reviewed.project)
    clone.path = place
    clone.git("branch", "main", "origin/main")
    clone.git("rm", "--quiet", "a.py", "b.py")
    clone.commit_files({"d.py": code("d")})
    Work(clone).review()
    assert states(reviewed.review()).keys() >= {A, B}
    assert all(status != "fixed" for title, status in states(reviewed.review()).items() if title in (A, B))


@pytest.mark.defect("T14")
def test_a_finding_whose_code_did_not_change_stays_open_when_it_is_not_repeated(reviewed: Work) -> None:
    reviewed.finder.overlooked = {"a"}
    assert states(reviewed.review(fresh=True)) == BOTH_OPEN
    # Other code of the same file, and of the same hunk, says nothing about it either.
    reviewed.write("a.py", code("a", "d"), commit=False)
    again = reviewed.review()
    assert (states(again)[A], reviewed.asked, blocks(again)) == ("open", 1, True)


@pytest.mark.defect("T14")
def test_a_finding_that_is_not_repeated_is_fixed_when_the_code_around_it_changed(reviewed: Work) -> None:
    reviewed.finder.overlooked = {"a"}
    reviewed.write("a.py", GUARDED, commit=False)
    assert states(reviewed.review()) == {A: "fixed", B: "open"}


@pytest.mark.defect("T14")
@pytest.mark.parametrize(
    ("proof", "status"), [("refuted", "refuted"), ("confirmed", "open"), ("unproven", "open"), ("nonsense", "open")]
)
def test_on_the_same_statement_only_a_refutation_ends_a_confirmed_claim(rounds: Work, proof: str, status: str) -> None:
    word = {"now": "confirmed"}

    def answer(request: AgentRequest) -> AgentStep:
        if "proof" in str(request.output_schema):
            return Json({"proofs": [{"claim": 1, "reason": "read it", "proof": word["now"]}]})
        return rounds.finder(request)

    verifying = chosen(answer, tools=True)
    assert the(rounds.review(verifying, verify=True), A).verification == "confirmed: read it"
    rounds.finder.overlooked = {"a"}
    word["now"] = proof
    rounds.write("a.py", GUARDED, commit=False)
    assert states(rounds.review(verifying, verify=True)) == {A: status, B: "open"}


@pytest.mark.defect("T13")
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("patterns", [{"include": ("*.md",)}, {"exclude": ("a.py", "b.py")}])
def test_a_finding_in_an_excluded_file_is_gone_and_regresses_when_it_is_reported_again(
    reviewed: Work, patterns: dict[str, Any], fresh: bool
) -> None:
    reviewed.write("notes.md", "a note\n", commit=False)
    narrow = reviewed.review(**patterns, fresh=fresh)
    assert (states(narrow), narrow.exit_code) == (BOTH_GONE, 0)
    whole = reviewed.review()
    assert (states(whole), blocks(whole)) == ({A: "regressed", B: "regressed"}, True)


@pytest.mark.defect("T13")
def test_of_a_narrowed_review_the_rest_is_judged(reviewed: Work) -> None:
    reviewed.write("notes.md", "a note\n", commit=False)
    narrow = reviewed.review(exclude=("a.py",))
    assert (states(narrow), blocks(narrow)) == ({A: "gone", B: "open"}, True)
    reviewed.write("b.py", code("b").replace("bug_b", "fine"), commit=False)
    assert states(reviewed.review(exclude=("a.py",))) == {B: "fixed"}
    assert states(reviewed.review()) == {A: "regressed"}


def test_a_finding_in_a_file_that_is_too_large_now_stays_open(reviewed: Work) -> None:
    reviewed.write("notes.md", "a note\n", commit=False)
    assert states(reviewed.review(max_file_lines=1)) == BOTH_OPEN


@pytest.mark.defect("V12")
def test_a_finding_outside_of_a_narrower_base_is_gone_and_not_forgotten(reviewed: Work) -> None:
    reviewed.write("c.py", code("c"))
    assert states(reviewed.review(scope=BaseScope("HEAD~1"))) == {**BOTH_GONE, C: "new"}
    assert states(reviewed.review()) == {A: "regressed", B: "regressed", C: "open"}


@pytest.mark.defect("V12")
def test_what_a_round_with_a_wrong_base_found_does_not_count_with_the_right_one(rounds: Work) -> None:
    rounds.project.checkout("topic", new=True)
    rounds.write("c.py", code("c").replace("bug_c", "fine"))
    assert blocks(rounds.review(scope=BaseScope("main")))
    right = rounds.review(scope=BaseScope("work"))
    assert (states(right), right.exit_code) == (BOTH_GONE, 0)


@pytest.mark.defect("V12")
@pytest.mark.parametrize("then", ["", "commit --quiet --amend --message=words"])
@pytest.mark.parametrize("command", ["branch --move other", "checkout --quiet -b next", "checkout --quiet --detach"])
def test_rounds_follow_commits_and_not_the_name_of_a_branch(rounds: Work, command: str, then: str) -> None:
    first = rounds.review()
    for words in filter(None, (command, then)):
        rounds.project.git(*words.split())
    rounds.write("c.py", code("c"))
    second = rounds.review()
    assert states(second) == {**BOTH_OPEN, C: "new"}
    assert the(second, A).fingerprint == the(first, A).fingerprint
    assert not any("bug_a" in prompt for prompt in rounds.prompts)


def test_another_branch_from_the_same_base_has_rounds_of_its_own(reviewed: Work) -> None:
    reviewed.project.git("checkout", "--quiet", "-b", "apart", "main")
    reviewed.write("c.py", code("c"))
    assert states(reviewed.review()) == {C: "new"}
