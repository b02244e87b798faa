"""One finding over several reviews, through the front door: who found it, what covers it, and when it is gone."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.agent_programs import agents_at
from tests.program import Ended
from tests.proofs import asks_for_proofs, proofs
from tests.repository import GitRepository
from tests.warm_program import codeloupe

FILE = "jobs/backup.py"
CALL = '    subprocess.run("tar cf " + target + " " + folders[number], shell=True)'
CODE = f"import subprocess\n\n\ndef pack(folders, number, target):\n{CALL}\n    return target\n"
INDEX = ("Folder index may be out of range", "number may be the length of folders.")
SHELL = ("Command reaches the shell", "The folder's name is run by a shell as it is.")
# In words that are similar to those of the analyser's rule S602.
OF_S602 = ("A shell interprets the command", "The folder's name is user input and can inject further commands.")


class Life:
    """A project, and a model that says what it is told to say; it refutes claims unless `proof` is another."""

    def __init__(self, project: GitRepository) -> None:
        self.project = project
        self.findings: list[dict[str, Any]] = []
        self.proof = "refuted"
        self.server = StandInServer(reply=self.answer)

    def answer(self, request: RecordedRequest) -> Reply:
        if asks_for_proofs(request):
            return proofs(request, self.proof, "The callers take care of it.")
        return Json({"findings": self.findings})

    def says(
        self,
        *claims: tuple[tuple[str, str], str],
        quote: str = CALL,
        category: str = "correctness",
        lines: Sequence[int] = (5, 5),
    ) -> None:
        """From now on the model reports these titles and bodies with their severities."""
        self.findings = [
            {"file": FILE, "line": line, "quote": quote, "title": title, "body": body, "category": category}
            | {"severity": severity}
            for ((title, body), severity), line in zip(claims, lines, strict=False)
        ]

    def write(self, code: str) -> None:
        self.project.write(FILE, code)

    def run(self, *words: str, home: Path | None = None, agent: str = "") -> Ended:
        place = {} if home is None else {"CODELOUPE_HOME": str(home)}
        variables = agents_at(self.server, agent) if agent else {}
        return codeloupe(*words, cwd=self.project.path, environment={**place, **variables})

    def offline(self, *words: str, home: Path | None = None) -> Ended:
        return self.run("review", "--reviewer", "offline", "--format", "json", *words, home=home)

    def asked(self, *words: str, home: Path | None = None) -> Ended:
        return self.verified("--no-verify", *words, home=home)

    def verified(self, *words: str, home: Path | None = None) -> Ended:
        return self.run("review", "--reviewer", "api", "--format", "json", *words, home=home, agent="api")

    def by_claude(self, *words: str) -> Ended:
        return self.run("review", "--reviewer", "claude_cli", "--format", "json", *words, agent="claude_cli")

    def dismiss(self, reason: str, *findings: Mapping[str, Any]) -> None:
        for one in findings:
            assert self.run("history", "dismiss", one["fingerprint"], "--reason", reason).exit_code == 0


@pytest.fixture
def life(repository: GitRepository) -> Iterator[Life]:
    repository.commit_files({"README.md": "jobs\n"})
    repository.commit_files({FILE: CODE}, branch="nightly")
    life = Life(repository)
    with life.server:
        yield life


def shown(ended: Ended) -> list[tuple[str, str, str]]:
    """The title, status and severity of each finding that counts, or was fixed."""
    found = [one for one in ended.json()["findings"] if one["suppression"] is None]
    return [(one["title"], one["status"], one["severity"]) for one in found]


def only(ended: Ended) -> Mapping[str, Any]:
    [found] = ended.json()["findings"]
    return dict(found)


@pytest.mark.defect("T5")
def test_a_model_neither_removes_nor_refutes_what_an_analyser_found(life: Life) -> None:
    first = life.offline()
    rules = {one["rule"]: one["fingerprint"] for one in first.json()["findings"]}
    assert (first.exit_code, "S602" in rules) == (1, True)
    silent = life.by_claude()
    assert silent.exit_code == 1
    assert {one["rule"]: (one["status"], one["source"]) for one in silent.json()["findings"]} == dict.fromkeys(
        rules, ("open", "analyser")
    )
    # It calls the same thing harmless, and refutes whatever it is asked about.
    life.says((OF_S602, "low"), category="security")
    repeated = life.by_claude("--fresh")
    assert repeated.exit_code == 1
    again = life.offline()
    assert again.exit_code == 1
    assert {one["rule"]: one["fingerprint"] for one in again.json()["findings"]} == rules


@pytest.mark.defect("T6")
def test_an_agents_report_of_what_an_analyser_found_before_is_the_same_finding(life: Life) -> None:
    before = {one["rule"]: one for one in life.offline().json()["findings"]}
    life.says((OF_S602, "low"), category="security")
    after = life.asked().json()["findings"]
    assert {one["rule"] for one in after} == set(before)
    joined = next(one for one in after if one["rule"] == "S602")
    assert (joined["severity"], joined["source"], joined["status"]) == (before["S602"]["severity"], "analyser", "open")
    assert joined["fingerprint"] == before["S602"]["fingerprint"]
    assert {"ruff", "api"} <= {name.split("/")[0].split("#")[0] for name in joined["seen_by"]}


@pytest.mark.defect("T7")
@pytest.mark.parametrize("keeps", ["history", "no history"])
def test_an_entry_of_the_baseline_covers_its_defect_alone(life: Life, tmp_path: Path, keeps: str) -> None:
    homes = [tmp_path / f"home {0 if keeps == 'history' else number}" for number in range(9)]
    life.says((INDEX, "low"))
    known = only(life.asked(home=homes[0]))
    added = life.run("baseline", "add", known["fingerprint"], "--reason", "checked before", home=homes[0])
    assert added.exit_code == 0, added.stderr

    def review(number: int) -> Ended:
        return life.asked("--fresh", home=homes[number])

    assert shown(review(1)) == []
    life.says((("IndexError when number is the length of folders", "Check it first."), "low"))
    assert shown(review(2)) == []
    life.says((SHELL, "critical"))
    other = review(3)
    assert (other.exit_code, (SHELL[0], "new", "critical") in shown(other)) == (1, True)
    life.says((INDEX, "low"), (SHELL, "critical"))
    both = review(4)
    assert (both.exit_code, [one[0] for one in shown(both)]) == (1, [SHELL[0]])
    # The same, but graver than what was accepted.
    life.says((INDEX, "critical"))
    assert review(5).exit_code == 1


@pytest.mark.defect("T7")
def test_a_dismissal_covers_its_defect_alone_and_holds_in_other_words_and_on_other_branches(life: Life) -> None:
    life.says((INDEX, "medium"))
    known = only(life.asked("--fail-on", "medium"))
    life.dismiss("checked", known)
    life.says((("IndexError when number is the length of folders", "Check it first."), "medium"))
    assert only(life.asked("--fresh"))["status"] == "dismissed"
    life.project.git("checkout", "--quiet", "-b", "elsewhere", "main")
    life.project.commit_files({"other.md": "notes\n", FILE: f'"""Backups."""\n\n{CODE}'})
    assert only(life.asked("--fresh"))["status"] == "dismissed"
    life.says((SHELL, "critical"))
    assert life.asked("--fresh").exit_code == 1
    life.says((INDEX, "critical"))
    assert life.asked("--fresh").exit_code == 1


@pytest.mark.defect("T14")
def test_a_finding_that_is_not_repeated_stays_open_until_its_code_changes(life: Life) -> None:
    life.says((INDEX, "high"))
    assert life.asked().exit_code == 1
    life.says()
    silent = life.asked("--fresh")
    assert (silent.exit_code, shown(silent)) == (1, [(INDEX[0], "open", "high")])
    life.write(CODE.replace("folders[number]", "folders[number % len(folders)]"))
    assert shown(life.asked()) == [(INDEX[0], "fixed", "high")]


TWICE = "import subprocess\n\n\ndef both(word):\n{}    print(word)\n{}    return word\n"
LINE = "    subprocess.run(word, shell=True)\n"


@pytest.mark.defect("T19")
@pytest.mark.parametrize("left", ["first", "second"])
def test_of_a_line_that_is_there_twice_one_can_go(life: Life, left: str) -> None:
    life.write(TWICE.format(LINE, LINE))
    life.says((SHELL, "high"), (SHELL, "high"), quote=LINE.rstrip(), lines=(5, 7))
    first = life.asked().json()["findings"]
    assert [one["line_start"] for one in first] == [5, 7]
    kept, gone = first if left == "first" else first[::-1]
    life.dismiss("our own word", kept)
    life.write(TWICE.format(*((LINE, "") if left == "first" else ("", LINE))))
    life.says((SHELL, "high"), quote=LINE.rstrip())
    states = {one["fingerprint"]: one["status"] for one in life.asked().json()["findings"]}
    assert states == {kept["fingerprint"]: "dismissed", gone["fingerprint"]: "fixed"}
    for _ in range(2):
        again = life.asked("--fresh")
        assert {one["fingerprint"]: one["status"] for one in again.json()["findings"]} == {
            kept["fingerprint"]: "dismissed"
        }
        assert again.exit_code == 0


@pytest.mark.defect("T19")
def test_a_dismissal_stays_in_its_function_when_functions_change_places(life: Life) -> None:
    pack, send = (f"def {name}(target):\n    run(target)\n    return {name}_all\n" for name in ("pack", "send"))
    life.write(f"{pack}\n\n{send}")
    life.says((SHELL, "high"), (SHELL, "high"), quote="    run(target)", lines=(2, 7))
    in_pack, in_send = life.asked().json()["findings"]
    life.dismiss("our own word", in_pack)
    life.write(f"{send}\n\n{pack}")
    after = life.asked()
    assert {one["line_start"]: (one["fingerprint"], one["status"]) for one in after.json()["findings"]} == {
        2: (in_send["fingerprint"], "open"),
        7: (in_pack["fingerprint"], "dismissed"),
    }
    assert after.exit_code == 1


UNTIDY = """\
import hashlib, subprocess


def sign(name, words, secret='none given', *, limit=None):
    digest = hashlib.md5(('%s:%s' % (name, secret)).encode('utf-8')).hexdigest()
    subprocess.run('sign --name ' + name + ' --digest ' + digest + ' --secret ' + secret, shell=True, check=False)
    return [eval(word, {'name': name, 'digest': digest}) for word in words if word not in ('', 'exit', "it's")]


def load(path):
    return subprocess.run(['cat', path, '--show-all', '--number', '--squeeze'], check=False, stdout=-1, shell=True)
"""


def formatted(code: str) -> str:
    command = [str(Path(sys.executable).with_name("ruff")), "format", "--line-length", "60", "--isolated", "-"]
    return subprocess.run(command, input=code.encode(), capture_output=True, check=True).stdout.decode()


@pytest.mark.defect("V5")
def test_a_formatter_a_comment_and_a_move_leave_a_finding_what_it_is(life: Life, tmp_path: Path) -> None:
    life.write(UNTIDY)
    first = life.offline("--min-severity", "low").json()["findings"]
    assert len(first) >= 5
    assert life.run("baseline", "add", "--all", "--reason", "known").exit_code == 0
    tidy = formatted(UNTIDY)
    assert tidy != UNTIDY
    forms = {
        "quotes": UNTIDY.replace("'", '"').replace('"it"s"', '"it\'s"'),
        "comments": "\n".join(f"{line}  # seen" if line.endswith((")", "]")) else line for line in UNTIDY.split("\n")),
        "formatted": tidy,
        "formatted and moved down": f'"""Signs."""\n\nLIMIT = 3\n\n\n{tidy}',
    }
    names = {one["rule"]: one["fingerprint"] for one in first}
    for number, (what, code) in enumerate(forms.items()):
        life.write(code)
        # Without any history there is only the file beside the code.
        anew = life.offline("--min-severity", "low", home=tmp_path / f"home {number}").json()["findings"]
        open_now = [(one["rule"], one["title"]) for one in anew if one["suppression"] is None]
        assert open_now == [], what
        rounds = life.offline("--min-severity", "low").json()["findings"]
        kept = {one["rule"]: one["fingerprint"] for one in rounds}
        assert {rule: kept[rule] for rule in names} == names, what
        assert {one["status"] for one in rounds} == {"open"}, what


@pytest.mark.defect("V5")
def test_an_agents_finding_in_reformatted_code_is_still_there_when_nobody_repeats_it(life: Life) -> None:
    life.write(UNTIDY)
    quote = next(line for line in UNTIDY.split("\n") if "'sign --name '" in line)
    life.says((SHELL, "high"), quote=quote)
    known = only(life.asked())
    life.says()
    life.write(formatted(UNTIDY))
    after = only(life.asked())
    assert (after["fingerprint"], after["status"]) == (known["fingerprint"], "open")
    lines = formatted(UNTIDY).split("\n")
    assert "sign --name " in "\n".join(lines[after["line_start"] - 1 : after["line_end"]])


@pytest.mark.defect("V8")
def test_a_comment_that_asks_to_ignore_a_finding_does_not_rename_it(life: Life, tmp_path: Path) -> None:
    before = {one["rule"]: one["fingerprint"] for one in life.offline().json()["findings"]}
    life.write(CODE.replace(CALL, f"{CALL}  # codeloupe: ignore[S602] the names are ours"))
    after = life.offline(home=tmp_path / "another home").json()["findings"]
    assert {one["rule"]: one["fingerprint"] for one in after if one["rule"] in before} == before
    assert next(one for one in after if one["rule"] == "S602")["suppression"]["kind"] == "inline"


@pytest.mark.defect("V10")
def test_a_clock_that_was_ahead_once_does_not_make_a_review_the_last_for_ever(life: Life, tmp_path: Path) -> None:
    home = tmp_path / "home"
    life.asked(home=home)
    [file] = [path for path in home.rglob("*") if path.is_file() and path.read_bytes().startswith(b"SQLite format 3")]
    with sqlite3.connect(file) as database:
        database.execute("UPDATE reviews SET saved_at = saved_at + 9e8")
    database.close()
    life.says((INDEX, "high"))
    life.write(CODE + "\n")
    second = life.asked("--fresh", home=home)
    assert only(second)["status"] == "new"
    third = life.asked("--fresh", home=home)
    assert only(third)["status"] == "open"
    listed = json.loads(life.run("history", "list", "--json", home=home).stdout)
    assert [entry["id"] for entry in listed["entries"]][:2] == [third.json()["review_id"], second.json()["review_id"]]


@pytest.mark.defect("T5")
def test_what_an_analyser_found_stays_open_where_its_quote_cannot_be_searched_for(life: Life) -> None:
    keys = 'KEY = "AKIA' + "QYLPMN5HFIQR7" + 'XYA"\nTOKEN = "gh' + "p_" + "x1Y2z3A4b5" * 4 + '"\n'
    life.project.commit_files({"deploy.py": keys, "broken.py": "x = 1\ny = (\n\n\n"})
    first = life.offline()
    found = {one["rule"] for one in first.json()["findings"]}
    assert {"aws-access-key", "github-token"} <= found
    silent = life.asked()
    assert silent.exit_code == 1
    assert {one["rule"] for one in silent.json()["findings"] if one["status"] == "open"} == found


@pytest.mark.defect("T19")
def test_a_dismissed_line_that_is_there_three_times_now_is_reviewed(life: Life) -> None:
    line = "    total = total / len(items)\n"
    life.project.commit_files({"mean.py": f"def mean(total, items):\n{line}    print(total)\n"})
    life.says((("Division by zero", "It fails for no items."), "high"), quote=line.rstrip())
    life.findings = [one | {"file": "mean.py", "line": 2} for one in life.findings]
    first = life.asked()
    assert shown(first) == [("Division by zero", "new", "high")]
    life.dismiss("never empty", *first.json()["findings"])
    life.project.commit_files({"mean.py": "def mean(total, items):\n" + f"{line}    print(total)\n" * 3})
    assert life.asked("--fresh").exit_code in (0, 1)


@pytest.mark.defect("T7")
def test_a_dismissal_holds_for_one_commit_a_range_and_a_diff_too(life: Life) -> None:
    words: list[tuple[str, ...]] = [("--commit", "HEAD"), ("HEAD~1..HEAD",), ("--diff-file", "change.diff")]
    change = life.project.git("diff", "HEAD~1..HEAD")
    first = life.offline("--commit", "HEAD")
    assert first.exit_code == 1
    life.dismiss("only our own folders", *first.json()["findings"])
    life.project.write("change.diff", change)
    assert {scope: life.offline(*scope).exit_code for scope in words} == dict.fromkeys(words, 0)


@pytest.mark.defect("T7")
def test_what_is_accepted_now_holds_for_one_commit_a_range_and_the_index_at_once(life: Life) -> None:
    life.project.git("reset", "--quiet", "--soft", "HEAD~1")
    staged = life.run("review", "--reviewer", "offline", "--staged")
    assert (staged.exit_code, "codeloupe baseline add " in staged.stdout) == (1, True)
    added = life.run("baseline", "add", "--all", "--reason", "only our own folders")
    assert added.exit_code == 0, added.stderr
    assert life.offline("--staged").exit_code == 0
    life.project.git("commit", "--quiet", "--message", "pack")
    for scope in (("--commit", "HEAD"), ("HEAD~1..HEAD",), ("main...HEAD",)):
        assert life.offline(*scope).exit_code == 0, scope
    # The file is not in the base, and whoever wrote the change could have written it.
    distrusted = life.run("review", "--reviewer", "offline", "--commit", "HEAD", "--untrusted")
    assert (distrusted.exit_code, "baseline add" in distrusted.stdout) == (1, False)


@pytest.mark.defect("T4")
@pytest.mark.defect("T14")
def test_silence_does_not_end_a_claim_without_a_place_until_its_file_changes(life: Life) -> None:
    life.says((SHELL, "critical"), quote="    os.system(user_input)")
    assert life.asked().exit_code == 1
    life.says()
    silent = life.asked("--fresh")
    assert (silent.exit_code, silent.json()["verdict"], only(silent)["status"]) == (1, "FAIL", "open")
    life.write(CODE.replace("shell=True", "check=True"))
    assert life.asked().exit_code == 0


@pytest.mark.defect("T4")
@pytest.mark.defect("T14")
def test_a_confirmed_claim_without_a_place_is_pending_until_it_is_refuted(life: Life) -> None:
    life.proof = "confirmed"
    life.says((SHELL, "critical"), quote="    os.system(user_input)")
    assert life.verified().exit_code == 3
    life.says()
    silent = life.verified("--fresh")
    assert (silent.exit_code, silent.json()["verdict"], only(silent)["status"]) == (3, "INCOMPLETE", "open")
    life.proof = "refuted"
    life.write(CODE.replace("shell=True", "check=True"))
    assert life.verified().exit_code == 0
