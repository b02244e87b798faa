"""`codeloupe review` through the front door: real git, real analysers, real exit codes."""

import json
from pathlib import Path

import pytest

from tests.hidden_material import png
from tests.repository import GitRepository
from tests.warm_program import codeloupe

FAULT = "import os\n\n\ndef run(name):\n    os.system('echo ' + name)\n"
CLEAN = "def add(one, two):\n    return one + two\n"


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"base.py": CLEAN}, "first")
    repository.checkout("feature", new=True)
    return repository


def files_found(project: GitRepository, *words: str, exit_code: int = 1) -> list[str]:
    """The files with findings that count."""
    ended = codeloupe("review", *words, "--format", "json", "-q", cwd=project.path)
    assert ended.exit_code == exit_code, ended.json()["errors"]
    assert ended.stderr == ""
    return sorted({finding["file"] for finding in ended.json()["findings"] if finding["counts"]})


def test_the_default_scope_is_everything_since_the_base_branch(project: GitRepository) -> None:
    project.commit_files({"committed.py": FAULT}, "fault")
    project.write("staged.py", FAULT)
    project.git("add", "staged.py")
    project.write("base.py", CLEAN + FAULT)
    project.write("untracked.py", FAULT)
    assert files_found(project) == ["base.py", "committed.py", "staged.py", "untracked.py"]
    assert files_found(project, "--base", "main") == ["base.py", "committed.py", "staged.py", "untracked.py"]


def test_each_scope_sees_its_own_part(project: GitRepository) -> None:
    sha = project.commit_files({"committed.py": FAULT}, "fault")
    project.write("staged.py", FAULT)
    project.git("add", "staged.py")
    project.write("staged.py", CLEAN)
    project.write("untracked.py", FAULT)
    assert files_found(project, "--uncommitted") == ["untracked.py"]
    assert files_found(project, "--staged") == ["staged.py"]
    assert files_found(project, "--commit", sha) == ["committed.py"]
    assert files_found(project, "main..feature") == ["committed.py"]
    assert files_found(project, "main...feature") == ["committed.py"]
    assert files_found(project, "--include", "u*", exit_code=1) == ["untracked.py"]
    assert files_found(project, "--exclude", "*.py", exit_code=0) == []


@pytest.mark.requirement("C5")
def test_only_changed_lines_are_reported_and_no_change_passes(project: GitRepository) -> None:
    project.commit_files({"old.py": FAULT}, "an old fault")
    project.git("branch", "--force", "main")
    ended = codeloupe("review", cwd=project.path)
    assert ended.exit_code == 0
    assert "No changes to review" in ended.stdout
    project.write("old.py", FAULT + "\n\nprint('new')\n")
    assert files_found(project, exit_code=0) == []


def test_the_json_has_every_field_of_version_1(project: GitRepository) -> None:
    project.write("a.py", FAULT)
    ended = codeloupe("review", "--format", "json", "-q", cwd=project.path)
    document = ended.json()
    assert list(document)[:4] == ["schema_version", "tool", "review_id", "scope"]
    rest = "reviewer verdict passed complete exit_code summary findings coverage usage errors"
    assert set(rest.split()) <= set(document)
    assert (document["verdict"], document["passed"], document["complete"]) == ("FAIL", False, True)
    assert document["exit_code"] == ended.exit_code == 1
    assert document["scope"]["kind"] == "branch"
    assert document["reviewer"]["type"] == "offline"
    (finding,) = document["findings"]
    assert (finding["file"], finding["line_start"], finding["severity"], finding["priority"]) == ("a.py", 5, "high", 1)
    assert finding["evidence"].strip() == "os.system('echo ' + name)"
    assert finding["anchored"] is True
    assert finding["outside_change"] is False
    assert len(finding["fingerprint"]) == 32
    assert finding["body"]


def test_the_text_shows_place_code_reason_and_verdict(project: GitRepository) -> None:
    project.write("a.py", FAULT)
    ended = codeloupe("review", cwd=project.path)
    assert ended.exit_code == 1
    for words in ("a.py", "os.system('echo ' + name)", "FAIL", "not an AI review"):
        assert words in " ".join(ended.stdout.split()), ended.stdout
    # Progress goes to stderr, in plain lines.
    assert ended.stderr
    assert "\x1b" not in ended.stdout + ended.stderr


def test_the_gate_is_moved_by_the_file_the_environment_and_the_flags_in_that_order(project: GitRepository) -> None:
    project.write("a.py", FAULT)
    assert files_found(project, "--fail-on", "critical", exit_code=0) == ["a.py"]
    assert files_found(project, "--fail-on", "P0", "--min-severity", "P0", exit_code=0) == []
    assert files_found(project, "--fail-on", "[P2]", exit_code=1) == ["a.py"]
    project.write("codeloupe.yaml", "fail_on: critical\n")
    assert codeloupe("review", "-q", cwd=project.path).exit_code == 0
    with_variable = {"CODELOUPE_FAIL_ON": "high"}
    assert codeloupe("review", "-q", cwd=project.path, environment=with_variable).exit_code == 1
    ended = codeloupe("review", "-q", "--fail-on", "critical", cwd=project.path, environment=with_variable)
    assert ended.exit_code == 0


def test_an_untrusted_change_cannot_bring_its_own_configuration_or_suppressions(project: GitRepository) -> None:
    project.write("a.py", FAULT.replace("+ name)", "+ name)  # noqa"))
    project.write("codeloupe.yaml", "exclude: ['*.py']\n")
    project.commit("hide")
    assert files_found(project, exit_code=0) == []
    assert files_found(project, "--untrusted", exit_code=1) == ["a.py"]


def test_a_result_file_is_whole_and_the_terminal_says_where_it_is(project: GitRepository) -> None:
    project.write("a.py", FAULT)
    ended = codeloupe("review", "--format", "json", "-o", "out.json", "--exclude", "out.json", cwd=project.path)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "wrote out.json" in ended.stderr
    assert json.loads((project.path / "out.json").read_text())["verdict"] == "FAIL"
    assert [entry.name for entry in project.path.iterdir() if entry.name.startswith(".out")] == []


def test_a_file_over_the_limit_makes_the_review_incomplete_not_clean(project: GitRepository) -> None:
    project.write("big.py", "x = 1\n" * 50)
    project.write("codeloupe.yaml", "max_file_lines: 10\n")
    ended = codeloupe("review", cwd=project.path)
    assert ended.exit_code == 3
    assert "big.py" in ended.stdout
    assert "PASS" not in ended.stdout
    passing = codeloupe("review", "--on-incomplete", "pass", cwd=project.path)
    assert passing.exit_code == 0
    assert "not everything was reviewed" in passing.stderr


def test_skipped_files_are_in_the_coverage_with_their_reason(project: GitRepository) -> None:
    project.write("package-lock.json", "{}\n")
    project.write("logo.png", png())
    project.write("ok.py", CLEAN)
    coverage = codeloupe("review", "--format", "json", "-q", cwd=project.path).json()["coverage"]
    assert (coverage["files_total"], coverage["files_reviewed"]) == (3, 1)
    assert {skip["file"]: skip["reason"] for skip in coverage["skipped"]} == {
        "package-lock.json": "lock file",
        "logo.png": "media",
    }


def test_a_diff_from_elsewhere_is_reviewed_where_its_files_are_known(project: GitRepository) -> None:
    project.write("a.py", FAULT)
    project.write("base.py", CLEAN + FAULT)
    project.git("add", "--all")
    diff = project.git("diff", "--cached")
    project.git("reset", "--quiet", "--hard")
    ended = codeloupe("review", "--diff-file", "-", "--format", "json", "-q", cwd=project.path, stdin=diff)
    assert ended.exit_code == 1
    assert [finding["file"] for finding in ended.json()["findings"]] == ["a.py", "base.py"]
    assert ended.json()["complete"] is True


def test_a_diff_without_its_repository_is_reviewed_as_far_as_it_goes_and_incomplete(
    project: GitRepository, tmp_path: Path
) -> None:
    project.write("base.py", CLEAN + FAULT)
    diff = project.git("diff")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ended = codeloupe("review", "--diff-file", "-", "--format", "json", "-q", cwd=elsewhere, stdin=diff)
    document = ended.json()
    assert (ended.exit_code, document["complete"], document["passed"]) == (3, False, False)
    assert "base.py" in document["coverage"]["units_failed"][0]["files"]


_THREE_FUNCTIONS = """\
def first(value):
    before = value
    return before
def second(value):
    one = value
    two = value
    three = value
def third(value):
    four = value
    five = value
    six = value
    seven = value
    eight = value
    return eight
"""


@pytest.mark.defect("N8")
def test_overlapping_hunks_of_git_are_reviewed_once(project: GitRepository) -> None:
    project.commit_files({"old.py": _THREE_FUNCTIONS}, "before")
    project.git("mv", "old.py", "new.py")
    text = _THREE_FUNCTIONS.replace("return before", "return eval(before)").replace(
        "return eight", "return eval(eight)"
    )
    project.write("new.py", text)
    project.git("add", "--all")
    # Functions are found by the attribute; without it git would show the whole file in one hunk.
    project.write(".git/info/attributes", "*.py diff=python\n")
    diff = project.git("diff", "--cached", "--function-context", "--find-renames")
    assert b"@@ -1,6 +1,6 @@" in diff
    assert b"@@ -5,10 +5,10 @@" in diff
    project.git("reset", "--quiet", "--hard")
    words = ("review", "--reviewer", "offline", "--diff-file", "-", "--format", "json", "-q")
    document = codeloupe(*words, cwd=project.path, stdin=diff).json()
    assert document["complete"] is True
    assert [(finding["file"], finding["line_start"]) for finding in document["findings"]] == [
        ("new.py", 3),
        ("new.py", 14),
    ]
    preview = codeloupe(*words, "--preview", cwd=project.path, stdin=diff).json()
    assert [(file["added"], file["deleted"]) for file in preview["files"]] == [(2, 2)]


def test_a_preview_leaves_out_what_the_review_leaves_out(project: GitRepository) -> None:
    project.write("a.py", FAULT)
    project.write("empty.py", "")
    project.write("nested/x.py", "x = 1\n")
    project.git("init", "--quiet", "nested")
    preview = codeloupe("review", "--preview", "--format", "json", cwd=project.path).json()
    coverage = codeloupe("review", "--format", "json", "-q", cwd=project.path).json()["coverage"]
    left_out = [{"file": file["new_path"], "reason": file["reason"]} for file in preview["files"] if file["reason"]]
    left_out += [{"file": file["file"], "reason": file["reason"]} for file in preview["out_of_reach"]]
    assert left_out == [
        {"file": "empty.py", "reason": "nothing to read"},
        {"file": "nested/", "reason": "submodule"},
    ]
    assert sorted(file["file"] for file in coverage["skipped"]) == [file["file"] for file in left_out]


def test_a_name_that_no_file_can_have_takes_no_other_file_with_it(project: GitRepository) -> None:
    names = ("/".join(["folder" * 30] * 30) + "/x.py", "n" * 300 + ".py")
    project.write("a.py", FAULT)
    project.git("add", "--all")
    blob = project.git("hash-object", "-w", "a.py").decode().strip()
    lines = "".join(f"100644 {blob}\t{name}\n" for name in names)
    project.git("update-index", "--index-info", stdin=lines.encode())
    document = codeloupe("review", "--staged", "--format", "json", "-q", cwd=project.path).json()
    assert [finding["file"] for finding in document["findings"]] == ["a.py"]
    skipped = {skip["file"]: skip["reason"] for skip in document["coverage"]["skipped"]}
    assert skipped == dict.fromkeys(names, "unreadable")
    diff = project.git("diff", "--cached", "--no-renames")
    ended = codeloupe("review", "--diff-file", "-", "--format", "json", "-q", cwd=project.path, stdin=diff)
    assert "a.py" in [finding["file"] for finding in ended.json()["findings"]]
    assert ended.json()["complete"] is False


def test_odd_names_are_shown_escaped_and_survive_in_json(project: GitRepository, tmp_path: Path) -> None:
    name = "evil\x1b]0;title\x07\u202e\udcff.py"
    project.write(name, FAULT)
    report = tmp_path / "report.json"
    text = codeloupe("review", "--format", "text", "--format", "json", "-o", str(report), cwd=project.path)
    assert text.exit_code == 1
    assert "\x1b" not in text.stdout
    assert "\u202e" not in text.stdout
    assert "\\x1b" in text.stdout
    assert json.loads(report.read_text())["findings"][0]["file"] == name
