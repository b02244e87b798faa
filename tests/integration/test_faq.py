"""The FAQ names messages as the program prints them, and every message on the page can be provoked."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from codeloupe.testing import Cut, StandInServer, Status
from tests.agent_programs import agents_at
from tests.documentation_pages import DOCS, PROJECT
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

_FAULTY = "import os\n\n\ndef show(name):\n    os.system('ls ' + name)\n"


def _repository(tmp_path: Path) -> GitRepository:
    repository = GitRepository(tmp_path / "repository")
    repository.commit_files({"a.py": "x = 1\n"})
    return repository


def _changed(tmp_path: Path) -> GitRepository:
    repository = _repository(tmp_path)
    repository.write("a.py", _FAULTY)
    return repository


def _outside_a_repository(tmp_path: Path) -> Ended:
    return codeloupe("review", cwd=tmp_path)


def _without_commits(tmp_path: Path) -> Ended:
    return codeloupe("review", cwd=GitRepository(tmp_path / "repository").path)


def _without_changes(tmp_path: Path) -> Ended:
    return codeloupe("review", cwd=_repository(tmp_path).path)


def _unknown_revision(tmp_path: Path) -> Ended:
    return codeloupe("review", "mian...HEAD", cwd=_repository(tmp_path).path)


def _shallow_clone(tmp_path: Path) -> Ended:
    repository = _repository(tmp_path)
    repository.commit_files({"a.py": "x = 2\n"})
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth=1", repository.path.as_uri(), str(clone))
    return codeloupe("review", "HEAD~1...HEAD", cwd=clone)


def _unknown_word(tmp_path: Path) -> Ended:
    return codeloupe("review", "nowhere.py", cwd=_repository(tmp_path).path)


def _unknown_key(tmp_path: Path) -> Ended:
    repository = _changed(tmp_path)
    repository.write("codeloupe.yaml", "fial_on: high\n")
    return codeloupe("review", cwd=repository.path)


def _not_logged_in(tmp_path: Path) -> Ended:
    return codeloupe("review", "--reviewer", "claude_cli", cwd=_changed(tmp_path).path)


def _not_installed(tmp_path: Path) -> Ended:
    return codeloupe("review", "--reviewer", "codex", cwd=_changed(tmp_path).path)


def _no_model(tmp_path: Path) -> Ended:
    return codeloupe("review", "--reviewer", "api", cwd=_changed(tmp_path).path)


def _no_budget(tmp_path: Path) -> Ended:
    with StandInServer() as server:
        variables = agents_at(server, "codex")
        words = ("review", "--reviewer", "codex", "--max-tokens", "1")
        return codeloupe(*words, cwd=_changed(tmp_path).path, environment=variables)


def _overloaded(tmp_path: Path) -> Ended:
    with StandInServer([Status(529)]) as server:
        variables = agents_at(server, "codex")
        words = ("review", "--reviewer", "codex", "--timeout", "20")
        return codeloupe(*words, cwd=_changed(tmp_path).path, environment=variables)


def _no_service(tmp_path: Path) -> Ended:
    with StandInServer([Cut()]) as server:
        variables = agents_at(server, "codex")
        words = ("review", "--reviewer", "codex", "--timeout", "20")
        return codeloupe(*words, cwd=_changed(tmp_path).path, environment=variables)


def _no_review_command(tmp_path: Path) -> Ended:
    return codeloupe("review", "--reviewer", "command", cwd=_changed(tmp_path).path)


def _no_remote(tmp_path: Path) -> Ended:
    return codeloupe("review", "--pr", "7", cwd=_repository(tmp_path).path)


def _no_folder(tmp_path: Path) -> Ended:
    return codeloupe("review", "-o", str(tmp_path / "nowhere" / "review.txt"), cwd=_changed(tmp_path).path)


def _no_database(tmp_path: Path) -> Ended:
    return codeloupe("worker", cwd=tmp_path)


SCENARIOS: Mapping[str, Callable[[Path], Ended]] = {
    "is not inside a git repository": _outside_a_repository,
    "has no commits yet": _without_commits,
    "No changes to review": _without_changes,
    "the revision 'mian' is unknown": _unknown_revision,
    "this is a shallow clone": _shallow_clone,
    "is neither a file in this repository nor a revision": _unknown_word,
    "unknown key": _unknown_key,
    "not logged in": _not_logged_in,
    "there is no codex program on the PATH": _not_installed,
    "does not know which model to ask": _no_model,
    "budget exhausted": _no_budget,
    "overloaded": _overloaded,
    "got no usable reply from the service": _no_service,
    "review_command is not set": _no_review_command,
    "has no remote named `upstream` or `origin`": _no_remote,
    "cannot write the result to": _no_folder,
    "jobs need a shared database": _no_database,
}
# Messages of the shell and of the set-up, which no call of the program prints.
ELSEWHERE = {
    "codeloupe: command not found": "the shell prints it",
    "codeloupe needs Python 3.11 or newer": "the Makefile prints it",
}


def _quoted_headings() -> list[str]:
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    return re.findall(r'^### "(.+)"$', text, re.MULTILINE)


def test_every_message_on_the_page_has_a_scenario() -> None:
    assert sorted(_quoted_headings()) == sorted({*SCENARIOS, *ELSEWHERE})
    assert "codeloupe needs Python 3.11 or newer" in (PROJECT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("message", SCENARIOS)
def test_the_program_prints_the_message(message: str, tmp_path: Path) -> None:
    ended = SCENARIOS[message](tmp_path)
    printed = " ".join(f"{ended.stdout}\n{ended.stderr}".split())
    assert message in printed
