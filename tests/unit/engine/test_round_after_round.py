from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.history import opened_history
from codeloupe.model.change import Effort, PathInstruction
from codeloupe.model.finding import Severity
from codeloupe.model.review import Review
from codeloupe.model.scope import StagedScope, UncommittedScope
from tests.repository import GitRepository
from tests.rounds_material import Finder, Rounds, code, offline_seat, seat, states, the

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


def test_an_unchanged_branch_is_carried_over_and_still_blocks(rounds: Rounds) -> None:
    assert states(rounds.review()) == {A: "new", B: "new"}
    again = rounds.review()
    assert (rounds.asked, states(again), again.complete) == (0, {A: "open", B: "open"}, True)
    assert blocks(again)


def test_a_finding_of_an_agent_stays_open_when_only_analysers_look(rounds: Rounds) -> None:
    rounds.review()
    alone = rounds.review(offline_seat())
    assert {title: states(alone)[title] for title in (A, B)} == {A: "open", B: "open"}
    assert blocks(alone)
    later = rounds.review()
    assert {title: states(later)[title] for title in (A, B)} == {A: "open", B: "open"}


def test_a_finding_of_an_analyser_stays_open_when_only_an_agent_looks(rounds: Rounds) -> None:
    rounds.project.write(
        "c.py", "import subprocess\n\n\ndef run(word):\n    subprocess.run(word, shell=True)\n    eval(word)\n"
    )
    first = rounds.review(offline_seat())
    exact = {finding.title for finding in first.findings if finding.file == "c.py"}
    assert exact
    second = rounds.review()
    assert {title: states(second)[title] for title in exact} == dict.fromkeys(exact, "open")


def test_a_finding_stays_open_when_only_another_agent_looks(rounds: Rounds) -> None:
    rounds.review()
    blind = Finder(overlooked={"a", "b"})
    assert states(rounds.review(seat(blind, "another"))) == {A: "open", B: "open"}


def test_a_finding_stays_open_when_another_checklist_is_asked(rounds: Rounds) -> None:
    rounds.review(experts=("correctness",))
    rounds.finder.overlooked = {"a", "b"}
    assert states(rounds.review(experts=("documentation",))) == {A: "open", B: "open"}
    rounds.project.write("a.py", code("a").replace("step_7", "other_step"))
    assert states(rounds.review(experts=("documentation",))) == {A: "open", B: "open"}
    rounds.project.write("a.py", code("a").replace("step_7", "yet_another_step"))
    assert states(rounds.review(experts=("correctness",), fresh=True)) == {A: "fixed", B: "open"}


def test_a_review_that_had_nothing_to_look_at_is_passed_over(rounds: Rounds) -> None:
    rounds.review()
    rounds.review(include=("README.md",))
    assert states(rounds.review()) == {A: "open", B: "open"}
    assert rounds.asked == 0


def test_a_reverted_file_fixes_its_findings(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.remove("a.py")
    rounds.project.commit()
    assert states(rounds.review()) == {A: "fixed", B: "open"}


def test_a_finding_in_a_renamed_file_is_the_same_finding(rounds: Rounds) -> None:
    first = rounds.review()
    rounds.project.git("mv", "a.py", "moved.py")
    rounds.project.commit()
    second = rounds.review()
    assert states(second) == {A: "open", B: "open"}
    assert (the(second, A).file, the(second, A).fingerprint) == ("moved.py", the(first, A).fingerprint)


def test_a_finding_in_a_renamed_file_that_could_not_be_reviewed_stays_open(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.git("mv", "a.py", "moved.py")
    rounds.project.commit()
    rounds.finder.failing = {"moved.py"}
    second = rounds.review(effort=Effort.HIGH)
    assert states(second)[A] == "open"
    assert not second.complete


def test_files_that_failed_are_asked_about_again(rounds: Rounds) -> None:
    rounds.finder.failing = {"a.py"}
    first = rounds.review()
    assert not first.complete
    rounds.finder.failing = set()
    second = rounds.review()
    assert second.complete
    assert A in states(second)


def test_what_could_not_be_read_of_an_answer_is_told_again(rounds: Rounds) -> None:
    rounds.finder.bad_items = True
    first, second = rounds.review(), rounds.review()
    kinds = [[error.kind for error in one.errors] for one in (first, second)]
    assert kinds[0] == kinds[1] == ["dropped_finding", "invalid_answer"]
    assert not second.complete


def test_the_same_hunk_a_second_time_in_a_file_is_asked_about(rounds: Rounds) -> None:
    same = "def work(items):\n" + "    step = 1\n" * 4 + "    return bug_c(items)\n" + "    step = 1\n" * 4
    lines = [f"line_{number} = {number}\n" for number in range(60)]
    frame = ["\n"] * 3
    base = [*lines[:10], *frame, *frame, *lines[10:40], *frame, *frame, *lines[40:]]
    rounds.project.checkout("main")
    rounds.project.write("twice.py", "".join(base))
    rounds.project.commit()
    rounds.project.checkout("twice", new=True)
    once = "".join([*lines[:10], *frame, same, *frame, *lines[10:40], *frame, *frame, *lines[40:]])
    rounds.project.write("twice.py", once)
    rounds.review()
    both = "".join([*lines[:10], *frame, same, *frame, *lines[10:40], *frame, same, *frame, *lines[40:]])
    rounds.project.write("twice.py", both)
    second = rounds.review()
    assert rounds.asked == 1
    assert sorted(finding.status.value for finding in second.findings) == ["new", "open"]
    third = rounds.review()
    assert (rounds.asked, len(third.findings)) == (0, 2)
    rounds.project.write("twice.py", "# a\n" * 36 + both)
    fourth = rounds.review()
    assert len({finding.line_start for finding in fourth.findings if finding.status.value == "open"}) == 2


def test_a_hunk_that_grew_together_with_its_neighbour_is_asked_about_again(rounds: Rounds) -> None:
    lines = [f"line_{number} = {number}\n" for number in range(60)]
    rounds.project.write("old.py", "".join([*lines[:20], "bug_c(1)\n", *lines[20:40], "two = 2\n", *lines[40:]]))
    rounds.review()
    changed = [*lines[:20], "bug_c(1)\n", *(line.replace("=", "==") for line in lines[20:40]), "two = 2\n", *lines[40:]]
    rounds.project.write("old.py", "".join(changed))
    second = rounds.review()
    assert rounds.asked == 1
    assert states(second) == {A: "open", B: "open", C: "open"}


def test_a_changed_mode_is_asked_about_again(rounds: Rounds) -> None:
    rounds.review()
    (rounds.project.path / "a.py").chmod(0o755)
    rounds.review()
    assert rounds.asked == 1


def test_several_reviewers_carry_a_finding_over_once(rounds: Rounds) -> None:
    one, other = Finder(), Finder()
    first = rounds.review(seat(one, "one"), seat(other, "other"))
    again = rounds.review(seat(one, "one"), seat(other, "other"))
    assert rounds.asked == 0
    assert [(finding.title, finding.agreement) for finding in again.findings] == [(A, 2), (B, 2)]
    assert [finding.seen_by for finding in again.findings] == [finding.seen_by for finding in first.findings]


def test_what_analysers_found_beside_an_agent_is_not_carried_over_by_the_agent(rounds: Rounds) -> None:
    rounds.project.write("c.py", "def run(word):\n    eval(word)\n")
    first = rounds.review(seat(rounds.finder), offline_seat())
    second = rounds.review(seat(rounds.finder), offline_seat())
    exact = [finding for finding in second.findings if finding.file == "c.py"]
    assert exact
    assert [(one.title, one.agreement, one.seen_by) for one in exact] == [
        (one.title, one.agreement, one.seen_by) for one in first.findings if one.file == "c.py"
    ]
    rounds.project.write("c.py", "def run(word):\n    eval(word)  # noqa: S307\n")
    third = rounds.review(seat(rounds.finder), offline_seat())
    assert len({(one.file, one.line_start, one.title) for one in third.findings}) == len(third.findings)


def test_hidden_findings_are_carried_over_to_a_stricter_policy(rounds: Rounds) -> None:
    rounds.finder.severity = "low"
    first = rounds.review(min_severity=Severity.HIGH)
    assert (first.findings, first.hidden_findings) == ((), 2)
    second = rounds.review(fail_on=Severity.LOW)
    assert (rounds.asked, states(second), second.exit_code) == (0, {A: "open", B: "open"}, 1)


def test_what_a_comment_suppressed_counts_again_when_the_change_is_not_trusted(rounds: Rounds) -> None:
    text = code("a").replace("bug_a(items)", "bug_a(items)  # codeloupe: ignore[correctness] known")
    rounds.project.write("a.py", text)
    rounds.project.remove("b.py")
    rounds.project.commit()
    trusted = rounds.review()
    assert trusted.exit_code == 0
    assert trusted.findings[0].suppression is not None
    strict = rounds.review(untrusted=True)
    assert strict.findings[0].suppression is None
    assert blocks(strict)
    assert rounds.review().exit_code == 0


def test_other_guidance_asks_again(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.write("REVIEW.md", "Look at the names.\n")
    rounds.project.commit()
    rounds.review()
    assert rounds.asked == 1


@pytest.mark.parametrize(
    "wish",
    [
        {"effort": Effort.LOW},
        {"passes": 2},
        {"experts": ("security",)},
        {"instructions": (PathInstruction(("*.py",), "Look twice."),)},
        {"context": "It must be fast."},
    ],
)
def test_other_terms_ask_again(rounds: Rounds, wish: dict[str, Any]) -> None:
    rounds.review()
    again = rounds.review(**wish)
    assert again.usage.requests + again.usage.cached > 0


def test_another_model_asks_again(rounds: Rounds) -> None:
    rounds.review()
    plain = seat(rounds.finder)
    rounds.review(replace(plain, info=replace(plain.info, model="larger")))
    assert rounds.asked == 1


def test_commit_messages_are_no_terms(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.git("commit", "--quiet", "--amend", "--message=other words")
    rounds.review()
    assert rounds.asked == 0


def test_since_last_leaves_out_what_was_seen_and_says_what_is_open_there(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.write("c.py", code("c").replace("bug_c", "fine"))
    review = rounds.review(since_last=True)
    assert (states(review), rounds.asked) == ({}, 1)
    assert any("2 open findings of high or above" in note for note in rounds.notes)
    assert "do not count here" in review.summary
    assert "converged" not in review.summary


def test_a_round_after_one_since_the_last_goes_on_from_the_last_whole_one(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.write("c.py", code("c"))
    assert states(rounds.review(since_last=True)) == {C: "new"}
    rounds.finder.overlooked = {"a", "b"}
    assert states(rounds.review()) == {A: "open", B: "open", C: "new"}
    assert states(rounds.review()) == {A: "open", B: "open", C: "open"}


def test_since_the_last_twice_is_about_what_neither_saw(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.write("c.py", code("c"))
    rounds.review(since_last=True)
    rounds.project.write("d.py", code("d"))
    assert states(rounds.review(since_last=True)) == {"Fault d": "new"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"keep_history": False}, "no history is kept"), ({}, "there is no earlier review of this branch")],
)
def test_since_last_without_a_last_reviews_all_and_says_so(
    rounds: Rounds, settings: dict[str, Any], words: str
) -> None:
    review = rounds.review(since_last=True, **settings)
    assert states(review) == {A: "new", B: "new"}
    assert [words in note for note in rounds.notes] == [True]


def test_what_was_committed_is_neither_fixed_nor_a_part_of_the_next_uncommitted_changes(rounds: Rounds) -> None:
    rounds.project.write("c.py", code("c"))
    assert states(rounds.review(scope=UncommittedScope())) == {C: "new"}
    rounds.project.commit()
    rounds.project.write("d.py", code("d"))
    assert states(rounds.review(scope=UncommittedScope())) == {"Fault d": "new"}
    assert any("1 open finding of the last review" in note for note in rounds.notes)


def test_staged_changes_go_on_as_others_do(rounds: Rounds) -> None:
    rounds.project.write("c.py", code("c"))
    rounds.project.git("add", "c.py")
    rounds.review(scope=StagedScope())
    rounds.project.write("c.py", "fine = 1\n")
    assert states(rounds.review(scope=StagedScope())) == {C: "open"}
    rounds.project.git("add", "c.py")
    assert states(rounds.review(scope=StagedScope())) == {C: "fixed"}


def test_an_older_version_that_comes_back_is_found_again(rounds: Rounds) -> None:
    rounds.review()
    rounds.project.write("a.py", code("a").replace("bug_a", "fine"))
    assert states(rounds.review()) == {A: "fixed", B: "open"}
    rounds.project.write("a.py", code("a"))
    assert states(rounds.review()) == {A: "regressed", B: "open"}


def test_without_its_history_a_branch_is_reviewed_whole(rounds: Rounds) -> None:
    rounds.review()
    with opened_history() as history:
        path = history._database.path
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    again = rounds.review()
    assert (rounds.asked, states(again)) == (1, {A: "new", B: "new"})


def test_another_clone_with_other_work_on_the_same_branch_takes_nothing_away(rounds: Rounds) -> None:
    rounds.review()
    place = rounds.project.path.parent / "clone"
    rounds.project.git("clone", "--quiet", "--branch", "work", str(rounds.project.path), str(place))
    clone = copy.copy(rounds.project)
    clone.path = place
    clone.git("branch", "main", "origin/main")
    clone.git("rm", "--quiet", "a.py", "b.py")
    clone.write("d.py", code("d"))
    clone.commit()
    Rounds(clone).review()
    assert states(rounds.review()).keys() >= {A, B}
    assert all(status != "fixed" for title, status in states(rounds.review()).items() if title in (A, B))


def test_a_finding_of_an_analyser_is_not_fixed_because_its_line_is_in_the_base_now(rounds: Rounds) -> None:
    faulty = "import subprocess\n\n\ndef run(word):\n    subprocess.run(word, shell=True)\n"
    rounds.project.write("c.py", faulty)
    rounds.project.commit()
    first = rounds.review(offline_seat())
    exact = {finding.title for finding in first.findings if finding.file == "c.py"}
    assert exact
    # The base takes over what was done so far, and the work goes on right below.
    rounds.project.git("branch", "--force", "main", "HEAD")
    rounds.project.write("c.py", f"{faulty}    return word\n")
    rounds.project.commit()
    second = rounds.review(offline_seat())
    assert {title: states(second)[title] for title in exact} == dict.fromkeys(exact, "open")
