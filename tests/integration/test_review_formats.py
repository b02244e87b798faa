"""`codeloupe review` in several formats at once, through the front door."""

import itertools
import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from codeloupe.reports import FORMATS
from tests.repository import GitRepository
from tests.warm_program import codeloupe

FAULTY = "import subprocess\n\n\ndef run(name):\n    subprocess.call('ls ' + name, shell=True)\n"


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"})
    repository.commit_files({"a.py": FAULTY})
    return repository


def test_several_formats_are_written_at_once_and_say_the_same(project: GitRepository, tmp_path: Path) -> None:
    pairs = [word for name in FORMATS for word in ("--format", name, "-o", str(tmp_path / f"report.{name}"))]
    ended = codeloupe("review", "--commit", "HEAD", "--reviewer", "offline", *pairs, cwd=project.path)
    assert ended.exit_code == 1, ended.stderr
    written = {name: (tmp_path / f"report.{name}").read_text(encoding="utf-8") for name in FORMATS}
    found = json.loads(written["json"])["findings"]
    assert found
    [run] = json.loads(written["sarif"])["runs"]
    assert len(run["results"]) == len(found)
    assert run["invocations"][0]["executionSuccessful"] is True
    assert len(json.loads(written["gitlab-codequality"])) == len(found)
    assert len(json.loads(written["rdjson"])["diagnostics"]) == len(found)
    assert len(written["rdjsonl"].splitlines()) == len(found)
    assert len(list(ET.fromstring(written["junit"]).iter("failure"))) >= 1
    assert all(finding["title"] in written["text"] for finding in found)
    assert written["html"].startswith("<!doctype html>")
    assert "::error file=a.py" in written["github"]
    assert "FAIL" in written["markdown"]


def written_reports(folder: Path, into: Path, *words: str) -> dict[str, str]:
    """Review the last commit, and return the report in each format."""
    pairs = [word for name in FORMATS for word in ("--format", name, "-o", str(into / f"report.{name}"))]
    ended = codeloupe("review", "--commit", "HEAD", *words, *pairs, cwd=folder)
    assert ended.exit_code in (0, 1), ended.stderr
    return {name: (into / f"report.{name}").read_text(encoding="utf-8") for name in FORMATS}


@pytest.mark.defect("E7")
def test_ordinary_facts_are_notes_in_plain_words(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    ignored = "eval(input())  # codeloupe: ignore[S307] the input is ours\n"
    repository.commit_files({"a.py": ignored, "b.py": "eval(input())  # codeloupe: ignore[S307]\n"})
    written = written_reports(repository.path, tmp_path)
    errors = json.loads(written["json"])["errors"]
    assert {error["kind"] for error in errors} == {"no_agent", "suppressions_added", "ignore_without_reason"}
    assert {error["level"] for error in errors} == {"note"}
    for name in FORMATS:
        if name != "json":
            assert not [error["kind"] for error in errors if error["kind"] in written[name]], name
    assert "Problems" not in written["text"]
    notes = written["text"].partition("\nNotes\n")[2]
    assert "· Only the analysers reviewed this change" in notes
    assert "· The change itself adds 1 comment to ignore findings (a.py:1)." in notes
    assert "✖" not in notes


@pytest.mark.defect("E18")
@pytest.mark.parametrize(("fail_on", "exit_code"), [("critical", 0), ("high", 1)])
def test_rules_have_their_own_titles_and_junit_its_verdict(
    project: GitRepository, tmp_path: Path, fail_on: str, exit_code: int
) -> None:
    project.commit_files({"b.py": "import os\n\nprint(eval(input()))\n"})
    written = written_reports(project.path, tmp_path, "--reviewer", "offline", "--fail-on", fail_on)
    [run] = json.loads(written["sarif"])["runs"]
    titles = {rule["id"]: rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"]}
    assert titles["F401"] == "Unused import"
    assert not [title for title in titles.values() if "rule" in title]
    verdict = ET.fromstring(written["junit"]).find(".//testcase[@name='verdict']")
    assert verdict is not None
    assert (verdict.find("failure") is not None) == (exit_code == 1)
    assert run["invocations"][0]["exitCode"] == exit_code


def test_a_file_that_cannot_be_written_is_told_before_anything_is_reviewed(project: GitRepository) -> None:
    ended = codeloupe(
        "review", "--commit", "HEAD", "--format", "sarif", "-o", "missing/folder/a.sarif", cwd=project.path
    )
    assert ended.exit_code == 2
    assert "missing/folder" in ended.stderr


def test_a_saved_review_is_rendered_again_in_another_format(project: GitRepository) -> None:
    codeloupe("review", "--commit", "HEAD", "--reviewer", "offline", cwd=project.path)
    again = codeloupe("history", "render", "last", "--format", "sarif", "--fail-on", "critical", cwd=project.path)
    assert again.exit_code == 0, again.stderr
    assert again.json()["runs"][0]["results"]


@pytest.mark.defect("X3")
def test_reviewed_text_is_no_command_to_a_ci_system_in_any_format(repository: GitRepository, tmp_path: Path) -> None:
    commands = ("::stop-commands::x", "  ::error file=a::b", "##[error]no", "##vso[task.complete]no", "::add-mask::a")
    repository.commit_files({"README.md": "a shop\n"})
    repository.checkout("work", new=True)
    code = "\n".join(("def run(text):", *commands, "eval(text)"))
    repository.write(
        "web/page.js", f"function show(text) {{\n  return `\n{code}\n`;\n}}\neval(`\n{code}\n` + other);\n"
    )
    repository.write("shop.py", f'import os\n\n\ndef run(text):\n    os.system(f"""\n{code}\n{{text}}""")\n')
    repository.commit("\n\n".join(commands))
    obeyed = re.compile(r"(?m)^\s*::\S+::|^\s*::error|##\w*\[")
    systems = itertools.cycle(("GITHUB_ACTIONS", "CI", "TF_BUILD"))
    for name in (*FORMATS, "text", "text"):
        ended = codeloupe(
            *("review", "--reviewer", "offline", "--format", name, "--fresh"),
            cwd=repository.path,
            environment={next(systems): "true"},
        )
        assert ended.exit_code == 1
        told = [line for line in ended.stdout.split("\n") if obeyed.search(line)]
        ours = ("::error ", "::warning ", "::notice ") if name == "github" else ()
        assert [line for line in told if not (ours and line.startswith(ours))] == [], name
        assert obeyed.search(ended.stderr) is None
    sweep = ("commits", "--since", "2000-01-01", "--reviewer", "offline", "--format", "markdown")
    for words in (sweep, ("history", "render", "last", "--format", "markdown")):
        ended = codeloupe(*words, cwd=repository.path, environment={"GITHUB_ACTIONS": "true"})
        assert "shop.py" in ended.stdout
        assert obeyed.search(ended.stdout) is None
    # Errors quote names, keys and values that others chose.
    repository.write("codeloupe.yaml", '"::error::x": 1\n"##vso[task.complete]y": 2\n')
    repository.write("pipeline.yaml", 'name: "##teamcity[x]"\nstages: [{name: "##vso[x]y", prompt: hi}]\n')
    for wrong in (
        ("config", "validate"),
        ("review", "##vso[task.complete]x"),
        ("review", "--format", "##teamcity[x]"),
        ("pipeline", "validate", "pipeline.yaml"),
        ("pipeline", "run", "pipeline.yaml"),
    ):
        ended = codeloupe(*wrong, cwd=repository.path, environment={"TF_BUILD": "true"})
        assert ended.exit_code == 2
        assert "#" in ended.stderr
        assert obeyed.search(ended.stderr) is None, wrong


SHOP = "import os\n\n\ndef run(name):\n    try:\n        return eval(name)\n    except:\n        return 0\n"


@pytest.mark.defect("U2")
def test_the_worst_comes_first_and_the_next_commands_work_as_they_are_printed(repository: GitRepository) -> None:
    repository.commit_files({"README.md": "a shop\n"})
    repository.write("shop.py", SHOP)
    words = ("review", "--reviewer", "offline", "--quiet")
    shown = codeloupe(*words, cwd=repository.path).stdout
    titles = re.findall(r"(?m)^  (CRITICAL|HIGH|MEDIUM|LOW) P[0-3]  ", shown)
    assert titles == ["HIGH", "MEDIUM", "LOW"]
    ids = re.findall(r"(?m)^  shop\.py:\d+ .* id ([0-9a-f]{8})$", shown)
    assert len(set(ids)) == 3
    commands = re.findall(r"(?m)^(?:Next)? +\w[\w ]+?  +codeloupe (.*)$", shown)
    assert [command.split()[:2] for command in commands] == [
        ["history", "dismiss"],
        ["baseline", "add"],
        ["history", "render"],
    ]
    endings = [codeloupe(*command.split(), cwd=repository.path) for command in commands]
    assert [ended.exit_code for ended in endings] == [0, 0, 1], [ended.stderr for ended in endings]
    assert (repository.path / "review.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    concise = codeloupe(*words, "--format", "concise", cwd=repository.path).stdout
    assert ids[0] not in concise
    assert concise.splitlines()[0].startswith("shop.py:7: medium: ")


@pytest.mark.defect("U2")
def test_no_command_is_named_that_could_not_find_the_review(project: GitRepository, tmp_path: Path) -> None:
    words = ("review", "--commit", "HEAD", "--reviewer", "offline", "--quiet")
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    named = codeloupe(*words, "--repo", str(project.path), cwd=elsewhere).stdout
    *_, last = re.findall(r"(?m)  codeloupe (.*)$", named)
    assert codeloupe(*shlex.split(last), cwd=elsewhere).exit_code == 1
    assert (elsewhere / "review.html").exists()
    unsaved = codeloupe(*words, cwd=project.path, environment={"CODELOUPE_KEEP_HISTORY": "false"}).stdout
    assert "FAIL" in unsaved
    for shown in (unsaved, codeloupe("demo", cwd=elsewhere).stdout):
        assert "codeloupe history" not in shown
        assert "codeloupe baseline" not in shown


@pytest.mark.defect("U2")
def test_concise_is_one_line_a_finding_then_gaps_then_the_verdict(repository: GitRepository) -> None:
    repository.commit_files({"README.md": "a shop\n"})
    repository.write("shop.py", SHOP)
    repository.write("broken.py", "def broken(:\n")
    words = ("review", "--reviewer", "offline", "--quiet", "--format")
    found = codeloupe(*words, "json", cwd=repository.path).json()["findings"]
    *lines, verdict = codeloupe(*words, "concise", cwd=repository.path).stdout.splitlines()
    expected = {
        f"{one['file']}:{one['line_start']}: {one['severity']}: {one['title']}"
        f" [{one['rule']}] ({one['fingerprint'][:8]})"
        for one in found
    }
    assert set(lines) == expected
    steps = ["critical", "high", "medium", "low"]
    order = [steps.index(line.split(": ")[1]) for line in lines]
    assert order == sorted(order)
    assert verdict.startswith("FAIL: ")
