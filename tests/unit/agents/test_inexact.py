"""Which runs of an agent cannot have given an exact answer, and what else they said."""

import json
from typing import Any, ClassVar

import pytest

from codeloupe import errors
from codeloupe.agents.calls.program import message_on
from codeloupe.agents.calls.schemas import without_fillers
from codeloupe.model.agent import AgentRequest, AgentResult
from tests.rows import each
from tests.unit.agents.samples import Capture, capture, claude_run, names, request

ITEM = {"type": "object", "properties": {"title": {"type": "string"}}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"findings": {"type": "array", "items": ITEM}},
    "required": ["findings"],
    "additionalProperties": False,
}
ASKED: AgentRequest = request(output_schema=SCHEMA, accept_any_output=True)
FINDING = {"file": "a.py", "title": "Division by zero", "severity": "critical"}
FOUND: dict[str, Any] = {"findings": [FINDING]}
CLEAN: dict[str, Any] = {"findings": []}
FOUND_TEXT = json.dumps(FOUND)
CLEAN_TEXT = json.dumps(CLEAN)
TWICE = f'{{"findings": [{json.dumps(FINDING)}], "findings": []}}'


def lines(*messages: "dict[str, Any] | str") -> str:
    """Return the output of a program: each message, or a line as it is, on a line of its own."""
    return "".join(f"{message if isinstance(message, str) else json.dumps(message)}\n" for message in messages)


def assert_inexact(result: AgentResult, why: str, *others: str) -> None:
    assert result.success
    assert why in result.inexact
    assert result.inexact.startswith(result.agent)
    assert result.other_answers == others


def assert_can_be_exact(result: AgentResult, *others: str) -> None:
    assert (result.inexact, result.other_answers) == ("", others)


class TestCodex:
    START: ClassVar = {"type": "thread.started", "thread_id": "t"}
    END: ClassVar = {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 5}}

    @staticmethod
    def said(text: object) -> dict[str, Any]:
        return {"type": "item.completed", "item": {"type": "agent_message", "text": text}}

    @staticmethod
    def used(kind: str = "command_execution") -> dict[str, Any]:
        return {"type": "item.started", "item": {"type": kind, "command": "ls"}}

    def run(self, *messages: "dict[str, Any] | str", exit_code: int = 0) -> AgentResult:
        return Capture("codex", exit_code, lines(self.START, *messages)).replayed(ASKED)

    def test_one_message_before_the_end_can_be_exact(self) -> None:
        result = self.run(self.said(CLEAN_TEXT), "", self.END)
        assert_can_be_exact(result)
        assert result.structured == CLEAN

    @pytest.mark.defect("F8")
    def test_two_messages_are_several_answers_and_the_first_is_kept(self) -> None:
        result = self.run(self.said(FOUND_TEXT), self.said(CLEAN_TEXT), self.END)
        assert_inexact(result, "several answers", FOUND_TEXT)
        assert result.structured == CLEAN

    def test_a_message_before_a_tool_is_kept_and_is_not_the_answer(self) -> None:
        for kind in ("command_execution", "file_change", "todo_list", "mcp_tool_call"):
            result = self.run(self.said(FOUND_TEXT), self.used(kind), self.said(CLEAN_TEXT), self.END)
            assert_can_be_exact(result, FOUND_TEXT)
        with pytest.raises(errors.OutputInvalid, match="empty"):
            self.run(self.said(CLEAN_TEXT), self.used(), self.END)

    @pytest.mark.defect("F8")
    def test_an_exit_code_other_than_0_is_not_a_success(self) -> None:
        for exit_code in (1, 101, -9):
            result = self.run(self.said(CLEAN_TEXT), self.END, exit_code=exit_code)
            assert_inexact(result, f"exit code {exit_code}")

    @pytest.mark.defect("F8")
    def test_an_error_before_the_end_makes_the_answer_inexact(self) -> None:
        error = {"type": "error", "message": "stream disconnected"}
        assert_inexact(self.run(self.said(CLEAN_TEXT), error, self.END), "reported an error: stream disconnected")

    @pytest.mark.defect("F8")
    def test_a_second_end_makes_the_run_a_failure(self) -> None:
        with pytest.raises(errors.Crashed, match="more than one result"):
            self.run(self.said(CLEAN_TEXT), self.END, self.END)
        failed = {"type": "turn.failed", "error": {"message": "boom"}}
        for ends in ((failed, self.END), (self.END, failed)):
            with pytest.raises(errors.AgentError, match="boom"):
                self.run(self.said(CLEAN_TEXT), *ends)

    def test_a_message_after_the_end_makes_the_answer_inexact(self) -> None:
        result = self.run(self.said(FOUND_TEXT), self.used(), self.END, self.said(CLEAN_TEXT))
        assert_inexact(result, "printed more after its result", FOUND_TEXT)

    @pytest.mark.defect("F11")
    def test_a_null_that_was_not_asked_for_stays_in_the_answer(self) -> None:
        result = self.run(self.said('{"findings": [], "files_not_read": null}'), self.END)
        assert result.structured == {**CLEAN, "files_not_read": None}
        optional = {**SCHEMA, "properties": {**SCHEMA["properties"], "note": {"type": "string"}}}
        value = {**CLEAN, "note": None, "other": None}
        assert without_fillers(value, optional) == {**CLEAN, "other": None}

    @each("broken", ["WARN late {}", "{}", '["{}"]', '{"type": "item.comp'])
    def test_a_line_that_cannot_be_read_makes_the_answer_inexact(self, broken: str) -> None:
        line = broken.replace("{}", json.dumps(self.said(FOUND_TEXT))[1:])
        assert_inexact(self.run(self.said(CLEAN_TEXT), line, self.END), "could not be read")

    def test_a_part_that_is_not_a_text_makes_the_answer_inexact(self) -> None:
        with pytest.raises(errors.OutputInvalid):
            self.run(self.said([FOUND_TEXT]), self.END)
        assert_inexact(
            self.run(self.said([FOUND_TEXT]), self.said(CLEAN_TEXT), self.END), "a part of its answer that is not text"
        )


class TestGemini:
    START = ({"type": "init", "session_id": "s", "model": "g"}, {"type": "message", "role": "user", "content": "x"})
    STATS: ClassVar = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}
    END: ClassVar = {"type": "result", "status": "success", "stats": STATS}
    FAILED: ClassVar = {"type": "result", "status": "error", "error": {"message": "stream broke"}, "stats": {}}

    @staticmethod
    def said(text: object) -> dict[str, Any]:
        return {"type": "message", "role": "assistant", "content": text, "delta": True}

    def run(self, *messages: "dict[str, Any] | str", exit_code: int = 0) -> AgentResult:
        return Capture("gemini", exit_code, lines(*self.START, *messages)).replayed(ASKED)

    def test_pieces_before_one_success_can_be_exact(self) -> None:
        result = self.run(self.said('{"findings": '), self.said("[]}"), self.END)
        assert_can_be_exact(result)
        assert result.output == CLEAN_TEXT

    @pytest.mark.parametrize("shown", ["(node:12) Warning: x {}", "{}x", "\x00{}"])
    def test_a_piece_on_a_line_that_cannot_be_read_makes_the_answer_inexact(self, shown: str) -> None:
        line = shown.replace("{}", json.dumps(self.said(json.dumps(FINDING))))
        result = self.run(self.said('{"findings": ['), line, self.said("]}"), self.END)
        assert_inexact(result, "printed a line that could not be read")
        assert result.output == CLEAN_TEXT

    def test_a_piece_that_is_not_a_text_makes_the_answer_inexact(self) -> None:
        result = self.run(self.said('{"findings": ['), self.said([json.dumps(FINDING)]), self.said("]}"), self.END)
        assert_inexact(result, "a part of its answer that is not text")

    @pytest.mark.defect("F8")
    def test_more_than_one_result_makes_the_run_a_failure(self) -> None:
        for ends in ((self.FAILED, self.END), (self.END, self.FAILED), (self.END, self.END)):
            with pytest.raises(errors.Crashed, match="more than one result"):
                self.run(self.said(CLEAN_TEXT), *ends)
        with pytest.raises(errors.AgentError, match="stream broke"):
            self.run(self.said(CLEAN_TEXT), self.FAILED)

    @pytest.mark.defect("F8")
    def test_an_error_or_an_exit_code_makes_the_answer_inexact(self) -> None:
        for severity in ("error", "warning"):
            error = {"type": "error", "severity": severity, "message": "Loop detected"}
            assert_inexact(self.run(self.said(CLEAN_TEXT), error, self.END), "reported an error: Loop detected")
        assert_inexact(self.run(self.said(CLEAN_TEXT), self.END, exit_code=1), "exit code 1")

    def test_a_text_before_a_tool_is_kept_and_is_not_the_answer(self) -> None:
        use = {"type": "tool_use", "tool_name": "read_file", "tool_id": "1", "parameters": {}}
        used = {"type": "tool_result", "tool_id": "1", "status": "success", "output": ""}
        result = self.run(self.said(FOUND_TEXT), use, used, self.said(CLEAN_TEXT), self.END)
        assert_can_be_exact(result, FOUND_TEXT)
        assert result.output == CLEAN_TEXT

    def test_only_a_json_value_shows_that_it_was_not_cut_off(self) -> None:
        for text in ("No issues found", "No issues found.", f"{CLEAN_TEXT} But", "See"):
            assert_inexact(self.run(self.said(text), self.END), "may have been cut off")
        assert_can_be_exact(self.run(self.said(f"```json\n{CLEAN_TEXT}\n```"), self.END))
        plain = Capture("gemini", 0, lines(*self.START, self.said("No issues found"), self.END)).replayed(request())
        assert_can_be_exact(plain)


class TestClaude:
    @staticmethod
    def given(value: Any) -> dict[str, Any]:
        return {"type": "tool_use", "name": "StructuredOutput", "input": value}

    @staticmethod
    def text(text: object) -> dict[str, Any]:
        return {"type": "text", "text": text}

    @staticmethod
    def message(*blocks: dict[str, Any], identity: str = "m") -> dict[str, Any]:
        said = {"id": identity, "model": "c", "content": list(blocks), "usage": {}}
        return {"type": "assistant", "parent_tool_use_id": None, "message": said}

    @staticmethod
    def end(**more: Any) -> dict[str, Any]:
        return {**capture("claude", "answer").result, "result": CLEAN_TEXT, **more}

    def run(self, *messages: dict[str, Any], exit_code: int = 0) -> AgentResult:
        return claude_run(*messages, exit_code=exit_code).replayed(ASKED)

    def test_one_structured_answer_can_be_exact_and_the_text_beside_it_is_kept(self) -> None:
        end = self.end(structured_output=CLEAN)
        assert_can_be_exact(self.run(end))
        assert_can_be_exact(self.run(self.message(self.given(CLEAN)), end))
        said = self.message(self.text(f"One: {FOUND_TEXT}"), self.given(CLEAN))
        assert_can_be_exact(self.run(said, end), f"One: {FOUND_TEXT}")

    def test_a_rejected_structured_answer_is_kept_and_makes_the_last_one_inexact(self) -> None:
        messages = (self.message(self.given(FOUND)), self.message(self.given(CLEAN), identity="m2"))
        result = self.run(*messages, self.end(structured_output=CLEAN))
        assert_inexact(result, "several answers", FOUND_TEXT)
        assert result.structured == CLEAN

    def test_a_structured_answer_that_the_result_does_not_repeat_is_another_answer(self) -> None:
        for structured in (CLEAN, None):
            result = self.run(self.message(self.given(FOUND)), self.end(structured_output=structured))
            assert_inexact(result, "several answers", FOUND_TEXT)

    def test_an_answer_of_a_failed_run_keeps_the_earlier_ones(self) -> None:
        messages = (self.message(self.given(FOUND)), self.message(self.given(CLEAN), identity="m2"))
        with pytest.raises(errors.OutputInvalid) as raised:
            self.run(*messages, capture("claude", "schema_violated").result)
        assert (raised.value.output, raised.value.other_answers) == (CLEAN_TEXT, (FOUND_TEXT,))

    def test_two_different_texts_are_several_answers(self) -> None:
        clean = self.message(self.text(CLEAN_TEXT), identity="m2")
        result = self.run(self.message(self.text(FOUND_TEXT)), clean, self.end())
        assert_inexact(result, "several answers", FOUND_TEXT + CLEAN_TEXT)
        blocks = self.message(self.text(FOUND_TEXT), self.text(CLEAN_TEXT))
        assert_inexact(self.run(blocks, self.end()), "several answers", FOUND_TEXT + CLEAN_TEXT)
        assert_can_be_exact(self.run(self.message(self.text(CLEAN_TEXT)), clean, self.end()))

    @pytest.mark.defect("F8")
    def test_a_success_counts_only_if_the_model_stopped_by_itself(self) -> None:
        for reason in ("max_tokens", "pause_turn", "of_a_later_version", 7):
            assert_inexact(self.run(self.end(stop_reason=reason)), f"did not end its answer normally: {reason}")
        for whole in ("end_turn", "tool_use", "stop_sequence", None):
            assert_can_be_exact(self.run(self.end(stop_reason=whole)))

    @pytest.mark.defect("A4")
    def test_a_refusal_is_an_error_even_if_the_run_succeeded(self) -> None:
        with pytest.raises(errors.Refused):
            self.run(self.end(stop_reason="refusal"))

    @pytest.mark.defect("F8")
    def test_an_exit_code_other_than_0_is_not_a_success(self) -> None:
        assert_inexact(self.run(self.end(structured_output=CLEAN), exit_code=1), "exit code 1")

    def test_a_key_given_twice_in_its_structured_output_makes_the_answer_inexact(self) -> None:
        printed = json.dumps(self.end(structured_output="@")).replace('"@"', TWICE)
        result = Capture("claude", 0, printed).replayed(ASKED)
        assert_inexact(result, "key given twice: findings")
        assert result.structured == CLEAN

    def test_a_broken_line_after_the_result_makes_the_answer_inexact(self) -> None:
        printed = lines(self.end(structured_output=CLEAN), '{"type": "result", "is_error": tr')
        assert_inexact(Capture("claude", 0, printed).replayed(ASKED), "could not be read")


def test_no_line_of_a_recorded_answer_is_taken_for_a_broken_one() -> None:
    for agent in ("claude", "codex", "gemini"):
        for name in sorted(names(agent) - {"output_cut"}):
            for line in capture(agent, name).lines:
                assert not line.strip() or message_on(line.encode()).problem == "", (agent, name, line)
