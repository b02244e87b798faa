"""Claims without a place in the code, through the installed program: never a pass, and no line that is not known."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.grave_answers import AFTER, BEFORE, FILE, GRAVE, LOW
from tests.program import Ended
from tests.proofs import asks_for_proofs, proofs
from tests.repository import GitRepository
from tests.warm_program import codeloupe

UNPLACED = {**GRAVE, "quote": "    return eval(user_input)"}
FORMATS = ("text", "json", "markdown", "html", "sarif", "junit", "gitlab-codequality", "rdjson", "github")


class Model:
    """Claims something about the change, and answers verifications with `proof`, or not exactly without one."""

    def __init__(self, *findings: dict[str, Any], proof: str = "") -> None:
        self.findings = list(findings)
        self.proof = proof

    def __call__(self, request: RecordedRequest) -> Reply:
        if self.proof and asks_for_proofs(request):
            return proofs(request, self.proof, "The text reaches eval.")
        return Json({"findings": self.findings})


@pytest.fixture
def project(repository: GitRepository) -> Path:
    repository.commit_files({FILE: BEFORE})
    repository.commit_files({FILE: AFTER})
    return repository.path


def run(server: StandInServer, project: Path, *words: str, home: Path | None = None) -> Ended:
    variables = {} if home is None else {"CODELOUPE_HOME": str(home)}
    variables |= {"OPENAI_API_KEY": "made-up-" + "for-tests", "OPENAI_BASE_URL": f"{server.url}/v1"}
    variables["CODELOUPE_API_MODEL"] = "openai:stand-in"
    return codeloupe(*words, cwd=project, environment=variables)


def review(server: StandInServer, project: Path, *words: str, home: Path | None = None) -> Ended:
    return run(server, project, "review", "HEAD~1..HEAD", "--reviewer", "api", "--fresh", *words, home=home)


@pytest.mark.defect("T4")
@pytest.mark.defect("T12")
def test_a_grave_one_is_incomplete_and_a_lesser_one_counts(project: Path, tmp_path: Path) -> None:
    ends = {}
    for name, model, words in (
        ("not verified", Model(UNPLACED), ()),
        ("confirmed", Model(UNPLACED, proof="confirmed"), ()),
        ("unproven", Model(UNPLACED, proof="unproven"), ()),
        ("refuted", Model(UNPLACED, proof="refuted"), ()),
        ("without verification", Model(UNPLACED), ("--no-verify",)),
        ("lesser", Model({**UNPLACED, "severity": "medium"}), ()),
        ("lesser than asked", Model(UNPLACED), ("--fail-on", "critical")),
        ("as grave as asked", Model({**UNPLACED, "severity": "low"}), ("--fail-on", "low")),
        ("accepted", Model(UNPLACED), ("--on-incomplete", "pass")),
        ("beside one that blocks", Model(UNPLACED, {**GRAVE, "title": "eval"}, proof="confirmed"), ()),
    ):
        with StandInServer(reply=model) as server:
            # Each in a history of its own, so that it is the first round.
            ended = review(server, project, "--format", "json", *words, home=tmp_path / name)
        document = json.loads(ended.stdout)
        ends[name] = (ended.exit_code, document["verdict"], document["complete"])
    assert ends == {
        "not verified": (3, "INCOMPLETE", False),
        "confirmed": (3, "INCOMPLETE", False),
        "unproven": (0, "NEEDS_WORK", True),
        "refuted": (0, "PASS", True),
        "without verification": (1, "FAIL", True),
        "lesser": (0, "NEEDS_WORK", True),
        "lesser than asked": (3, "INCOMPLETE", False),
        "as grave as asked": (3, "INCOMPLETE", False),
        "accepted": (0, "INCOMPLETE", False),
        "beside one that blocks": (1, "FAIL", False),
    }


@pytest.mark.defect("T4")
@pytest.mark.defect("T12")
@pytest.mark.defect("U5")
def test_no_format_invents_a_line_or_a_pass_and_a_saved_review_is_judged_alike(project: Path) -> None:
    with StandInServer(reply=Model(UNPLACED, {**LOW, "quote": "nowhere()"})) as server:
        shown = review(server, project, "--format", "json")
        formats = {form: run(server, project, "history", "render", "last", "--format", form) for form in FORMATS}
        lenient = run(server, project, "history", "render", "last", "--format", "json", "--fail-on", "critical")
    document = json.loads(shown.stdout)
    assert [(one["line_start"], one["line_end"], one["anchored"]) for one in document["findings"]] == [
        (None, None, False)
    ] * 2
    wrong = {
        form: (ended.exit_code, ended.stderr)
        for form, ended in formats.items()
        if ended.exit_code != 3 or re.search(rf"{re.escape(FILE)}:\d|\(line \d", ended.stdout)
    }
    assert wrong == {}
    for form in ("text", "markdown", "html", "sarif", "junit", "github"):
        assert "INCOMPLETE" in formats[form].stdout, form
    text = formats["text"].stdout
    assert text.index("Needs a person") < text.index(UNPLACED["title"]) < text.index(LOW["title"])
    located = json.loads(formats["gitlab-codequality"].stdout)
    assert {issue["location"]["path"] for issue in located} == {"."}
    assert all("range" not in one["location"] for one in json.loads(formats["rdjson"].stdout)["diagnostics"])
    places = [result["locations"][0] for result in json.loads(formats["sarif"].stdout)["runs"][0]["results"]]
    assert all("region" not in place["physicalLocation"] for place in places)
    assert (lenient.exit_code, json.loads(lenient.stdout)["verdict"]) == (3, "INCOMPLETE")


@pytest.mark.defect("T4")
@pytest.mark.defect("T12")
def test_a_sweep_shows_such_a_commit_as_incomplete_and_gives_it_no_score(project: Path) -> None:
    with StandInServer(reply=Model(UNPLACED)) as server:
        ended = run(server, project, "commits", "HEAD~1..HEAD", "--reviewer", "api", "--format", "json")
    document = json.loads(ended.stdout)
    (commit,) = document["commits"]
    assert (ended.exit_code, commit["verdict"], commit["score"], document["score"]) == (3, "INCOMPLETE", None, None)
    assert "its code was not found" in commit["failure"]
    assert commit["findings"][0]["evidence"] == FILE
