from __future__ import annotations

import json

import pytest

from codeloupe.agents.calls.schema_check import check_output
from codeloupe.agents.calls.strict_schema import strict_schema, without_fillers
from codeloupe.engine.prompt import FINDINGS_SCHEMA, REPAIR_SCHEMA, VERIFY_SCHEMA
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentResult
from codeloupe.model.answer import Proof
from codeloupe.model.severity import Severity
from tests.unit.engine.samples import each_row

_FINDING = {
    "file": "a.py",
    "line": 3,
    "quote": "x = 1",
    "title": "wrong",
    "body": "always",
    "category": "correctness",
    "severity": "high",
}


def _check(structured: object, schema: object) -> object:
    result = AgentResult(success=True, output="", agent="test", structured=structured)
    return check_output(result, schema).structured  # type: ignore[arg-type]  # the schemas are what is tested


def test_answers_that_are_asked_for_fit() -> None:
    def check(answer: object) -> None:
        assert _check(answer, FINDINGS_SCHEMA) == answer

    each_row(
        [
            {"findings": []},
            {"findings": [_FINDING]},
            {"findings": [{**_FINDING, "confidence": 0.5, "suggestion": "x = 2"}, _FINDING]},
        ],
        check,
    )


def test_other_answers_do_not() -> None:
    def check(answer: object) -> None:
        with pytest.raises(OutputInvalid):
            _check(answer, FINDINGS_SCHEMA)

    each_row(
        [
            {},
            [],
            {"findings": None},
            {"findings": [{name: value for name, value in _FINDING.items() if name != "quote"}]},
            {"findings": [{**_FINDING, "severity": "P1"}]},
            {"findings": [{**_FINDING, "line": "3"}]},
        ],
        check,
    )


def test_strict_mode_can_say_every_form() -> None:
    def check(schema: dict[str, object]) -> None:
        strict = strict_schema(schema)
        assert strict is not None
        assert list(strict["properties"]) == list(schema["properties"])  # type: ignore[call-overload]  # a JSON object

    each_row([FINDINGS_SCHEMA, REPAIR_SCHEMA, VERIFY_SCHEMA], check)


def test_what_is_optional_may_be_null_in_strict_mode_and_is_left_out_again() -> None:
    answer = {"findings": [{**_FINDING, "confidence": None, "suggestion": None}]}
    assert without_fillers(answer, FINDINGS_SCHEMA) == {"findings": [_FINDING]}


def test_the_evidence_comes_before_the_defect_and_the_fix_last() -> None:
    names = list(FINDINGS_SCHEMA["properties"]["findings"]["items"]["properties"])
    assert names.index("quote") < names.index("title") < names.index("severity")
    assert names[-2:] == ["suggestion", "replacement"]


def test_the_steps_are_those_of_the_model() -> None:
    items = FINDINGS_SCHEMA["properties"]["findings"]["items"]
    assert items["properties"]["severity"]["enum"] == [severity.label for severity in Severity]
    assert set(VERIFY_SCHEMA["properties"]["proof"]["enum"]) == set(Proof)


def test_a_repair_says_whether_there_was_anything_to_read() -> None:
    assert _check({"readable": False, "findings": []}, REPAIR_SCHEMA)
    with pytest.raises(OutputInvalid):
        _check({"findings": []}, REPAIR_SCHEMA)


def test_the_form_of_findings_is_small() -> None:
    assert len(json.dumps(FINDINGS_SCHEMA, separators=(",", ":"))) / 3.5 < 170
