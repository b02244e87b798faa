import json
import os
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.model.agent import Usage
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import FindingStatus, Severity, Source, SuppressionKind
from codeloupe.model.pipeline import CriticVerdict, StageState
from codeloupe.model.review import Coverage, FailedUnit, SkippedFile, SkipReason, Verdict
from codeloupe.reports.json_v1 import json_schema, render_json
from codeloupe.reports.pipeline_json import list_schema, run_schema
from tests.rows import each
from tests.unit.reports.examples import finding, review

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
ANYTHING = st.text(st.characters(exclude_categories=()))


def rendered(*args: Any, **changes: Any) -> Any:
    return json.loads(render_json(review(*args, **changes)))


def test_a_path_that_is_not_utf_8_comes_back_byte_for_byte() -> None:
    path = os.fsdecode(b"caf\xe9/\xff.py")
    text = render_json(review(finding(file=path), coverage=Coverage(units_failed=(FailedUnit("ruff", (path,), "x"),))))
    assert '"caf\\udce9/\\udcff.py"' in text
    document = json.loads(text.encode("utf-8"))
    assert os.fsencode(document["findings"][0]["file"]) == b"caf\xe9/\xff.py"
    assert os.fsencode(document["coverage"]["units_failed"][0]["files"][0]) == b"caf\xe9/\xff.py"


def test_text_stays_readable_and_only_what_acts_or_hides_is_escaped() -> None:
    text = render_json(review(finding(title="naïve 日本 👩‍💻", body="a\u202eb\x1b[31m\x9bc")))
    assert "naïve 日本 👩‍💻" in text
    assert '"a\\u202eb\\u001b[31m\\u009bc"' in text


@each("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_cannot_write_leave_a_valid_document(number: float) -> None:
    document = rendered(finding(), usage=Usage(cost_usd=number, duration_seconds=number))
    assert document["usage"]["cost_usd"] == 0.0


@given(
    title=ANYTHING,
    body=ANYTHING,
    path=ANYTHING,
    severity=st.sampled_from(Severity),
    status=st.sampled_from(FindingStatus),
    reason=st.sampled_from(SkipReason),
)
def test_whatever_a_review_holds_the_document_is_valid_and_lossless(
    title: str, body: str, path: str, severity: Severity, status: FindingStatus, reason: SkipReason
) -> None:
    one = finding(title=title, body=body, file=path, severity=severity, status=status)
    skipped = Coverage(skipped=(SkippedFile(path, reason, body),))
    document = json.loads(render_json(review(one, coverage=skipped)).encode("utf-8"))
    VALIDATOR.validate(document)
    shown = document["findings"][0]
    # Two lone surrogates that happen to form a pair are one character in any JSON.
    expected = json.loads(json.dumps([title, body, path]))
    assert [shown["title"], shown["body"], shown["file"]] == expected
    assert shown["priority"] == severity.priority
    assert document["coverage"]["skipped"][0]["reason"] == reason.value


def test_the_schemas_name_the_words_that_our_types_use() -> None:
    parts = json_schema()["$defs"]
    finding_fields, run = parts["FindingV1"]["properties"], run_schema()
    words = [
        (finding_fields["severity"], [severity.label for severity in Severity]),
        (parts["PolicyV1"]["properties"]["fail_on"], [severity.label for severity in Severity]),
        (finding_fields["status"], list(FindingStatus)),
        (finding_fields["source"], list(Source)),
        (parts["SuppressionV1"]["properties"]["kind"], list(SuppressionKind)),
        (parts["ScopeV1"]["properties"]["kind"], list(ScopeKind)),
        (json_schema()["properties"]["verdict"], list(Verdict)),
        (run["properties"]["state"], list(StageState)),
        (run["$defs"]["StageV1"]["properties"]["state"], list(StageState)),
        (run["$defs"]["CritiqueV1"]["properties"]["verdict"], list(CriticVerdict)),
        (list_schema()["$defs"]["RunEntryV1"]["properties"]["state"], list(StageState)),
    ]
    for field, known in words:
        assert field["enum"] == known


@each("schema", [json_schema(), run_schema(), list_schema()])
def test_a_schema_wants_each_field_that_it_knows(schema: dict[str, Any]) -> None:
    VALIDATOR.check_schema(schema)
    for part in (schema, *schema["$defs"].values()):
        assert list(part["properties"]) == part["required"]


def test_every_field_of_the_document_is_in_the_schema_and_must_be_there() -> None:
    document = rendered(finding())
    assert json_schema()["required"] == list(document)
    # Later versions may add some.
    assert "additionalProperties" not in json_schema()
    assert json_schema()["$defs"]["FindingV1"]["required"] == list(document["findings"][0])


@each("broken", [{"schema_version": 2}, {"verdict": "OK"}, {"findings": [{}]}, {"usage": None}, {"exit_code": "0"}])
def test_the_schema_refuses_what_is_no_review(broken: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**rendered(finding()), **broken})
