"""What is told without jsonschema is what jsonschema would tell."""

import subprocess
import sys
from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.agents.calls.schemas import fits, is_plain
from codeloupe.reviewers.prompt import FINDINGS_SCHEMA, FINDINGS_WITH_ID_SCHEMA, PROOFS_SCHEMA
from tests.rows import each

NAMES = st.sampled_from(["a", "b", "line", "", "é"])
SCALARS = st.one_of(
    NAMES, st.text(max_size=3), st.integers(-2, 2), st.floats(-2, 2), st.booleans(), st.none(), st.just(1.0)
)
VALUES = st.recursive(
    SCALARS, lambda parts: st.lists(parts, max_size=3) | st.dictionaries(NAMES, parts, max_size=3), max_leaves=8
)


def plain_schemas(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas of the known words, with and without each, and now and then with a wrong value for one."""
    return st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])},
        optional={
            "properties": st.dictionaries(NAMES, parts, max_size=3),
            "required": st.lists(NAMES, max_size=2),
            "items": parts,
            "enum": st.lists(NAMES, max_size=3),
            "additionalProperties": st.booleans(),
            "description": st.just("words"),
        },
    )


PLAIN = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])}),
    plain_schemas,
    max_leaves=6,
)
ANY_SCHEMA = st.dictionaries(
    st.sampled_from(["type", "properties", "required", "items", "enum", "additionalProperties", "title", "pattern"]),
    VALUES | PLAIN | st.sampled_from(["object", "array", "string"]),
    max_size=4,
)


@given(PLAIN | ANY_SCHEMA, VALUES)
def test_what_is_called_plain_is_a_valid_schema_and_what_fits_is_valid(schema: dict[str, Any], value: Any) -> None:
    if is_plain(schema):
        jsonschema.Draft202012Validator.check_schema(schema)
        if fits(value, schema):
            jsonschema.Draft202012Validator(schema).validate(value)


def test_the_schemas_of_reviewing_calls_are_plain_and_one_nested_without_end_is_not() -> None:
    assert all(map(is_plain, (FINDINGS_SCHEMA, FINDINGS_WITH_ID_SCHEMA, PROOFS_SCHEMA)))
    schema: dict[str, Any] = {"type": "array"}
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    assert not is_plain(schema)


@each(
    "schema",
    [
        *({}, True, None, {"type": ["string", "null"]}, {"type": "text"}, {"type": []}, {"$ref": "#"}),
        *({"type": "string", "pattern": "("}, {"type": "string", "enum": ["a", 1]}, {"type": "integer", "enum": [1]}),
        *({"type": "object", "required": ["a", "a"]}, {"type": "object", "required": "a"}),
        *({"type": "object", "properties": []}, {"type": "object", "properties": {"a": True}}),
        {"type": "object", "additionalProperties": {"type": "string"}},
        *({"type": "string", "description": 1}, {"type": "array", "items": [{"type": "string"}]}),
        {"type": "string", "$schema": "http://json-schema.org/draft-04/schema#"},
    ],
)
def test_what_is_not_known_for_sure_is_not_plain(schema: object) -> None:
    assert not is_plain(schema)


def test_a_good_answer_to_a_plain_schema_loads_no_jsonschema() -> None:
    program = (
        "import sys; from codeloupe.agents.calls.schemas import *; from codeloupe.model.agent import AgentResult\n"
        "schema = {'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a']}\n"
        "check_schema(schema)\n"
        "for text in ('{\"a\": 1}', '```json\\n{\"a\": 1}\\n```'):\n"
        "    check_output(AgentResult(success=True, output=text, agent='x'), schema)\n"
        "print('jsonschema' in sys.modules)\n"
    )
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
