from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.agents.calls.schemas import strict_schema, without_fillers

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


def test_a_null_that_the_schema_means_stays() -> None:
    rows: list[tuple[dict[str, Any], bool]] = [
        (TEXT, False),
        ({"type": ["string", "null"]}, True),
        ({"anyOf": [TEXT, {"type": "null"}]}, True),
        ({"enum": ["a", None]}, True),
        ({"enum": ["a"]}, False),
        ({"const": None}, True),
        ({"oneOf": [TEXT, {"type": "integer"}]}, False),
    ]
    for part, kept in rows:
        schema = an_object(a=part)
        assert strict_schema(schema) is not None
        assert without_fillers({"a": None}, schema) == ({"a": None} if kept else {})


def test_an_answer_of_any_shape_is_passed_on() -> None:
    schema = an_object(a=an_object(b=TEXT))
    for answer in (None, 1, "x", [1, None], {"a": None, "other": None}, {"a": [{"b": None}]}, {"other": 1}):
        without_fillers(answer, schema)
    assert without_fillers({"other": 1, "a": {"b": None}}, schema) == {"other": 1, "a": {}}


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
