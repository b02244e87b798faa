import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

import pytest

from codeloupe.agents.calls.schemas import SchemaError, check_output, check_schema
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentResult, TokenUsage
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
        answer = AgentResult(
            success=True, agent="test", raw_output="a long log", total_cost_usd=0.25, usage=usage, **fields
        )
        error = violation(answer)
        assert (error.output, error.raw_output, error.cut_off) == (said, "a long log", False)
        assert (error.cost_usd, error.usage) == (0.25, usage)


@contextmanager
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """An address on this machine that hangs up on everybody, and who came."""
    visits: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def hang_up() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    visits.append(connection.recv(100))

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield "http://{}:{}".format(*server.getsockname()), visits
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


class TestSchemas:
    def test_a_schema_is_accepted(self) -> None:
        for schema in [{}, SCHEMA, MappingProxyType(SCHEMA), {"type": "array", "uniqueItems": True}]:
            check_schema(schema)

    def test_what_is_none_is_refused_with_place_and_reason(self) -> None:
        rows: list[tuple[object, str]] = [
            (True, "type bool, not a JSON object"),
            (["x"], "type list, not a JSON object"),
            ({"type": "objekt"}, "at .*objekt"),
            ({"properties": []}, r"at \$\.properties"),
            ({"pattern": "("}, r"at \$\.pattern"),
            ({"const": {1, 2}}, "cannot be written as JSON: set is no type of JSON"),
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
        check_schema({"$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}})
        check_schema({"items": {"$ref": "#"}, "not": {"$ref": "https://json-schema.org/draft/2020-12/schema"}})
        old = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"type": "integer"}}}
        check_schema({**old, "items": {"$ref": "#/definitions/a"}})
        schema: dict[str, Any] = {}
        for _ in range(5000):
            schema = {"not": schema}
        with pytest.raises(SchemaError):
            check_schema(schema)


class TestStructuredAnswers:
    def test_one_that_conforms_stays_as_it_is(self) -> None:
        answer = result(structured=GOOD)
        assert check_output(answer, SCHEMA) is answer

    @pytest.mark.requirement("R12")
    def test_one_that_does_not_names_the_place_and_keeps_the_raw_output(self) -> None:
        answer = result(structured={"findings": [{"line": 3}, {"line": "x"}]}, raw_output="raw", session_id="s1")
        error = violation(answer)
        words, _, place = error.message.partition(": ")
        assert words == "the answer of scripted is not what the schema asks for"
        assert place == "at $.findings[1].line: 'x' is not of type 'integer'"
        assert (error.raw_output, error.session_id, error.agent) == ("raw", "s1", "scripted")
        assert error.hint

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
        with listening() as (address, visits):
            inner = {"$id": f"{address}/inside/", "$ref": "root.json"}
            hidden = {"$id": "https://example.invalid/root.json", "items": inner}
            check_schema(hidden)
            assert "refers to what is not in it" in violation(result(structured=[1]), hidden).message
        assert visits == []


class TestUniqueItems:
    SCHEMA: dict[str, Any] = {"uniqueItems": True}  # noqa: RUF012 - never changed

    def test_an_item_twice_is_a_violation(self) -> None:
        for items in [[1, 1.0], [{"a": [1]}, {"a": [1]}], ["x", "x"], [[True], [True]]]:
            assert "more than once" in violation(result(structured=items), self.SCHEMA).message

    def test_different_items_are_none(self) -> None:
        # To compare each with each would not end within the time limit of a test.
        many: list[Any] = [{"a": number} for number in range(70_000)]
        rows: list[list[Any]] = [[1, True], [0, False], ["1", 1], [{"a": 1}, {"a": 2}], [[], {}], [], many]
        for items in rows:
            assert check_output(result(structured=items), self.SCHEMA).structured == items


class TestAnswersInText:
    def test_the_part_that_conforms_is_taken(self) -> None:
        for text in [
            json.dumps(GOOD),
            f"```json\n{json.dumps(GOOD, indent=1)}\n```",
            f"I looked at [1, 2] and found:\n{json.dumps(GOOD)}\nas {{said}}.",
            f'{{"a much longer object": "{"x" * 100}"}} and {json.dumps(GOOD)}',
        ]:
            answer = check_output(result(text), SCHEMA)
            assert answer.structured == GOOD
            assert answer.output == text

    @pytest.mark.requirement("R12")
    def test_one_without_such_a_part_is_a_failure_in_words_with_the_raw_text(self) -> None:
        rows: list[tuple[str, str]] = [
            ("I found nothing.", "no JSON that can be read"),
            ('{"findings": [', "no JSON that can be read"),
            ('{"findings": [{}]}', "at $.findings[0]: 'line' is a required property"),
            ('Here: {"findings": 3}', "at $.findings: 3 is not of type 'array'"),
            ('{"findings": [], "findings": []}', "'findings' occurs more than once in one object"),
            ("[" * 5000, "levels deep"),
        ]
        for text, words in rows:
            error = violation(result(text))
            assert words in error.message
            assert error.raw_output == text

    def test_a_whole_answer_that_violates_is_not_searched_for_parts(self) -> None:
        wrapped = json.dumps({"result": GOOD, "note": "x" * 50})
        assert "at $: " in violation(result(wrapped)).message
