"""A person's word that a program leaves for a run on which another process works: what it reads is one document."""

from __future__ import annotations

import json

import pytest

from codeloupe.cli.main import main
from codeloupe.cli.pipeline_place import open_store
from codeloupe.model.pipeline import StageState as S
from tests.unit.store.run_samples import attempt, run, stage


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("approve", "00000001", "write", "--resume"), "write of the run 00000001 is approved"),
        (("reject", "00000001", "write"), "write of the run 00000001 is rejected"),
        (("resume", "00000001", "--retry", "write"), "write of the run 00000001 is to be tried again"),
    ],
)
def test_the_run_is_on_standard_output_and_the_words_are_beside_it(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    store = open_store()
    waits = stage("write", S.AWAITING_APPROVAL, attempt(1), wants_approval="gate", reason="good?")
    store.create(run(1, waits, state=S.AWAITING_APPROVAL))
    with store.lock("00000001"):
        assert main(["pipeline", *words, "--json"]) == 0
    ended = capsys.readouterr()
    document = json.loads(ended.out)
    assert (document["run_id"], document["busy"]) == ("00000001", True)
    assert told in ended.err
