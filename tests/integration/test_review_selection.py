"""What is reviewed and what is not, through the front door: patterns, paths, encodings, guidance, accepted classes."""

from pathlib import Path
from typing import Any

import pytest

from codeloupe.testing import Json, StandInServer
from tests.agent_programs import agents_at
from tests.hidden_material import LINE, SCRIPT, npm_lock, png, zipped
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

OFFLINE = ("--reviewer", "offline")


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    """On `change`, src/app.py and src/gone.py differ from main; docs and web do not."""
    names = ("src/app.py", "src/gone.py", "docs/guide.md", "web/index.html")
    repository.commit_files(dict.fromkeys(names, "# a\n"), "base")
    repository.checkout("change", new=True)
    repository.write("src/app.py", f"# a\n{LINE}")
    repository.remove("src/gone.py")
    repository.commit("change")
    return repository


def _review(project: GitRepository, *words: str, cwd: Path | None = None) -> Ended:
    return codeloupe("review", *OFFLINE, "--fresh", *words, cwd=cwd or project.path)


@pytest.mark.defect("T1")
def test_a_pattern_that_fits_no_file_is_refused_and_one_that_fits_no_changed_file_does_not_pass(
    project: GitRepository,
) -> None:
    cases: dict[tuple[str, ...], tuple[int, str]] = {
        ("--include", "scr/**"): (2, "did you mean src/**?"),
        ("--include", "src/ap.py"): (2, "did you mean src/app.py?"),
        ("--include", "*.pyy"): (2, "did you mean *.py?"),
        ("--include", "src/**", "--include", "doc/**"): (2, "did you mean docs/**?"),
        ("main..HEAD", "--include", "scr/**", "--untrusted"): (2, "did you mean src/**?"),
        ("--preview", "--include", "scr/**"): (2, "did you mean src/**?"),
        ("--include", "docs/**"): (0, "Nothing to review: no include pattern or path matches a changed file"),
        ("--include", "docs/**", "--untrusted"): (0, "Nothing to review: "),
        ("web",): (0, "Nothing to review: "),
        ("--exclude", "**"): (0, "Nothing to review: the exclude patterns skip every changed file (2 files"),
        ("--include", "src/**"): (1, "FAIL"),
        ("--include", "gone.py"): (0, "PASS"),
    }
    wrong = {}
    for words, (exit_code, text) in cases.items():
        ended = _review(project, *words)
        said = ended.stdout + ended.stderr
        if ended.exit_code != exit_code or text not in said or ("Nothing to review" in said and "PASS" in said):
            wrong[words] = (ended.exit_code, said)
    assert wrong == {}
    document = _review(project, "--include", "docs/**", "--format", "json").json()
    assert (document["nothing_to_review"], document["coverage"]["files_reviewed"]) == (True, 0)
    assert _review(project, "--include", "src/**", "--format", "json").json()["nothing_to_review"] is False


@pytest.mark.defect("T1")
def test_settings_that_leave_everything_out_say_so_and_are_a_gap_of_an_untrusted_change(
    repository: GitRepository,
) -> None:
    repository.commit_files({"codeloupe.yaml": "exclude: ['**']\n"}, "base")
    repository.commit_files({"a.py": LINE}, "change", branch="change")
    trusted, untrusted = _review(repository), _review(repository, "--untrusted")
    assert (trusted.exit_code, untrusted.exit_code) == (0, 3)
    assert "Nothing to review: the exclude patterns skip every changed file" in trusted.stdout
    assert "PASS" not in trusted.stdout + untrusted.stdout
    assert "INCOMPLETE" in untrusted.stdout


@pytest.mark.defect("U4")
def test_paths_are_arguments_and_words_that_are_none_get_a_hint(project: GitRepository) -> None:
    below = project.path / "src"
    cases: list[tuple[Path, tuple[str, ...], int, str]] = [
        (project.path, ("src/app.py",), 1, "src/app.py"),
        (project.path, ("src",), 1, "2 of 2 files reviewed"),
        (project.path, ("./src/",), 1, "2 of 2 files reviewed"),
        (project.path, (".",), 1, "2 of 2 files reviewed"),
        (project.path, ("--", "src/app.py"), 1, "1 of 2 files reviewed"),
        (project.path, ("--", "src/app.py", "docs"), 1, "1 of 2 files reviewed"),
        (project.path, ("main..HEAD", "src/app.py"), 1, "1 of 2 files reviewed"),
        (project.path, ("src/app.py", "main...HEAD", "--untrusted", "docs"), 1, "1 of 2 files reviewed"),
        (project.path, ("--base", "main", "src/app.py", "docs/guide.md"), 1, "1 of 2 files reviewed"),
        (project.path, ("main..HEAD", "src/gone.py"), 0, "1 of 2 files reviewed"),
        (below, ("app.py",), 1, "1 of 2 files reviewed"),
        (below, ("../docs",), 0, "Nothing to review: "),
        (below, ("../..",), 2, "outside the repository"),
        (project.path, ("HEAD",), 2, "--uncommitted; for the last commit: --commit HEAD"),
        (project.path, ("main",), 2, "for that commit alone: --commit main; for everything since: --base main"),
        (project.path, ("app.py",), 2, "did you mean src/app.py?"),
        (project.path, ("scr/app.py",), 2, "did you mean src/app.py?"),
        (project.path, ("nosuch",), 2, "neither a file in this repository nor a revision"),
        (project.path, ("--", "nosuch"), 2, "no file of the repository matches"),
        (project.path, ("src", "--include", "*.py"), 2, "paths and --include exclude each other"),
        (project.path, ("main..HEAD", "main...HEAD"), 2, "two ranges"),
        (project.path, ("main..nosuch",), 2, "'nosuch' is unknown"),
    ]
    wrong = []
    for cwd, words, exit_code, text in cases:
        ended = _review(project, *words, cwd=cwd)
        if ended.exit_code != exit_code or text not in ended.stdout + ended.stderr:
            wrong.append((words, ended.exit_code, ended.stdout + ended.stderr))
    assert wrong == []
    gitlab = codeloupe("publish", "gitlab", cwd=project.path)
    assert gitlab.exit_code == 2
    assert "github?" not in gitlab.stderr
    assert "--format gitlab" in gitlab.stderr


@pytest.mark.defect("T3")
def test_a_class_is_accepted_by_its_name_in_the_settings_of_the_base(repository: GitRepository) -> None:
    repository.commit_files({"codeloupe.yaml": "accept_unread: [archives, submodules, lock_files]\n"}, "base")
    files: dict[str, str | bytes] = {"a.zip": zipped("a.sh", SCRIPT), "logo.png": png(), "yarn.lock": "no lock file\n"}
    repository.commit_files(files, branch="change")
    accepted = _review(repository, "--untrusted", "--format", "json")
    reasons = {one["file"]: (one["reason"], one["accepted"]) for one in accepted.json()["coverage"]["skipped"]}
    assert reasons == {"a.zip": ("archive", True), "logo.png": ("media", True), "yarn.lock": ("lock file", True)}
    assert accepted.exit_code == 0
    refused = _review(repository, "main...HEAD", "--untrusted", "--format", "json")
    assert refused.json()["coverage"]["skipped"] == accepted.json()["coverage"]["skipped"]
    repository.write("codeloupe.yaml", "accept_unread: [archive]\n")
    wrong = _review(repository)
    assert (wrong.exit_code, "did you mean `archives`?" in wrong.stderr) == (2, True)


@pytest.mark.defect("F13")
def test_a_minified_file_is_a_gap_unless_marked_vendored_or_accepted(repository: GitRepository) -> None:
    one_line = "x=1;" * 5_000_000
    cases: list[tuple[str, str, str, int, str]] = [
        ("app.min.js", one_line, "", 3, "too large"),
        ("app.min.js", one_line[:20_000], "", 3, "minified"),
        ("app.js", one_line[:20_000], "", 3, "minified"),
        ("app.js", one_line[:20_000], "accept_unread: [minified]\n", 0, "minified"),
        ("app.min.js", f"/* @generated */{one_line}", "", 0, "generated"),
        ("vendor/app.min.js", one_line, "", 0, "vendored"),
    ]
    repository.commit_files({"README.md": "# a\n", "codeloupe.yaml": ""}, "base")
    for number, (name, text, settings, exit_code, reason) in enumerate(cases):
        repository.commit_files({name: text, "codeloupe.yaml": settings}, branch=f"case-{number}")
        ended = _review(repository, "--format", "json")
        (skipped,) = [one for one in ended.json()["coverage"]["skipped"] if one["file"] == name]
        assert (ended.exit_code, skipped["reason"], skipped["accepted"]) == (exit_code, reason, exit_code == 0), name
        repository.checkout("main")


@pytest.mark.defect("T3")
def test_a_lock_file_counts_as_reviewed_when_it_was_read(repository: GitRepository) -> None:
    usual = "registry.npm" + "js.org"
    repository.commit_files({"package-lock.json": npm_lock(usual)}, "base")
    repository.checkout("change", new=True)
    bumped = npm_lock(usual, "sha512-BBBB").replace("1.0.0", "1.0.1")
    for lock, is_read, exit_code, verdict in (
        (bumped, True, 0, "PASS"),
        ("{", False, 3, "INCOMPLETE"),
        (npm_lock("evil.example"), True, 1, "FAIL"),
        # The analyser did not complete on the file, so what it found before stays.
        ("{", False, 1, "FAIL"),
    ):
        repository.write("package-lock.json", lock)
        ended = _review(repository, "--untrusted", "--format", "json")
        document = ended.json()
        assert (ended.exit_code, document["verdict"]) == (exit_code, verdict)
        assert document["coverage"]["files_reviewed"] == is_read
    repository.write("package-lock.json", npm_lock("evil.example"))
    (finding,) = _review(repository, "--format", "json").json()["findings"]
    assert (finding["rule"], finding["source"], finding["reviewer"]) == ("source-moved", "analyser", "lock-files")
    assert "evil.example" in finding["evidence"]


def _asked(project: GitRepository, *words: str) -> tuple[Ended, str]:
    """A review by a model that finds nothing, and all that it was sent."""
    with StandInServer([Json({"findings": []})]) as server:
        flags = ("review", "--reviewer", "api", "--fresh", "--format", "json", *words)
        ended = codeloupe(*flags, cwd=project.path, environment=agents_at(server, "api"))
        return ended, "\n".join(text for request in server.requests for text in request.strings())


@pytest.mark.defect("T15")
def test_text_reaches_the_model_whole_and_readable_or_is_a_gap(repository: GitRepository) -> None:
    old, new = (f"${name}\r\n".encode("utf-16") for name in ("old = 1", "new = 2"))
    repository.commit_files({"old.js": "x" * 9_000 + "deleted_end()\n", "old.ps1": old}, "base")
    files: dict[str, str | bytes] = {
        "a.ps1": "$password = 'caf\u00e9'\r\n".encode("utf-16"),
        "b.sql": b"\xfe\xff" + "select name from users\n".encode("utf-16-be"),
        "c.py": "# coding: shift_jis\nname = '\u65e5\u672c'\n".encode("shift_jis"),
        "d.txt": b"na\xefve text\n",
        "e.sh": b"echo hello\0 world\n",
        "old.ps1": new,
    }
    repository.commit_files(files, branch="change")
    ended, sent = _asked(repository)
    wanted = (
        *("+$password = 'caf\u00e9'", "+select name from users", "+name = '\u65e5\u672c'", "+na<0xEF>ve text"),
        *("+echo hello<U+0000> world", "-$old = 1", "+$new = 2"),
    )
    assert [text for text in wanted if text not in sent] == []
    assert (ended.exit_code, ended.json()["coverage"]["files_reviewed"]) == (0, 6)
    repository.write("old.js", "y\n")
    ended, sent = _asked(repository, "--uncommitted")
    assert "deleted_end" not in sent
    assert (ended.exit_code, ended.json()["complete"]) == (3, False)


@pytest.mark.defect("V15")
def test_rules_go_out_with_their_patterns_and_unused_guidance_is_said(repository: GitRepository) -> None:
    rules = "instructions:\n- paths: ['migrations/**']\n  text: Every table has a key.\n"
    repository.write("codeloupe.yaml", rules)
    repository.write("docs/rules.md", "Be kind.\n")
    (repository.path / "REVIEW.md").symlink_to("docs/rules.md")
    repository.commit("base")
    repository.commit_files(dict.fromkeys(("migrations/1.sql", "app.py"), "select 1\n"), branch="change")
    for words in ((), ("main...HEAD",), ("--untrusted",)):
        ended, sent = _asked(repository, *words)
        assert "- For migrations/** only: Every table has a key." in sent
        assert "Be kind" not in sent
        errors: list[dict[str, Any]] = ended.json()["errors"]
        told = [error["message"] for error in errors if error["kind"] == "guidance_unused"]
        assert told == ["the guidance in REVIEW.md was not used: symbolic links are not followed"]
