import json
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.agents.calls.schemas import SchemaError, check_output, check_schema, strict_schema, without_fillers
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentResult, TokenUsage
from codeloupe.testing import StandInServer
from tests.unit.agents.samples import result

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}}},
    "required": ["findings"],
    "additionalProperties": False,
    "$defs": {"finding": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}},
}
GOOD = {"findings": [{"line": 3}]}


def violation(answer: AgentResult, schema: dict[str, Any] | None = None) -> OutputInvalid:
    with pytest.raises(OutputInvalid) as caught:
        check_output(answer, schema or SCHEMA)
    return caught.value


def test_the_error_tells_what_the_model_said_and_what_it_cost() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"structured": {"findings": [{"line": "é"}]}, "output": "see the value"}, '{"findings": [{"line": "é"}]}'),
        ({"output": "no value at all"}, "no value at all"),
        ({"structured": {"findings": [float("nan")]}, "output": "not a number"}, "not a number"),
    ]
    for fields, said in rows:
        usage = TokenUsage(input_tokens=7, output_tokens=2)
        answer = result(raw_output="a long log", total_cost_usd=0.25, usage=usage, **fields)
        error = violation(answer)
        assert (error.output, error.raw_output) == (said, "a long log")
        assert (error.cost_usd, error.usage) == (0.25, usage)


class TestSchemas:
    def test_what_is_none_is_refused_with_place_and_reason(self) -> None:
        rows: list[tuple[object, str]] = [
            (True, "type bool, not a JSON object"),
            (["x"], "type list, not a JSON object"),
            ({"type": "objekt"}, "at .*objekt"),
            ({"properties": []}, r"at \$\.properties"),
            ({"pattern": "("}, r"at \$\.pattern"),
            ({"const": {1, 2}}, "cannot be written as JSON: set is not a JSON type"),
            ({"const": float("nan")}, "cannot be written as JSON"),
            ({"$schema": {}}, "cannot be read as a schema"),
            ({"$ref": "https://example.invalid/schema.json"}, "nothing is fetched"),
            ({"$ref": "#/$defs/missing"}, "is not in the schema"),
            ({"$dynamicRef": "https://example.invalid/schema.json"}, "nothing is fetched"),
            ({"items": [{"$ref": "other.json"}], "$schema": "http://json-schema.org/draft-07/schema#"}, "other.json"),
        ]
        for schema, words in rows:
            with pytest.raises(SchemaError, match=words):
                check_schema(schema)

    def test_a_schema_may_refer_to_itself_and_to_the_dialects_but_not_be_nested_without_end(self) -> None:
        old = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"type": "integer"}}}
        for good in (
            *({}, SCHEMA, MappingProxyType(SCHEMA), {"type": "array", "uniqueItems": True}),
            {"$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}},
            {"items": {"$ref": "#"}, "not": {"$ref": "https://json-schema.org/draft/2020-12/schema"}},
            {**old, "items": {"$ref": "#/definitions/a"}},
        ):
            check_schema(good)
        schema: dict[str, Any] = {}
        for _ in range(5000):
            schema = {"not": schema}
        with pytest.raises(SchemaError):
            check_schema(schema)


class TestStructuredAnswers:
    @pytest.mark.requirement("R12")
    def test_one_that_does_not_names_the_place_and_keeps_the_raw_output(self) -> None:
        answer = result(structured={"findings": [{"line": 3}, {"line": "x"}]}, raw_output="raw", session_id="s1")
        error = violation(answer)
        words, _, place = error.message.partition(": ")
        assert words == "the answer of scripted does not match the schema"
        said = '{"findings": [{"line": 3}, {"line": "x"}]}'
        assert place == f"at $.findings[1].line: 'x' is not of type 'integer'; it begins with: {said}"
        assert (error.raw_output, error.session_id, error.agent) == ("raw", "s1", "scripted")
        assert error.hint
        good = result(structured=GOOD)
        assert check_output(good, SCHEMA) == good

    def test_what_has_no_end_or_is_too_large_is_a_failure_with_a_short_message(self) -> None:
        value: Any = 1
        for _ in range(100_000):
            value = [value]
        endless = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
        for structured, schema, words in (
            (value, {"type": "array"}, "levels deep"),
            ({}, endless, "refers to itself without end"),
            (10**400, {"multipleOf": 0.5}, "too large"),
            ({"findings": "x" * 1_000_000}, SCHEMA, "at $.findings: 'xxx"),
        ):
            message = violation(result(structured=structured), schema).message
            assert words in message
            assert len(message) < 1000

    @pytest.mark.program
    def test_a_reference_that_changes_its_meaning_inside_is_not_fetched_either(self) -> None:
        with StandInServer() as server:
            inner = {"$id": f"{server.url}/inside/", "$ref": "root.json"}
            hidden = {"$id": "https://example.invalid/root.json", "items": inner}
            check_schema(hidden)
            assert "refers to something that is not in it" in violation(result(structured=[1]), hidden).message
            assert server.requests == ()


def test_the_same_item_twice_violates_unique_items_and_different_ones_do_not() -> None:
    unique = {"uniqueItems": True}
    for items in [[1, 1.0], [{"a": [1]}, {"a": [1]}], ["x", "x"], [[True], [True]]]:
        assert "more than once" in violation(result(structured=items), unique).message
    # To compare each with each would not end within the time limit of a test.
    many: list[Any] = [{"a": number} for number in range(70_000)]
    rows: list[list[Any]] = [[1, True], [0, False], ["1", 1], [{"a": 1}, {"a": 2}], [[], {}], [], many]
    for items in rows:
        assert check_output(result(structured=items), unique).structured == items


class TestAnswersInText:
    def test_a_text_that_is_nothing_but_the_value_is_read(self) -> None:
        for text in (json.dumps(GOOD), f"\n{json.dumps(GOOD)}\n", f"```json\n{json.dumps(GOOD, indent=1)}\n```"):
            answer = check_output(result(text), SCHEMA)
            assert answer.structured == GOOD
            assert answer.output == text

    @pytest.mark.defect("F1")
    def test_a_value_that_prose_quotes_is_not_the_answer(self) -> None:
        quoted = json.dumps({"findings": []})
        for text in (
            f"The comment says {quoted}, but the loop never ends.",
            f"I looked at [1, 2] and found:\n{quoted}\nas {{said}}.",
            f"```json\n{quoted}\n```\nThe loop never ends.",
            f"{quoted}\n{quoted}",
        ):
            error = violation(result(text))
            assert "text around the JSON" in error.message
            assert error.output == text

    @pytest.mark.requirement("R12")
    def test_any_other_text_is_a_failure_in_words_with_the_raw_text(self) -> None:
        rows: list[tuple[str, str]] = [
            ("I found nothing.", "no JSON found"),
            ('{"findings": [', "the JSON is cut off"),
            ('{"findings": [{}]}', "at $.findings[0]: 'line' is a required property"),
            ('Here: {"findings": 3}', "text around the JSON"),
            ('{"findings": [], "findings": []}', "key given twice: findings"),
            ("[" * 100_000, "levels deep"),
            # The parts of a value that violates the schema are not searched.
            (json.dumps({"result": GOOD, "note": "x" * 50}), "at $: "),
        ]
        for text, words in rows:
            error = violation(result(text))
            assert words in error.message
            assert error.raw_output == text


TEXT = {"type": "string"}


def an_object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


def test_all_properties_become_required_no_others_allowed_and_what_strict_mode_does_not_know_is_dropped() -> None:
    known = {"type": "string", "description": "d", "pattern": "^a"}
    dropped = {"title": "t", "default": "x", "minLength": 2, "examples": ["a"]}
    items = an_object(["c"], c={"type": "integer"})
    schema = an_object(["a"], a={**known, **dropped}, b={"type": "array", "items": items})
    strict_items = {**items, "additionalProperties": False}
    assert strict_schema({**schema, "$schema": "http://json-schema.example", "title": "T"}) == {
        "type": "object",
        "properties": {"a": known, "b": {"anyOf": [{"type": "array", "items": strict_items}, {"type": "null"}]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_what_strict_mode_cannot_say_is_not_said_wrongly() -> None:
    schemas: list[dict[str, Any]] = [
        {"type": "array", "items": TEXT},
        {"anyOf": [an_object(a=TEXT), an_object(b=TEXT)]},
        {"type": "object"},
        {**an_object(a=TEXT), "additionalProperties": True},
        {**an_object(a=TEXT), "additionalProperties": TEXT},
        {**an_object(a=TEXT), "patternProperties": {"x": TEXT}},
        an_object(a={"anyOf": [an_object(b=TEXT), an_object(c=TEXT)]}),
        an_object(a={"allOf": [TEXT]}),
        an_object(a={}),
        an_object(a=True),
        an_object(a={"$ref": "http://elsewhere.example"}),
        an_object(a={"type": "array"}),
        an_object(a={"type": "array", "prefixItems": [TEXT], "items": TEXT}),
    ]
    deep: dict[str, Any] = TEXT
    for _ in range(200):
        deep = an_object(a=deep)
    for schema in (*schemas, deep):
        assert strict_schema(schema) is None


def test_references_stay_and_are_followed_in_the_answer() -> None:
    node = an_object(["name"], name=TEXT, note=TEXT, child={"$ref": "#/$defs/node"})
    schema = {**an_object(["root"], root={"$ref": "#/$defs/node"}), "$defs": {"node": node}}
    strict = strict_schema(schema)
    assert strict is not None
    assert strict["properties"]["root"] == {"$ref": "#/$defs/node"}
    assert strict["$defs"]["node"]["required"] == ["name", "note", "child"]
    answer = {"root": {"name": "a", "note": None, "child": {"name": "b", "note": "n", "child": None}}}
    assert without_fillers(answer, schema) == {"root": {"name": "a", "child": {"name": "b", "note": "n"}}}


def test_a_null_that_the_schema_asks_for_stays_and_an_answer_of_any_shape_is_passed_on() -> None:
    for part in (
        *(TEXT, {"type": ["string", "null"]}, {"anyOf": [TEXT, {"type": "null"}]}, {"enum": ["a", None]}),
        *({"enum": ["a"]}, {"const": None}, {"oneOf": [TEXT, {"type": "integer"}]}),
    ):
        for required in ([], ["a"]):
            schema = an_object(required, a=part)
            assert strict_schema(schema) is not None
            assert without_fillers({"a": None}, schema) == dict.fromkeys(required)
    nested = an_object(a=an_object(b=TEXT))
    for answer in (None, 1, "x", [1, None], {"a": None, "other": None}, {"a": [{"b": None}]}, {"other": 1}):
        without_fillers(answer, nested)
    assert without_fillers({"other": 1, "a": {"b": None}}, nested) == {"other": 1, "a": {}}
    # A key that was not asked for is not a property that was left out.
    assert without_fillers({"other": None, "a": {"c": None}}, nested) == {"other": None, "a": {"c": None}}


LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=3),
    "integer": st.integers(-9, 9),
    "boolean": st.booleans(),
}


@st.composite
def schemas_with_values(draw: st.DrawFn, depth: int = 2) -> tuple[dict[str, Any], Any]:
    """A schema, and a value that conforms to it."""
    kind = draw(st.sampled_from([*LEAVES, *(("object", "array") if depth else ())]))
    if kind in LEAVES:
        return {"type": kind}, draw(LEAVES[kind])
    if kind == "array":
        schema, value = draw(schemas_with_values(depth - 1))
        return {"type": "array", "items": schema}, [value] * draw(st.integers(0, 2))
    return draw(objects_with_values(depth))


@st.composite
def objects_with_values(draw: st.DrawFn, depth: int = 2) -> tuple[dict[str, Any], Any]:
    parts = draw(st.dictionaries(st.sampled_from("abcd"), schemas_with_values(depth - 1), min_size=1))
    required = sorted(draw(st.sets(st.sampled_from(sorted(parts)))))
    left_out = draw(st.sets(st.sampled_from(sorted(parts)))) - set(required)
    schema = an_object(required, **{name: schema for name, (schema, _) in parts.items()})
    return schema, {name: value for name, (_, value) in parts.items() if name not in left_out}


def filled(value: Any, schema: dict[str, Any]) -> Any:
    """The value as a model has to write it in strict mode."""
    if isinstance(value, list):
        return [filled(item, schema["items"]) for item in value]
    if isinstance(value, dict):
        return {
            name: filled(value[name], part) if name in value else None for name, part in schema["properties"].items()
        }
    return value


@given(objects_with_values())
def test_what_a_model_writes_in_strict_mode_means_what_it_would_have_written(pair: tuple[dict[str, Any], Any]) -> None:
    schema, value = pair
    jsonschema.validate(value, schema)
    strict = strict_schema(schema)
    assert strict is not None
    written = filled(value, schema)
    jsonschema.validate(written, strict)
    assert without_fillers(written, schema) == value
