"""Known findings through the front door: adopted, commented, expired, pruned, and never taken from a stranger."""

from typing import Any

import pytest

from codeloupe.model.baseline import BASELINE_NAME
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

FAULTY = 'def run(cursor, name):\n    cursor.execute("select * from t where n = \'" + name + "\'")\n    eval(name)\n'


@pytest.fixture
def faulty(repository: GitRepository) -> GitRepository:
    """A branch that adds two faults."""
    repository.commit_files({"app.py": "import os\n"}, "first")
    repository.commit_files({"app.py": f"import os\n\n\n{FAULTY}"}, "faults", branch="topic")
    return repository


def review(repository: GitRepository, *words: str) -> Ended:
    return codeloupe("review", "--reviewer", "offline", "--format", "json", *words, cwd=repository.path)


def adopt(repository: GitRepository, *words: str) -> str:
    """Accept all findings of the last review, and what the program says first."""
    added = codeloupe("baseline", "add", "--all", "--reason", "legacy", *words, cwd=repository.path)
    assert added.exit_code == 0
    return added.stdout.split("\n")[0]


def kinds(document: Any) -> set[str]:
    return {error["kind"] for error in document["errors"]}


def test_a_legacy_code_base_is_adopted_and_only_what_is_new_counts(faulty: GitRepository) -> None:
    first = review(faulty)
    assert first.exit_code == 1
    assert adopt(faulty, "--owner", "us") == f"Added 2 entries in {BASELINE_NAME}:"
    second = review(faulty)
    document = second.json()
    assert (second.exit_code, document["verdict"], document["complete"]) == (0, "PASS", True)
    assert [finding["fingerprint"] for finding in document["findings"]] == [
        finding["fingerprint"] for finding in first.json()["findings"]
    ]
    expected = {"kind": "baseline", "reason": "legacy", "owner": "us", "expires": None}
    assert [finding["suppression"] for finding in document["findings"]] == [expected, expected]
    faulty.write("app.py", f"import os\n\n\n{FAULTY}    os.system(name)\n")
    third = review(faulty)
    assert third.exit_code == 1
    assert [finding["suppression"] is None for finding in third.json()["findings"]] == [False, False, True]


def test_a_finding_of_a_sweep_is_adopted_like_one_of_a_review(faulty: GitRepository) -> None:
    words = ["commits", "--max", "1", "--since", "2000-01-01", "--reviewer", "offline", "--strict", "--format", "json"]
    swept = codeloupe(*words, cwd=faulty.path)
    assert swept.exit_code == 1
    faulty.path.joinpath("sweep.json").write_text(swept.stdout)
    baseline = faulty.path / BASELINE_NAME
    fingerprints = [finding["fingerprint"] for finding in swept.json()["findings"]]
    # From the newest, by its id, and from a file.
    for source in ([], ["--review", swept.json()["sweep_id"]], ["--from", "sweep.json"]):
        baseline.unlink(missing_ok=True)
        added = codeloupe("baseline", "add", *fingerprints, "--reason", "legacy", *source, cwd=faulty.path)
        assert (added.exit_code, added.stdout.split("\n")[0]) == (0, f"Added 2 entries in {BASELINE_NAME}:")
        assert "eval(name)" in baseline.read_text()
    faulty.commit("known")
    assert codeloupe(*words[:2], "2", *words[3:], cwd=faulty.path).exit_code == 0


def test_what_is_fixed_is_told_as_unused_and_pruned(faulty: GitRepository) -> None:
    review(faulty)
    adopt(faulty)
    faulty.write("app.py", "import os\n\n\n" + FAULTY.replace("eval(name)", "int(name)"))
    assert "baseline_unused" in kinds(review(faulty).json())
    listed = codeloupe("baseline", "list", "--json", cwd=faulty.path).json()
    assert sorted(entry["state"] for entry in listed["entries"]) == ["unused", "used"]
    assert "Removed 1 entry" in codeloupe("baseline", "prune", cwd=faulty.path).stdout


def test_an_expired_entry_counts_again_and_is_told(faulty: GitRepository) -> None:
    review(faulty)
    adopt(faulty, "--expires", "2999-12-31")
    text = (faulty.path / BASELINE_NAME).read_text()
    faulty.write(BASELINE_NAME, text.replace("2999-12-31", "2001-12-31"))
    ended = review(faulty)
    assert ended.exit_code == 1
    assert "baseline_expired" in kinds(ended.json())


def test_a_comment_with_a_reason_suppresses_and_one_without_does_not(faulty: GitRepository) -> None:
    marked = FAULTY.replace('+ "\'")', '+ "\'")  # codeloupe: ignore[S608] the name is one of ours')
    faulty.write("app.py", f"{marked.rstrip()}  # codeloupe: ignore\n")
    document = review(faulty).json()
    by_rule = {finding["rule"]: finding["suppression"] for finding in document["findings"]}
    assert by_rule["S608"] == {"kind": "inline", "reason": "the name is one of ours", "owner": None, "expires": None}
    assert by_rule["S307"] is None
    assert {"ignore_without_reason", "suppressions_added"} <= kinds(document)


def test_of_an_untrusted_change_neither_comments_nor_its_own_baseline_are_followed(faulty: GitRepository) -> None:
    review(faulty)
    adopt(faulty)
    faulty.write("app.py", f"import os\n\n\n{FAULTY}    os.system(name)  # codeloupe: ignore fine\n")
    faulty.commit("hide it")
    trusted = review(faulty, "main..topic")
    assert trusted.exit_code == 0
    strange = review(faulty, "main..topic", "--untrusted")
    document = strange.json()
    assert strange.exit_code == 1
    assert [finding["suppression"] for finding in document["findings"]] == [None, None, None]
    assert {"ignores_not_followed", "suppressions_added"} <= kinds(document)


def test_of_an_untrusted_change_the_baseline_of_the_base_holds(faulty: GitRepository) -> None:
    review(faulty)
    adopt(faulty)
    text = (faulty.path / BASELINE_NAME).read_text()
    faulty.remove(BASELINE_NAME)
    faulty.checkout("main")
    base = faulty.commit_files({BASELINE_NAME: text}, "baseline")
    faulty.checkout("topic")
    faulty.git("rebase", "--quiet", "main")
    faulty.commit_files({BASELINE_NAME: "version: 1\nentries: []\n"}, "empty it")
    assert review(faulty, f"{base}..topic", "--untrusted").exit_code == 0
    assert review(faulty, f"{base}..topic").exit_code == 1


def test_a_report_from_a_pipe_can_be_adopted_and_a_broken_baseline_stops_a_review(faulty: GitRepository) -> None:
    words = ("baseline", "add", "app.py:5", "--reason", "x", "--from", "-")
    piped = codeloupe(*words, cwd=faulty.path, stdin=review(faulty).stdout.encode())
    assert "Added 1 entry" in piped.stdout
    faulty.write(BASELINE_NAME, "version: 1\nentries:\n- fingerprint: abcdef\n")
    ended = review(faulty)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert f"{BASELINE_NAME}:3: this entry has no reason" in ended.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "abcdef", "--reason", "x"], "no review made in repository is stored"),
        (["add", "abcdef"], "--reason"),
        (["ad"], "'ad' is not a command of baseline"),
        (["list", "--repo", "x" * 300], "no such directory"),
        ([], "baseline needs a command: add, list, prune"),
    ],
)
def test_a_wrong_call_ends_with_2_and_a_hint(repository: GitRepository, words: list[str], message: str) -> None:
    ended = codeloupe("baseline", *words, cwd=repository.path)
    assert ended.exit_code == 2
    assert message in ended.stderr
    assert "hint:" in ended.stderr
