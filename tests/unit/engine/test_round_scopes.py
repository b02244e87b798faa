"""A review among its rounds: what it is about, which earlier ones it follows, and what counts as fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.choose import ChosenReviewer
from codeloupe.model.agent import AgentRequest
from codeloupe.model.review import Review, ReviewerInfo
from codeloupe.model.scope import BaseScope
from codeloupe.reports.text import render_text
from codeloupe.testing import AgentStep, Json, ScriptedAgent
from tests.repository import GitRepository
from tests.rounds_material import NO_TOOLS, Rounds, code, states, the

A, B, C = "Fault a", "Fault b", "Fault c"


@pytest.fixture(scope="module")
def branch(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Branch `work` with a commit over `main`; each test has a copy."""
    repository = GitRepository(tmp_path_factory.mktemp("branch") / "repository")
    repository.write("README.md", "work\n")
    repository.write("old.py", "".join(f"line_{number} = {number}\n" for number in range(60)))
    repository.commit()
    repository.checkout("work", new=True)
    repository.write("a.py", code("a"))
    repository.write("b.py", code("b"))
    repository.commit()
    return repository


@pytest.fixture
def rounds(branch: GitRepository, tmp_path: Path) -> Rounds:
    return Rounds(branch.copied_to(tmp_path / "repository"))


def blocks(review: Review) -> bool:
    return review.exit_code == 1 and review.verdict.value == "FAIL"


@pytest.mark.defect("T14")
def test_a_finding_whose_code_did_not_change_stays_open_when_it_is_not_repeated(rounds: Rounds) -> None:
    rounds.review()
    rounds.finder.overlooked = {"a"}
    assert states(rounds.review(fresh=True)) == {A: "open", B: "open"}
    # Other code of the same file, and of the same hunk, says nothing about it either.
    rounds.project.write("a.py", code("a", "d"))
    again = rounds.review()
    assert (states(again)[A], rounds.asked) == ("open", 1)
    assert blocks(again)


@pytest.mark.defect("T14")
def test_a_finding_that_is_not_repeated_is_fixed_when_the_code_around_it_changed(rounds: Rounds) -> None:
    rounds.review()
    rounds.finder.overlooked = {"a"}
    rounds.project.write(
        "a.py", code("a").replace("    step_7 =", "    if not items:\n        return None\n    step_7 =")
    )
    assert states(rounds.review()) == {A: "fixed", B: "open"}


@pytest.mark.defect("T14")
@pytest.mark.parametrize(
    ("proof", "status"), [("refuted", "fixed"), ("confirmed", "open"), ("unproven", "open"), ("nonsense", "open")]
)
def test_where_findings_are_verified_a_verification_says_whether_it_is_fixed(
    rounds: Rounds, proof: str, status: str
) -> None:
    word = {"now": "confirmed"}

    def answer(request: AgentRequest) -> AgentStep:
        if "proof" in str(request.output_schema):
            return Json({"proof": word["now"], "reason": "read it"})
        return rounds.finder(request)

    agent = ScriptedAgent([answer], name="scripted", limits=replace(NO_TOOLS, tools=True))
    seats = (ChosenReviewer(ReviewerInfo("scripted", "for a test"), (agent,)),)
    first = rounds.review(*seats, verify=True)
    assert the(first, A).verification == "confirmed: read it"
    rounds.finder.overlooked = {"a"}
    word["now"] = proof
    rounds.project.write(
        "a.py", code("a").replace("    step_7 =", "    if not items:\n        return None\n    step_7 =")
    )
    second = rounds.review(*seats, verify=True)
    assert states(second) == {A: status, B: "open"}


@pytest.mark.defect("T13")
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("wish", [{"include": ("*.md",)}, {"exclude": ("a.py", "b.py")}])
def test_a_finding_in_a_file_that_is_left_out_is_not_judged_and_not_forgotten(
    rounds: Rounds, wish: dict[str, Any], fresh: bool
) -> None:
    rounds.review()
    rounds.project.write("notes.md", "a note\n")
    narrow = rounds.review(**wish, fresh=fresh)
    assert (states(narrow), narrow.exit_code) == ({}, 0)
    assert [error.message for error in narrow.errors if error.kind == "not_judged"] == [
        "2 open findings of the last review, in files that this review leaves out, not judged here (a.py, b.py)"
    ]
    # Nor is anything of it bought again.
    assert (states(rounds.review()), rounds.asked) == ({A: "open", B: "open"}, 0)


@pytest.mark.defect("T13")
def test_of_a_narrowed_review_the_rest_is_judged(rounds: Rounds) -> None:
    rounds.review()
    narrow = rounds.review(exclude=("a.py",))
    assert (states(narrow), blocks(narrow)) == ({B: "open"}, True)
    rounds.project.write("b.py", code("b").replace("bug_b", "fine"))
    assert states(rounds.review(exclude=("a.py",))) == {B: "fixed"}
    assert states(rounds.review()) == {A: "open"}


def test_a_finding_in_a_file_that_is_too_large_to_be_reviewed_stays_open(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.write("notes.md", "a note\n")
    assert states(rounds.review(max_file_lines=1)) == {A: "open", B: "open"}
    assert states(rounds.review()) == {A: "open", B: "open"}


@pytest.mark.defect("V12")
def test_a_finding_outside_of_a_narrower_base_is_not_judged_and_not_forgotten(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.write("c.py", code("c"))
    rounds.project.commit()
    narrow = rounds.review(scope=BaseScope("HEAD~1"))
    assert states(narrow) == {C: "new"}
    assert any(
        "2 open findings of the last review, in code that is not in this change" in note for note in rounds.notes
    )
    assert states(rounds.review()) == {A: "open", B: "open", C: "open"}


@pytest.mark.defect("V12")
def test_what_a_round_with_a_wrong_base_found_does_not_count_with_the_right_one(rounds: Rounds) -> None:
    rounds.project.checkout("topic", new=True)
    rounds.project.write("c.py", code("c").replace("bug_c", "fine"))
    rounds.project.commit()
    assert blocks(rounds.review(scope=BaseScope("main")))
    right = rounds.review(scope=BaseScope("work"))
    assert (states(right), right.exit_code) == ({}, 0)


@pytest.mark.defect("V12")
@pytest.mark.parametrize("how", ["renamed", "branched", "detached", "renamed and amended"])
def test_rounds_follow_commits_and_not_the_name_of_a_branch(rounds: Rounds, how: str) -> None:
    first = rounds.review()
    match how:
        case "renamed":
            rounds.project.git("branch", "--move", "other-name")
        case "branched":
            rounds.project.git("checkout", "--quiet", "-b", "next")
        case "detached":
            rounds.project.git("checkout", "--quiet", "--detach")
        case _:
            rounds.project.git("branch", "--move", "other-name")
            rounds.project.git("commit", "--quiet", "--amend", "--message=other words")
    rounds.project.write("c.py", code("c"))
    rounds.project.commit()
    second = rounds.review()
    assert states(second) == {A: "open", B: "open", C: "new"}
    assert the(second, A).fingerprint == the(first, A).fingerprint
    assert not any("bug_a" in prompt for prompt in rounds.prompts)


def test_another_branch_from_the_same_base_has_rounds_of_its_own(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.git("checkout", "--quiet", "-b", "apart", "main")
    rounds.project.write("c.py", code("c"))
    rounds.project.commit()
    assert states(rounds.review()) == {C: "new"}


FAULTY = "def work(items):\n    return bug_a(items)\n"


def test_what_earlier_reviews_left_open_stands_in_the_report_of_what_is_new(tmp_path: Path) -> None:
    project = GitRepository(tmp_path / "project")
    project.write("a.py", "x = 1\n")
    project.commit("base")
    project.checkout("feature", new=True)
    project.write("a.py", FAULTY)
    project.commit("faulty")
    rounds = Rounds(project)
    assert rounds.review().exit_code == 1
    since = rounds.review(since_last=True)
    told = "earlier reviews left 1 open finding of high or above, not in this review"
    assert [(error.kind, error.message) for error in since.errors] == [("left_open", told)]
    assert rounds.notes == [told]
    assert told in " ".join(render_text(since, width=100, color=False).split())
