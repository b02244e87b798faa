"""What claims count for, alone, beside an analyser's finding, and in the next rounds of a review."""

from pathlib import Path
from typing import Any

import pytest

from codeloupe import Finding, Severity, errors
from codeloupe.model.agent import AgentLimits
from codeloupe.testing import AgentStep
from tests.repository import GitRepository
from tests.trusted_verdict_material import (
    CALL,
    CODE,
    FILE,
    INCOMPLETE,
    Model,
    Rounds,
    claim,
    make_pair,
    only,
    outcome,
)
from tests.warm_program import codeloupe

BOTH = ("agent", "offline")
WAIT = "    time.sleep(seconds)"
SLEEP = f"import time\n\n\nasync def wait(seconds):\n{WAIT}\n    return seconds\n"
RUN = '    subprocess.run("tar cf " + target + " " + folder, shell=True, check=True)'
SHELL = f"import subprocess\n\n\ndef pack(target, folder):\n{RUN}\n    return target\n"
BESIDE = ("return target", "return str(target)")
NOT_VERIFIED = errors.Refused("the model refused to answer", agent="scripted")


@pytest.fixture
def start(repository: GitRepository, tmp_path: Path) -> Any:
    """Begin the rounds of a branch that adds one file with this code."""
    return lambda code: Rounds(repository, tmp_path / "state", {FILE: code})


def repeated(finding: Finding, severity: str, quote: str) -> dict[str, Any]:
    """Return an agent's claim with the place and the words of an analyser's finding."""
    [words] = getattr(finding, "claims", [finding])
    return claim(severity, line=finding.line_start, quote=quote, title=words.title, body=words.body)


def analysed(rounds: Rounds) -> Finding:
    """Return the one finding of the analysers, from a review that no later round knows."""
    return only(rounds.review(keep_history=False))


@pytest.mark.defect("F3")
def test_silence_of_an_agent_does_not_fix_an_analysers_finding(start: Any) -> None:
    rounds = start(SHELL)
    model = Model(repeated(analysed(rounds), "high", RUN))
    assert only(rounds.review(model, lanes=BOTH)).severity is Severity.HIGH
    rounds.commit({FILE: SHELL.replace(*BESIDE)})
    model.claims = []
    model.proof = "refuted"
    silent = rounds.review(model)
    assert outcome(silent) == ("FAIL", True, 1)
    assert only(silent).status.value == "open"


@pytest.mark.defect("F4")
@pytest.mark.parametrize("edit", [BESIDE, ("folders[number]", "folders[number - 1]")], ids=["beside", "statement"])
def test_a_claim_that_could_not_be_verified_stays_pending(edit: tuple[str, str], start: Any) -> None:
    code = CODE.replace("(name, target)", "target")
    rounds = start(code)
    # The program asks an agent without tools for no verification today; if it does, the call fails.
    model = Model(claim(), proof=NOT_VERIFIED, limits=AgentLimits(schema=True))
    first = rounds.review(model)
    rounds.commit({FILE: code.replace(*edit)})
    model.claims = []
    second = rounds.review(model)
    assert [only(review).is_open for review in (first, second)] == [True, True]
    assert [outcome(review) for review in (first, second)] == [INCOMPLETE, INCOMPLETE]


PROOFS: dict[str, tuple["str | AgentStep", tuple[str, bool, int]]] = {
    "unproven": ("unproven", ("NEEDS_WORK", True, 0)),
    "refuted": ("refuted", ("NEEDS_WORK", True, 0)),
    "not verified": (NOT_VERIFIED, INCOMPLETE),
}


@pytest.mark.defect("F5")
@pytest.mark.parametrize("when", ["same round", "next round"])
@pytest.mark.parametrize("proof", PROOFS)
def test_an_unproven_claim_never_raises_an_analysers_severity(proof: str, when: str, start: Any) -> None:
    rounds = start(SLEEP)
    known = analysed(rounds)
    assert known.severity is Severity.MEDIUM
    if when == "next round":
        rounds.review()
    answer, expected = PROOFS[proof]
    model = Model(repeated(known, "critical", WAIT), proof=answer)
    review = rounds.review(model, lanes=BOTH)
    finding = only(review)
    assert finding.severity is Severity.MEDIUM
    assert len(model.verifications) >= 1
    assert outcome(review) == expected
    claims = sorted((made.source.value, made.severity.label) for made in finding.claims)
    assert claims == [("agent", "critical"), ("analyser", "medium")]


@pytest.mark.defect("F5")
def test_a_confirmed_claim_raises_the_severity_of_the_joint_finding(start: Any) -> None:
    rounds = start(SLEEP)
    model = Model(repeated(analysed(rounds), "critical", WAIT), proof="confirmed")
    review = rounds.review(model, lanes=BOTH)
    assert len(model.verifications) == 1
    assert only(review).severity is Severity.CRITICAL
    assert outcome(review) == ("FAIL", True, 1)


@pytest.mark.defect("F6")
def test_a_refuted_claim_stays_refuted_where_an_analyser_joins_it(start: Any) -> None:
    rounds = start(SLEEP)
    model = Model(repeated(analysed(rounds), "critical", WAIT), proof="refuted")
    assert outcome(rounds.review(model)) == ("PASS", True, 0)
    again = rounds.review(model, lanes=BOTH, fresh=True)
    assert only(again).severity is Severity.MEDIUM
    assert outcome(again) == ("NEEDS_WORK", True, 0)


@pytest.mark.defect("F6")
@pytest.mark.parametrize("severity", ["medium", "low"])
def test_a_refuted_claim_is_verified_again_after_an_edit(severity: str, start: Any) -> None:
    rounds = start(CODE)
    model = Model(claim(), proof="refuted")
    assert only(rounds.review(model)).status.value == "refuted"
    rounds.commit({FILE: CODE.replace("(name, target)", "(name, str(target))")})
    model.claims = [claim(severity)]
    repeated_claim = rounds.review(model)
    assert len(model.verifications) == 2
    assert only(repeated_claim).status.value == "refuted"
    assert outcome(repeated_claim) == ("PASS", True, 0)


@pytest.mark.defect("F10")
@pytest.mark.parametrize("way", ["baseline", "dismissal"])
def test_a_rule_that_an_agent_names_suppresses_nothing(way: str, start: Any, home: Path) -> None:
    rounds = start(SHELL)
    rounds.state = home / "codeloupe"
    known = only(rounds.review())
    words = {"baseline": ("baseline", "add"), "dismissal": ("history", "dismiss")}[way]
    reason = ("--reason", "only our own folders")
    accepted = codeloupe(*words, known.fingerprint, *reason, cwd=rounds.repository.path)
    assert accepted.exit_code == 0, accepted.stderr
    assert outcome(rounds.review()) == ("PASS", True, 0)
    other = claim("high", line=5, quote=RUN, rule="S602", title="Archive is overwritten")
    other["body"] = "Two nightly jobs with one destination destroy each other's backup."
    review = rounds.review(Model(other), lanes=BOTH)
    [found] = [finding for finding in review.findings if finding.title == other["title"]]
    assert (found.is_open, found.can_block) == (True, True)
    assert (review.verdict.value, review.exit_code) == ("FAIL", 1)


def test_a_verification_gets_the_words_of_all_reports_of_a_defect(start: Any) -> None:
    rounds = start(CODE)
    other = claim("high", title="Folder entry may be missing", body="The folder index may be None for an empty number.")
    model = Model(claim(), other, proof="refuted")
    review = rounds.review(model)
    [verification] = model.verifications
    assert len(review.findings) == 1
    assert all(words in verification.prompt for words in (claim()["title"], other["title"], other["body"]))


def test_a_comment_never_accepts_more_than_what_was_claimed_when_it_was_first_seen(start: Any) -> None:
    rounds = start(CODE.replace(CALL, f"    # codeloupe: ignore the caller checks it\n{CALL}"))
    model = Model(claim("medium", line=3))
    assert outcome(rounds.review(model)) == ("PASS", True, 0)
    model.claims = [claim("critical", line=3)]
    for fresh in (True, False, True):
        assert outcome(rounds.review(model, fresh=fresh)) == ("FAIL", True, 1)


def test_a_claim_on_deleted_lines_stays_while_the_change_deletes_them(start: Any, repository: GitRepository) -> None:
    check = "    if not user.is_admin:\n        raise PermissionError(page)\n"
    code = f"def show(user, page):\n{check}    body = render(page)\n    return body\n"
    rounds = start(CODE)
    repository.commit_files({"views.py": code}, branch="with-check")
    repository.commit_files({"views.py": code.replace(check, "")}, branch="without-check")
    found = claim(file="views.py", line=2, quote=check.rstrip(), title="The permission check was removed")
    model = Model({**found, "body": "Deleting the admin check lets every visitor render restricted pages."})
    assert outcome(rounds.review(model, base="with-check")) == ("FAIL", True, 1)
    model.claims = []
    model.proof = "unproven"
    repository.commit_files({"views.py": code.replace(check, "").replace("render(page)", "render(page, user)")})
    assert outcome(rounds.review(model, base="with-check")) == ("FAIL", True, 1)
    assert "raise PermissionError(page)" in model.verifications[-1].prompt


@pytest.mark.parametrize("way", ["baseline", "dismissal"])
@pytest.mark.parametrize(
    ("before", "after", "exit_code"),
    [
        pytest.param('TOKEN = "{one}"\n', 'TOKEN = "{one}"\n\nLIMIT = 3\n', 0, id="the same key"),
        pytest.param('TOKEN = "{one}"\n', 'TOKEN = "{other}"\n', 1, id="another key in its place"),
    ],
)
def test_a_suppression_of_a_secret_is_for_that_secret(
    before: str, after: str, exit_code: int, way: str, start: Any, home: Path
) -> None:
    keys = {name: "gh" + "p_" + letter * 18 + "9Zq4Rm7Tx2Wk5Lp8Bn" for name, letter in (("one", "K"), ("other", "V"))}
    rounds = start(before.format(**keys))
    rounds.state = home / "codeloupe"
    found = only(rounds.review())
    words = {"baseline": ("baseline", "add"), "dismissal": ("history", "dismiss")}[way]
    accepted = codeloupe(*words, found.fingerprint, "--reason", "revoked", cwd=rounds.repository.path)
    assert accepted.exit_code == 0, accepted.stderr
    rounds.commit({FILE: after.format(**keys)})
    assert rounds.review().exit_code == exit_code


@pytest.mark.defect("F12")
def test_a_finding_that_a_comment_hides_is_listed_as_silenced(start: Any) -> None:
    rounds = start(SHELL)
    assert rounds.review().exit_code == 1
    rounds.commit({FILE: SHELL.replace(RUN, f"{RUN}  # noqa: S602")})
    review = rounds.review()
    finding = only(review)
    assert finding.status.value == "silenced"
    assert not finding.is_open
    assert review.exit_code == 0


@pytest.mark.defect("N6")
def test_the_same_words_on_another_line_are_another_finding(repository: GitRepository, tmp_path: Path) -> None:
    pairs = [make_pair(number) for number in range(120)]
    rounds = Rounds(repository, tmp_path / "state", {pair.file: pair.before for pair in pairs})
    model = Model(*(pair.first for pair in pairs))
    assert len(rounds.review(model, effort="low").findings) == len(pairs)
    rounds.commit({pair.file: pair.after for pair in pairs})
    model.claims = [pair.second for pair in pairs]
    review = rounds.review(model, effort="low", fresh=True)
    statuses = {(finding.file, finding.line_start): finding.status.value for finding in review.findings}
    taken_for_old = [pair for pair in pairs if statuses.get((pair.file, pair.second["line"])) != "new"]
    assert len(taken_for_old) <= 0.02 * len(pairs), [(pair.file, pair.edit) for pair in taken_for_old]


@pytest.mark.defect("N7")
@pytest.mark.parametrize("line", [2, 1, None])
@pytest.mark.parametrize("marks", [('"', "'"), ("'", '"')], ids=["single for double", "double for single"])
def test_a_quote_with_other_quote_marks_is_anchored(marks: tuple[str, str], line: int | None, start: Any) -> None:
    written, quoted = marks
    code = CODE.replace(CALL, f"    name = folders[number].strip({written} /{written})")
    quote = f"    name = folders[number].strip({quoted} /{quoted})"
    finding = only(start(code).review(Model(claim("medium", quote=quote, line=line))))
    assert (finding.anchored, finding.line_start) == (True, 2)
