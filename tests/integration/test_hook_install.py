"""`codeloupe hook install` and `uninstall` with real git, real commits and pushes, and the real pre-commit program."""

import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.program import PROGRAM, Ended
from tests.program import codeloupe as started_codeloupe
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.cli.run_terminal import Terminal
from tests.warm_program import codeloupe

FAULTY = "import subprocess\n\n\ndef run(name):\n    subprocess.call('ls ' + name, shell=True)\n"
CLEAN = "def total(prices):\n    return sum(prices)\n"
KINDS = ("pre-commit", "pre-push")
OFFLINE = ("--reviewer", "offline")
# A hook that reads what git passes, writes it down, and ends by an `exec`.
EXISTING = '#!/bin/sh -e\nset -u\ncat > seen.txt\necho "$*" > arguments.txt\nexec true\n'

pytestmark = pytest.mark.defect("E20")


def make_project(path: Path) -> GitRepository:
    """Make a repository with one commit, and a remote that has it."""
    repository = GitRepository(path)
    subprocess.run(("git", "init", "--quiet", "--bare", str(path.parent / "remote.git")), check=True)
    repository.commit_files({"README.md": "a shop\n", ".gitignore": "*.txt\n"})
    repository.git("remote", "add", "origin", "../remote.git")
    repository.git("push", "--quiet", "origin", "main")
    return repository


@pytest.fixture
def project(tmp_path: Path) -> GitRepository:
    return make_project(tmp_path / 'a shop\'s "place" $HOME')


def hook(project: GitRepository, *words: str, cwd: Path | None = None) -> Ended:
    return codeloupe("hook", *words, cwd=cwd or project.path)


def install(project: GitRepository, kind: str, *words: str, cwd: Path | None = None) -> Ended:
    ended = hook(project, "install", kind, "--yes", *OFFLINE, *words, cwd=cwd)
    assert ended.exit_code == 0, ended.stderr
    return ended


def run_git(project: GitRepository, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run git as a user whose PATH does not have codeloupe."""
    environment = project._environment() | {"HOME": os.environ["HOME"]}
    streams = {"text": True, "errors": "replace", "capture_output": True}
    return subprocess.run(("git", *words), cwd=cwd or project.path, env=environment, check=False, **streams)  # type: ignore[call-overload,no-any-return]  # as named


def commit(project: GitRepository, code: str, *, cwd: Path | None = None) -> bool:
    """Whether a commit of some code passes its hook."""
    place = cwd or project.path
    (place / "shop.py").write_text(code)
    run_git(project, "add", "shop.py", cwd=cwd)
    return run_git(project, "commit", "--quiet", "--message", "a change", cwd=cwd).returncode == 0


def hook_file(project: GitRepository, kind: str, folder: str = ".git/hooks") -> Path:
    return project.path / folder / kind


def write_hook(project: GitRepository, kind: str, text: str, *, folder: str = ".git/hooks") -> Path:
    return project.write(f"{folder}/{kind}", text, executable=True)


def test_installed_hooks_block_faulty_commits_and_pushes_and_pass_clean_ones(project: GitRepository) -> None:
    for kind in KINDS:
        title, _, *lines = install(project, kind).stdout.splitlines()
        assert title == f"Create {hook_file(project, kind)}:"
        assert hook_file(project, kind).read_text().splitlines() == [line.removeprefix("  ") for line in lines]
        assert stat.S_IMODE(hook_file(project, kind).stat().st_mode) & 0o111
    assert not commit(project, FAULTY)
    assert commit(project, CLEAN)
    assert run_git(project, "push", "origin", "main").returncode == 0
    (project.path / "shop.py").write_text(FAULTY)
    project.git("commit", "--quiet", "--all", "--no-verify", "--message", "faulty")
    blocked = run_git(project, "push", "origin", "main")
    assert (blocked.returncode, "shop.py:5" in blocked.stdout) == (1, True)
    assert "codeloupe: Searching 1 pushed commit for secrets" in blocked.stderr


def test_options_of_the_review_are_quoted_into_the_hook(project: GitRepository) -> None:
    install(project, "pre-commit", "--exclude", "sh*p.py", "--exclude", "it's $(touch /tmp/x) `y`")
    assert commit(project, FAULTY)
    install(project, "pre-commit", "--fail-on", "critical")
    assert commit(project, FAULTY.replace("ls", "du"))


@each(
    ("words", "message"),
    [
        (("--fail-on", "hgih"), "did you mean `high`?"),
        (("--fail-onn", "high"), "did you mean --fail-on?"),
        (("main..HEAD",), "'main..HEAD' is not an option of a review"),
        (("--fail-on", "high", "--uncommitted"), "exclude each other"),
    ],
)
def test_options_that_a_review_refuses_are_not_installed(
    project: GitRepository, words: tuple[str, ...], message: str
) -> None:
    for kind in KINDS:
        ended = hook(project, "install", kind, "--yes", *words)
        assert (ended.exit_code, message in ended.stderr) == (2, True), ended.stderr
        assert not hook_file(project, kind).exists()


def test_a_second_install_changes_nothing_and_says_so(project: GitRepository) -> None:
    for kind in KINDS:
        install(project, kind)
        before = hook_file(project, kind).stat()
        assert "has the hook already; nothing was changed" in install(project, kind).stderr
        after = hook_file(project, kind).stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_without_a_terminal_nothing_is_written_unless_yes_is_given(project: GitRepository) -> None:
    for words, exit_code in (((), 2), (("--dry-run",), 0), (("--dry-run", "--yes"), 0)):
        ended = hook(project, "install", "pre-push", *words)
        assert (ended.exit_code, "hook pre-push" in ended.stdout) == (exit_code, True)
        assert not hook_file(project, "pre-push").exists()
    install(project, "pre-push")
    for words, exit_code in (((), 2), (("--dry-run",), 0)):
        assert hook(project, "uninstall", "pre-push", *words).exit_code == exit_code
        assert hook_file(project, "pre-push").exists()


@each(("typed", "is_written"), [("y\n", True), ("\n", False), ("n\n", False)])
def test_on_a_terminal_the_person_decides(tmp_path: Path, typed: str, is_written: bool) -> None:
    project = make_project(tmp_path / "project")
    terminal = Terminal()
    try:
        streams = {name: terminal.stream.fileno() for name in ("stdin", "stdout", "stderr")}
        words = (str(PROGRAM), "hook", "install", "pre-push")
        with subprocess.Popen(words, cwd=project.path, **streams) as process:  # type: ignore[call-overload]  # as named
            terminal.type(typed)
            assert process.wait() == 0
        assert hook_file(project, "pre-push").exists() == is_written
        assert "Write it? [y/N]" in terminal.text()
    finally:
        terminal.close()


@each(
    "existing",
    [
        EXISTING,
        EXISTING.replace("#!/bin/sh -e", "#!/usr/bin/env -S bash -e"),
        "#!/bin/sh\n",
        "#!/bin/bash",
        "#!/bin/sh\necho 'caf\udce9'\r\n\n\n# end, without a line end",
    ],
)
def test_uninstall_restores_an_existing_hook_byte_for_byte(tmp_path: Path, existing: str) -> None:
    project = make_project(tmp_path / "project")
    for kind in KINDS:
        file = write_hook(project, kind, existing)
        file.chmod(0o750)
        before = file.read_bytes()
        install(project, kind)
        assert not commit(project, FAULTY) or kind == "pre-push"
        install(project, kind, "--fail-on", "medium")
        assert file.read_bytes() != before
        assert hook(project, "uninstall", kind, "--yes").exit_code == 0
        assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (before, 0o750)
        assert "nothing was changed" in hook(project, "uninstall", kind, "--yes").stderr


def test_an_existing_hook_still_gets_arguments_and_refs(project: GitRepository) -> None:
    write_hook(project, "pre-push", EXISTING)
    install(project, "pre-push")
    assert commit(project, FAULTY)
    assert run_git(project, "push", "origin", "main").returncode == 1
    assert not (project.path / "seen.txt").exists()
    project.git("commit", "--quiet", "--amend", "--allow-empty", "--message", "again")
    project.git("reset", "--quiet", "--hard", "origin/main")
    assert commit(project, CLEAN)
    assert run_git(project, "push", "origin", "main").returncode == 0
    (line,) = (project.path / "seen.txt").read_text().splitlines()
    assert line.split(" ")[::2] == ["refs/heads/main", "refs/heads/main"]
    assert (project.path / "arguments.txt").read_text() == "origin ../remote.git\n"
    # Git starts the hook of a push that is up to date as well, without a ref.
    assert run_git(project, "push", "origin", "main").returncode == 0
    assert (project.path / "seen.txt").read_text() == ""


def test_an_existing_hook_that_fails_still_blocks(project: GitRepository) -> None:
    write_hook(project, "pre-commit", "#!/bin/sh\nexit 7\n")
    install(project, "pre-commit")
    assert not commit(project, CLEAN)


def test_a_created_hook_is_deleted_and_lines_added_since_are_kept(project: GitRepository) -> None:
    install(project, "pre-commit")
    hook(project, "uninstall", "pre-commit", "--yes")
    assert not hook_file(project, "pre-commit").exists()
    install(project, "pre-commit")
    file = hook_file(project, "pre-commit")
    file.write_text(f"{file.read_text()}echo mine\n")
    hook(project, "uninstall", "pre-commit", "--yes")
    assert file.read_text() == "#!/bin/sh\necho mine\n"


@each(
    ("old", "new"),
    [("|| exit $?", "|| true"), ("# <<< codeloupe pre-commit <<<\n", ""), ("# >>> codeloupe", "# > codeloupe")],
)
def test_edited_lines_are_neither_removed_nor_replaced(tmp_path: Path, old: str, new: str) -> None:
    project = make_project(tmp_path / "project")
    install(project, "pre-commit")
    file = hook_file(project, "pre-commit")
    file.write_text(file.read_text().replace(old, new))
    before = file.read_bytes()
    for words in (("install", "pre-commit", "--fail-on", "low"), ("uninstall", "pre-commit")):
        ended = hook(project, *words, "--yes")
        assert (ended.exit_code, "were edited" in ended.stderr) == (2, True), ended.stderr
        assert file.read_bytes() == before


@each(
    ("text", "mode", "message"),
    [
        ("#!/usr/bin/env python3\nprint()\n", 0o755, "is not a shell script"),
        ("\x7fELF", 0o755, "is not a shell script"),
        ("", 0o755, "is not a shell script"),
        ("#!/bin/sh\r\necho\r\n", 0o755, "is not a shell script"),
        ("#!/bin/sh\n", 0o644, "is not executable, so git does not run it"),
        ("#!/bin/sh\nexec codeloupe hook pre-push\n", 0o755, "mentions `codeloupe hook pre-push` already"),
    ],
)
def test_a_hook_that_cannot_take_the_lines_is_refused(tmp_path: Path, text: str, mode: int, message: str) -> None:
    project = make_project(tmp_path / "project")
    file = write_hook(project, "pre-push", text)
    file.chmod(mode)
    ended = hook(project, "install", "pre-push", "--yes")
    assert (ended.exit_code, message in ended.stderr) == (2, True), ended.stderr
    assert file.read_bytes() == text.encode()


def test_a_link_is_not_written_through(project: GitRepository) -> None:
    target = project.write("tools/check.sh", "#!/bin/sh\n", executable=True)
    link = hook_file(project, "pre-push")
    link.parent.mkdir(exist_ok=True)
    for place in (target, project.path / "nowhere"):
        link.symlink_to(place)
        ended = hook(project, "install", "pre-push", "--yes")
        assert (ended.exit_code, str(link) in ended.stderr) == (2, True), ended.stderr
        link.unlink()
    assert target.read_text() == "#!/bin/sh\n"
    shutil.rmtree(link.parent)
    link.parent.symlink_to(project.path / "tools")
    assert f"{link.parent} is a link to {project.path / 'tools'}" in install(project, "pre-push").stdout


def test_a_hooks_path_in_the_work_tree_is_shared_and_named_as_such(project: GitRepository) -> None:
    project.git("config", "core.hooksPath", "tools/hooks")
    inner = project.path / "inner"
    inner.mkdir()
    shown = install(project, "pre-commit", cwd=inner).stdout
    assert "The folder is in the working tree: the hook is a file to commit" in shown
    text = hook_file(project, "pre-commit", "tools/hooks").read_text()
    assert str(PROGRAM) not in text
    assert not commit(project, CLEAN), "codeloupe is not on the PATH of this test's git"
    hook(project, "uninstall", "pre-commit", "--yes", cwd=inner)
    assert not hook_file(project, "pre-commit", "tools/hooks").exists()


def test_a_global_hooks_path_is_used_and_named_as_such(
    project: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = tmp_path / "gitconfig"
    configuration.write_text(f"[core]\n\thooksPath = {tmp_path}/all hooks\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    assert "this affects all your repositories" in install(project, "pre-commit").stdout
    assert (tmp_path / "all hooks" / "pre-commit").exists()
    project.git("config", "core.hooksPath", str(tmp_path / "own hooks"))
    assert "all your repositories" not in install(project, "pre-commit").stdout
    assert (tmp_path / "own hooks" / "pre-commit").exists()


@each("value", ["/dev/null", ""])
def test_switched_off_hooks_are_not_installed(tmp_path: Path, value: str) -> None:
    project = make_project(tmp_path / "project")
    project.git("config", "core.hooksPath", value)
    ended = hook(project, "install", "pre-push", "--yes")
    assert (ended.exit_code, "git runs no hooks here" in ended.stderr) == (2, True), ended.stderr


def test_linked_worktrees_share_a_hook_and_can_have_their_own(project: GitRepository, tmp_path: Path) -> None:
    linked = tmp_path / "linked tree"
    project.git("worktree", "add", "--quiet", "-b", "side", str(linked))
    assert "All worktrees of this repository share the hook" in install(project, "pre-commit", cwd=linked).stdout
    assert hook_file(project, "pre-commit").exists()
    assert not commit(project, FAULTY, cwd=linked)
    assert commit(project, CLEAN, cwd=linked)
    hook(project, "uninstall", "pre-commit", "--yes")
    project.git("config", "extensions.worktreeConfig", "true")
    run_git(project, "config", "--worktree", "core.hooksPath", str(tmp_path / "own"), cwd=linked)
    install(project, "pre-commit", cwd=linked)
    assert not commit(project, FAULTY, cwd=linked)
    assert commit(project, FAULTY)


def test_a_submodule_has_a_hook_of_its_own(project: GitRepository, tmp_path: Path) -> None:
    library = GitRepository(tmp_path / "library")
    library.commit_files({"README.md": "a library\n"})
    project.git("submodule", "--quiet", "add", str(library.path), "library")
    install(project, "pre-commit", cwd=project.path / "library")
    assert hook_file(project, "pre-commit", ".git/modules/library/hooks").exists()
    assert not commit(project, FAULTY, cwd=project.path / "library")


def test_a_hook_without_its_program_blocks_and_says_so(project: GitRepository, tmp_path: Path) -> None:
    place = tmp_path / "gone" / "codeloupe"
    place.parent.mkdir()
    place.write_text(f'#!/bin/sh\nexec "{PROGRAM}" "$@"\n')
    place.chmod(0o755)
    file = hook_file(project, "pre-commit")
    program = shlex.quote(str(PROGRAM))
    ended = started_codeloupe("hook", "install", "pre-commit", "--yes", *OFFLINE, cwd=project.path)
    assert (ended.exit_code, f"codeloupe={program}\n" in file.read_text()) == (0, True)
    file.write_text(file.read_text().replace(f"codeloupe={program}", f"codeloupe={tmp_path}/nowhere"))
    (project.path / "shop.py").write_text(CLEAN)
    project.git("add", "shop.py")
    blocked = run_git(project, "commit", "--message", "a change")
    assert (blocked.returncode, "nothing was reviewed" in blocked.stderr) == (1, True), blocked.stderr
    environment = project._environment() | {"HOME": os.environ["HOME"]}
    environment["PATH"] = f"{place.parent}:{environment.get('PATH', os.environ['PATH'])}"
    words = ("git", "commit", "--quiet", "--message", "a change")
    assert subprocess.run(words, cwd=project.path, env=environment, check=False).returncode == 0


def test_pre_commit_gets_lines_for_its_configuration_that_work(project: GitRepository) -> None:
    configuration = project.write(".pre-commit-config.yaml", "repos:\n")
    for kind in KINDS:
        ended = hook(project, "install", kind, "--yes", *OFFLINE, "--exclude", "it's *.md")
        assert (ended.exit_code, "pre-commit writes the git hooks here" in ended.stderr) == (2, True)
        assert f"pre-commit install --hook-type {kind}" in ended.stderr
        assert not hook_file(project, kind).exists()
        configuration.write_text(configuration.read_text() + ended.stdout)
    places = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
    environment = {**os.environ, **project._environment(), **places}

    def run(*words: str) -> int:
        return subprocess.run(words, cwd=project.path, env=environment, check=False, capture_output=True).returncode

    pre_commit = str(PROGRAM.with_name("pre-commit"))
    assert run(pre_commit, "install", "--hook-type", "pre-commit", "--hook-type", "pre-push") == 0
    project.git("add", ".pre-commit-config.yaml")
    assert run("git", "commit", "--quiet", "--message", "hooks") == 0
    project.write("shop.py", FAULTY)
    project.git("add", "shop.py")
    assert run("git", "commit", "--quiet", "--message", "faulty") == 1
    project.git("commit", "--quiet", "--no-verify", "--message", "faulty")
    assert run("git", "push", "origin", "main") == 1
    # Without its configuration, the hook that pre-commit wrote is still its own.
    configuration.unlink()
    ended = hook(project, "install", "pre-push", "--yes")
    assert (ended.exit_code, "pre-commit writes the git hooks here" in ended.stderr) == (2, True)


def test_uninstall_finds_a_hook_that_pre_commit_renamed(project: GitRepository) -> None:
    install(project, "pre-push")
    project.write(".pre-commit-config.yaml", "repos: []\n")
    pre_commit = str(PROGRAM.with_name("pre-commit"))
    environment = {**os.environ, **project._environment(), "HOME": os.environ["HOME"]}
    words = (pre_commit, "install", "--hook-type", "pre-push")
    subprocess.run(words, cwd=project.path, env=environment, check=True, capture_output=True)
    assert hook_file(project, "pre-push.legacy").exists()
    assert hook(project, "uninstall", "pre-push", "--yes").exit_code == 0
    assert not hook_file(project, "pre-push.legacy").exists()
    assert hook_file(project, "pre-push").exists()


def test_folders_of_other_hook_managers_are_not_written_to(project: GitRepository) -> None:
    project.write(".husky/_/.gitignore", "*\n")
    project.git("config", "core.hooksPath", ".husky/_")
    husky = hook(project, "install", "pre-push", "--yes", "--fail-on", "low")
    assert (husky.exit_code, ".husky/pre-push" in husky.stderr) == (2, True), husky.stderr
    assert husky.stdout == 'codeloupe hook pre-push "$@" --fail-on low || exit $?\n'
    project.git("config", "--unset", "core.hooksPath")
    project.write("lefthook.yml", "pre-push: {}\n")
    lefthook = hook(project, "install", "pre-push", "--yes", "--fail-on", "low")
    assert (lefthook.exit_code, "lefthook writes the git hooks here" in lefthook.stderr) == (2, True)
    assert 'run: "codeloupe hook pre-push {1} {2} --fail-on low"' in lefthook.stdout
    assert not hook_file(project, "pre-push").exists()


@each(
    ("options", "message"),
    [
        (("--preview",), "--preview reviews nothing, so the hook would always pass"),
        (("--", "--preview"), "not paths"),
        (("--reviewer", "offline", "src/"), "not paths"),
        (("--experts", "nobody"), "unknown expert"),
        (("--fail-on", "hgih"), "--fail-on: expected"),
    ],
)
def test_options_that_break_the_hook_are_refused_at_once(
    project: GitRepository, options: tuple[str, ...], message: str
) -> None:
    refused = codeloupe("hook", "install", "pre-push", "--yes", *options, cwd=project.path)
    assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    assert not hook_file(project, "pre-push").exists()


def test_a_dry_run_by_its_short_name_writes_nothing(project: GitRepository) -> None:
    assert codeloupe("hook", "install", "pre-commit", "--dry", "--yes", cwd=project.path).exit_code == 0
    assert not hook_file(project, "pre-commit").exists()


def test_variables_of_an_outer_hook_do_not_hide_a_commit_or_a_push(project: GitRepository, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    subprocess.run(("git", "init", "--quiet", "--bare", str(remote)), check=True)
    for kind in ("pre-commit", "pre-push"):
        install(project, kind)
    outer = {"PRE_COMMIT": "1", "PRE_COMMIT_FROM_REF": "HEAD", "PRE_COMMIT_TO_REF": "HEAD"}
    environment = project._environment() | {"HOME": os.environ["HOME"]} | outer
    (project.path / "shop.py").write_text(FAULTY)
    project.git("add", "shop.py")
    for words in (("commit", "--message", "x"), ("push", str(remote), "HEAD:refs/heads/main")):
        ended = subprocess.run(("git", *words), cwd=project.path, env=environment, capture_output=True, check=False)
        assert ended.returncode == 1, ended.stderr
        project.git("commit", "--quiet", "--no-verify", "--allow-empty", "--message", "x")


def test_one_report_is_not_written_for_several_refs(project: GitRepository, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    subprocess.run(("git", "init", "--quiet", "--bare", str(remote)), check=True)
    hook(project, "install", "pre-push", "--yes", *OFFLINE, "--format", "json", "-o", "report.json")
    project.git("branch", "before")
    project.commit_files({"next.py": "x = 1\n"})
    pushed = run_git(project, "push", str(remote), "before:refs/heads/one", "HEAD:refs/heads/two")
    assert (pushed.returncode, "this push has 2 refs to review" in pushed.stderr) == (1, True), pushed.stderr
