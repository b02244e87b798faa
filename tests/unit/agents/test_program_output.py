"""What the programs print, as the agents read it: recorded runs, and messages of any shape."""

import contextlib
import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, astuple

from codeloupe import errors
from codeloupe.agents.calls.program import Message, message_on
from codeloupe.agents.claude.cli import ClaudeCliAgent
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult, TokenUsage, ToolUsed, TurnTaken
from tests.unit.agents.samples import AGENTS, EPOCH_NOW, FOLDER, Capture, capture, claude_run, names, request

RECORD = FOLDER / "replays.json"
EXPECTED = {
    "OutputInvalid": "answer_empty", "NotLoggedIn": "login_missing login_refused status_401 status_403",
    "ConnectionFailed": "connection_refused reply_cut reply_empty reply_garbage", "Crashed": "terminated",
    "InvalidRequest": "session_unknown status_400 status_404", "PromptTooLong": "status_400_too_long status_413",
    "RateLimited": "status_429 status_429_retry_after", "Overloaded": "status_500 status_503 status_529",
    "TurnsExhausted": "turns", "BudgetExhausted": "budget", "NotInstalled": "flag_unknown",
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["answer"],
}


def error_of(run: Capture, asked: Any = None) -> errors.AgentError:
    with pytest.raises(errors.AgentError) as raised:
        run.replayed(asked)
    return raised.value


def failed(agent: str, text: str, stderr: str = "") -> errors.AgentError:
    """The error of a run whose last message is about a failure."""
    said = {"message": text}
    last = {"type": "turn.failed", "error": said} if agent == "codex" else {"type": "result", "error": said}
    return error_of(Capture(agent, 0, json.dumps(last), stderr), request(model="gpt-9"))


def outcome(run: Capture, asked: AgentRequest) -> Any:
    """What a run became, and its events, as plain data without what it printed."""
    events: list[AgentEvent] = []
    try:
        found: Any = asdict(run.replayed(asked, events))
    except errors.AgentError as error:
        found = {"error": type(error).__name__, "message": error.message, "hint": error.hint, **vars(error)}
    printed, raw = [message_on(line.encode()) for line in run.lines], found["raw_output"]
    found["raw_output"] = raw == run.stdout or json.loads(raw) in printed
    told = [[type(event).__name__, *astuple(event)[1:]] for event in events]
    return json.loads(json.dumps({"events": told, **found}, default=asdict))


def replays() -> dict[str, Any]:
    """Every recorded run, for a plain request and for one with a model and a schema."""
    rows = {}
    for agent in AGENTS:
        fallback = "small" if agent == "claude" else None
        asked = request(model="big", fallback_model=fallback, output_schema=SCHEMA)
        for name in sorted(names(agent)):
            rows[f"{agent}: {name}"] = outcome(capture(agent, name), request())
            rows[f"{agent}: {name}, with a schema"] = outcome(capture(agent, name), asked)
    return rows


@pytest.mark.requirement("R7")
@pytest.mark.requirement("R10")
@pytest.mark.requirement("R12")
def test_every_recorded_run_is_the_answer_or_the_error_that_the_record_says() -> None:
    """`python -m tests.unit.agents.test_program_output` writes the record anew, for a person to compare."""
    record, found = json.loads(RECORD.read_text(encoding="utf-8")), replays()
    assert found.keys() == record.keys()
    assert {name: (found[name], record[name]) for name in record if found[name] != record[name]} == {}
    for name, row in record.items():
        agent = AGENTS[name.partition(":")[0]].program.agent
        assert (row["agent"], row["raw_output"]) == (agent, True)
        assert "error" not in row or row.get("success") or (row["hint"] and row["message"].startswith(f"{agent} "))
    # The kinds that a person would expect.
    for kind, name in ((kind, name) for kind, runs in EXPECTED.items() for name in runs.split()):
        rows = [f"{agent}: {name}" for agent in AGENTS if f"{agent}: {name}" in record]
        assert {record[row]["error"] for row in rows} == {kind}, name


@pytest.mark.requirement("R12")
def test_a_run_that_is_cut_anywhere_is_never_an_answer_and_one_that_is_whole_always() -> None:
    wrong: list[tuple[Capture, object]] = []
    for whole in (capture(agent, name) for agent in ("codex", "gemini") for name in sorted(names(agent))):
        ends = [len("".join(whole.lines[:count])) for count in range(len(whole.lines))]
        for exit_code, end in itertools.product((0, 1, 145, -9), {*ends, *(end + 20 for end in ends)}):
            cut = Capture(whole.agent, exit_code, whole.stdout[:end])
            try:
                if "turn.completed" not in cut.stdout:
                    wrong.append((cut, cut.replayed()))
            except errors.AgentError as error:
                if not error.hint:
                    wrong.append((cut, error))
    assert wrong == []
    # A bad exit code after an answer does not undo it.
    for agent, output in (("claude", "hello from fake"), ("codex", "hello from the stand-in")):
        assert Capture(agent, 1, capture(agent, "answer").stdout, "late trouble").replayed().output == output


def test_a_sentence_about_a_failure_tells_its_kind_and_the_wait() -> None:
    wrong = []
    for agent, sentences in json.loads((FOLDER / "sentences.json").read_text(encoding="utf-8")).items():
        for text, (kind, wait) in sentences.items():
            error = failed(agent, text)
            if [type(error).__name__, getattr(error, "retry_after_seconds", None)] != [kind, wait]:
                wrong.append((agent, text, error))
            if (agent, kind) == ("codex", "InvalidRequest") and "gpt-9" not in error.hint:
                wrong.append((agent, text, error))
    assert wrong == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["agent_message", "command_execution", "file_change", "error"])},
    optional=dict.fromkeys(("text", "command", "changes", "message"), VALUES),
)
CHOICES = {
    "claude": {
        "type": ["assistant", "result", "system", "rate_limit_event", "user"],
        "subtype": ["api_retry", "model_fallback", "success", "init"],
    },
    "codex": {
        "type": ["thread.started", "item.started", "item.completed", "turn.completed", "turn.failed", "error", "other"]
    },
    "gemini": {
        "type": ["init", "message", "tool_use", "tool_result", "error", "result", "other"],
        "role": ["user", "assistant"],
        "status": ["success", "error"],
    },
}
FIELDS = {
    "claude": (
        "message", "result", "is_error", "usage", "modelUsage", "errors", "session_id", "api_error_status",
        "terminal_reason", "permission_denials", "rate_limit_info", "error_status", "retry_delay_ms",
        "structured_output",
    ),
    "codex": ("item", "usage", "error", "thread_id"),
    "gemini": ("content", "stats", "error", "parameters", "tool_id", "session_id", "model", "message"),
}  # fmt: skip


@pytest.mark.parametrize("agent", list(AGENTS))
@given(data=st.data())
def test_messages_of_any_shape_end_in_an_answer_or_an_error(agent: str, data: st.DataObject) -> None:
    choices = {name: st.sampled_from(values) for name, values in CHOICES[agent].items()}
    message = st.fixed_dictionaries(choices, optional=dict.fromkeys(FIELDS[agent], VALUES | ITEMS))
    messages: list[dict[str, Any]] = data.draw(st.lists(message, max_size=6))
    stdout = "".join(f"{json.dumps(message)}\n" for message in messages)
    with contextlib.suppress(errors.AgentError):
        assert Capture(agent, 0, stdout).replayed().output.strip()


class TestClaude:
    def test_an_answer_that_does_not_count_is_told_with_its_cost(self) -> None:
        def assistant(*blocks: dict[str, Any], identity: str = "m1", **more: Any) -> dict[str, Any]:
            said = {"id": identity, "model": "claude-opus-5-5", "content": list(blocks)}
            return {"type": "assistant", "message": said, "parent_tool_use_id": None, **more}

        def words(text: str) -> dict[str, Any]:
            return {"type": "text", "text": text}

        def used(tool: str, **given: Any) -> dict[str, Any]:
            return {"type": "tool_use", "name": tool, "input": given}

        cases = (
            ((), ""),
            ((assistant(words("a ")), assistant(words("b")), assistant(words(" c"), identity="m2")), "a b c"),
            ((assistant(words("let me look"), used("Read")), assistant(words("it is"), identity="m2")), "it is"),
            ((assistant(words("now"), used("StructuredOutput", answer="P0")),), '{"answer": "P0"}'),
            ((assistant(words("mine")), assistant(words("a helper's"), parent_tool_use_id="t1")), "mine"),
        )
        for name, (messages, said) in itertools.product(("max_tokens", "schema_violated"), cases):
            recorded = capture("claude", name)
            error = error_of(claude_run(*messages, recorded.result, exit_code=1))
            assert isinstance(error, errors.OutputInvalid)
            assert error.output == said
            assert ("was cut off" in error.message) is (name == "max_tokens")
            assert error.cost_usd == recorded.result["total_cost_usd"]
            assert error.usage is not None
            assert error.usage.input_tokens > 0
        turns = error_of(capture("claude", "turns"))
        assert turns.cost_usd == capture("claude", "turns").result["total_cost_usd"] > 0

    def test_tokens_count_everything_that_was_sent_and_a_resumed_session_costs_its_share(self) -> None:
        def run(*, resumed: bool = False, **fields: Any) -> AgentResult:
            whole = {**capture("claude", "answer").result, "usage": {}, "modelUsage": {}, **fields}
            return claude_run(whole).replayed(request(resume_session="x" if resumed else None))

        by_model = {
            "a": {"inputTokens": 10, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 3, "outputTokens": 2},
            "b": {"inputTokens": 1, "outputTokens": 1},
        }
        plain = {"input_tokens": 7, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": 4}
        assert run(modelUsage=by_model).usage == TokenUsage(input_tokens=19, cached_tokens=5, output_tokens=3)
        assert run(usage=plain).usage == TokenUsage(input_tokens=10, cached_tokens=2, output_tokens=4)
        session: dict[str, Any] = {
            "total_cost_usd": 3.0,
            "usage": {"input_tokens": 100, "output_tokens": 20},
            "modelUsage": {"m": {"inputTokens": 300, "outputTokens": 60}},
        }
        share, whole = run(resumed=True, **session), run(**session)
        assert share.total_cost_usd == pytest.approx(1.0)
        assert share.usage == TokenUsage(input_tokens=100, output_tokens=20)
        assert "whole session" in share.notes[0]
        assert (whole.total_cost_usd, whole.usage.input_tokens, whole.notes) == (3.0, 300, ())
        for usage in ({}, {"input_tokens": 900}, "none"):
            assert run(resumed=True, **{**session, "usage": usage}).total_cost_usd == 3.0

        for cost in (10**400, float("inf"), -1, "much", True):
            odd = run(total_cost_usd=cost, num_turns=10**400, usage={"input_tokens": 10**400})
            assert (odd.output, odd.total_cost_usd, odd.num_turns) == ("hello from fake", None, 0)
            assert odd.usage.input_tokens == 0

    def test_a_wait_that_the_service_asked_for_or_a_quota_that_ended_is_told(self) -> None:
        def retry(delay_ms: int) -> dict[str, Any]:
            return {"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": delay_ms}

        def quota(status: str, resets_at: float) -> dict[str, Any]:
            return {"type": "rate_limit_event", "rate_limit_info": {"status": status, "resetsAt": resets_at}}

        refused = capture("claude", "status_429").result
        text = f"Usage limit reached|{EPOCH_NOW + 60:.0f}"
        in_text = {"type": "result", "is_error": True, "terminal_reason": "api_error", "result": text}
        cases: list[tuple[tuple[dict[str, Any], ...], float | None]] = [
            ((retry(1000),), 1),
            ((retry(59_000),), 59),
            ((retry(625),), None),  # the wait of the program itself
            ((quota("rejected", EPOCH_NOW + 3600), refused), 3600),
            ((quota("allowed_warning", EPOCH_NOW + 3600), refused), None),
            ((in_text,), 60),
        ]
        for messages, wait in cases:
            error = error_of(claude_run(*messages))
            assert isinstance(error, errors.RateLimited)
            assert (error.retry_after_seconds, error.retryable) == (wait, True)
        both = error_of(claude_run(quota("rejected", time.time() + 3600), retry(1000)))
        assert isinstance(both, errors.RateLimited)
        assert both.retry_after_seconds == pytest.approx(3600, abs=60)

    def test_an_answer_counts_only_when_all_of_it_is_well(self) -> None:
        cases: list[tuple[dict[str, Any], type[errors.AgentError]]] = [
            ({"is_error": None}, errors.Crashed),
            ({"is_error": "false"}, errors.Crashed),
            ({"terminal_reason": "aborted_streaming"}, errors.Crashed),
            ({"subtype": "error_max_turns"}, errors.TurnsExhausted),
            ({"result": None}, errors.OutputInvalid),
            ({"result": " \n"}, errors.OutputInvalid),
            ({"result": 7}, errors.OutputInvalid),
            ({"is_error": True, "terminal_reason": "api_error"}, errors.ConnectionFailed),
            ({"is_error": True, "api_error_status": 400}, errors.InvalidRequest),
            ({"is_error": True, "api_error_status": 408}, errors.ConnectionFailed),
            ({"is_error": True, "api_error_status": 503}, errors.Overloaded),
            ({"is_error": True, "terminal_reason": None, "subtype": "error_max_turns"}, errors.TurnsExhausted),
        ]
        wrong = []
        for change, kind in cases:
            error = error_of(claude_run({**capture("claude", "answer").result, **change}))
            if type(error) is not kind:
                wrong.append((change, error))
        assert wrong == []

    @pytest.mark.defect("F8")
    def test_any_subtype_other_than_success_is_a_failure(self) -> None:
        for terminal_reason in ("completed", None):
            for subtype in ("error_during_execution", "error_of_a_later_version", "", None, 7):
                change = {"subtype": subtype, "is_error": False, "terminal_reason": terminal_reason}
                change["result"] = "The operator is overloaded, and an invalid API key is accepted."
                error = error_of(claude_run({**capture("claude", "answer").result, **change}))
                assert isinstance(error, errors.Crashed)
                assert error.hint
                assert error.cost_usd
                if subtype == "error_during_execution":
                    assert "(error_during_execution)" in error.message

    @pytest.mark.defect("F8")
    def test_a_second_result_makes_the_run_a_failure(self) -> None:
        good = capture("claude", "answer").result
        bad = {**good, "subtype": "error_during_execution", "is_error": True, "total_cost_usd": 0.0}
        for results in ((good, good), (good, bad), (bad, good), (good, good, good)):
            error = error_of(claude_run(*results))
            assert isinstance(error, errors.Crashed)
            assert error.message == "claude_cli gave more than one result"
            assert error.cost_usd == good["total_cost_usd"]
            assert error.raw_output.count('"type": "result"') == 2
        assert claude_run(good).replayed().output == "hello from fake"

    @pytest.mark.requirement("R10")
    def test_an_error_names_the_model_and_is_one_short_line_and_a_crash_keeps_the_last_words(self) -> None:
        missing = capture("claude", "status_404")
        assert "some-model" in error_of(missing, request(model="some-model")).hint
        assert "default" in error_of(missing).hint
        error = error_of(claude_run({"type": "result", "is_error": True, "result": "a\nb " * 1000}))
        assert "\n" not in error.message
        assert len(error.message) < 700
        crashed = error_of(Capture("claude", 134, "", "x" * 9000 + "the end"))
        assert isinstance(crashed, errors.Crashed)
        assert (crashed.status, crashed.stderr_tail) == (134, "x" * 3993 + "the end")

    def test_only_what_the_model_itself_does_is_a_turn_or_a_tool_whose_detail_is_one_short_line(self) -> None:
        used = {"type": "tool_use", "name": "Read", "input": {"file_path": "f"}}
        said = {"id": "m1", "model": "a", "content": [used]}
        schema = {"type": "tool_use", "name": "StructuredOutput", "input": {"answer": 1}}
        details = {"\n  git log\nrm -r /": "git log", "x" * 5000: "x" * 80}
        told = [{"command": text} for text in details] + [{"content": "secret"}, None]
        tools = [{"type": "tool_use", "name": "T", "input": one} for one in told]
        events: list[AgentEvent] = []
        reading = ClaudeCliAgent.reading(ClaudeCliAgent.program, request(), events.append)
        for message in (
            {"type": "assistant", "message": said},
            {"type": "assistant", "message": said},
            {"type": "assistant", "message": {**said, "id": "m2"}, "parent_tool_use_id": "t"},
            {"type": "assistant", "message": {"id": "m3", "model": "<synthetic>", "content": [used]}},
            {"type": "assistant", "message": {"id": "m1", "model": "a", "content": [schema, *tools]}},
        ):
            reading.take(Message(message))
        assert [event for event in events if isinstance(event, TurnTaken)] == [TurnTaken("claude_cli", 1)]
        shown = [event.detail for event in events if isinstance(event, ToolUsed)]
        assert shown == ["f", "f", "f", *details.values(), "", ""]

    def test_a_session_that_is_no_session_is_a_wrong_request_and_not_tried_again(self) -> None:
        # The program's own words, for a name that is no UUID.
        said = (
            "Error: --resume requires a valid session ID or session title when used with --print. Usage: claude -p"
            ' --resume <session-id|title>. Provided value "mine" is not a UUID and does not match any session title.'
        )
        told = {"type": "result", "is_error": True, "subtype": "error_during_execution", "result": said}
        for run in (claude_run(told), Capture("claude", 1, "", said)):
            error = error_of(run)
            assert isinstance(error, errors.InvalidRequest)
            assert not error.retryable
            assert "does not know the session" in error.message
            assert "remove resume_session" in error.hint


class TestCodex:
    def test_another_session_than_the_one_asked_for_is_no_answer(self) -> None:
        run = capture("codex", "answer")
        own = json.loads(run.lines[0])["thread_id"]
        assert run.replayed(request(resume_session=own.upper())).session_id == own
        other = "01a1e194-efef-7572-9e0c-bae4611c8902"
        for asked, wanted in (
            (request(resume_session=other), f"resume the session {other}"),
            (request(resume_session=own, fork_session=True), f"fork the session {own}"),
        ):
            said = f"codex was asked to {wanted}, but continued in the session {own}"
            assert error_of(run, asked).message == said

    def test_status_and_wait_are_those_of_the_last_reply_in_the_log_which_no_error_repeats(self) -> None:
        line = capture("codex", "status_429_retry_after").stderr
        good = line.replace("429 Too Many Requests", "200 OK")
        for name, wait in (("status_429_retry_after", 7), ("status_429", None)):
            error = error_of(capture("codex", name))
            assert isinstance(error, errors.RateLimited)
            assert error.retry_after_seconds == wait
        for text, log, kind in (
            ("stream disconnected before completion", line + good, errors.ConnectionFailed),
            ("odd", good + line, errors.RateLimited),
        ):
            assert type(failed("codex", text, log)) is kind
        crashed = error_of(Capture("codex", 101, "", f"{line}out of memory\n"))
        assert isinstance(crashed, errors.Crashed)
        assert crashed.stderr_tail == "out of memory"


class TestGemini:
    def test_thoughts_count_as_output_and_an_invisible_character_of_ours_is_taken_out(self) -> None:
        run = capture("gemini", "answer")
        more = run.stdout.replace('"total_tokens":940', '"total_tokens":1000')
        assert more != run.stdout
        assert Capture("gemini", 0, more).replayed().usage.output_tokens == 100
        for told in ("@\\u2060app", "@\u2060app", "@\\\\u2060app"):
            stdout = run.stdout.replace("hello from the stand-in", told)
            assert Capture("gemini", 0, stdout).replayed().output == "@app"

    def test_a_run_that_sent_nothing_had_too_long_a_prompt(self) -> None:
        lines = capture("gemini", "answer").lines
        for models, kind in (
            ({}, errors.PromptTooLong),
            ({"gemini-2.5-flash": {"total_tokens": 5}}, errors.OutputInvalid),
        ):
            last = {"type": "result", "status": "success", "stats": {"total_tokens": 0, "models": models}}
            assert type(error_of(Capture("gemini", 0, "".join((*lines[:2], json.dumps(last)))))) is kind

    @pytest.mark.requirement("R12")
    def test_an_exit_code_alone_or_the_status_in_the_stderr_tells_what_it_can(self) -> None:
        kinds = {
            "NotLoggedIn": (41, 145), "TurnsExhausted": (53,), "InvalidRequest": (144,), "RateLimited": (173,),
            "Overloaded": (244, 247, 17), "Crashed": (1, 3, 130, 0),
        }  # fmt: skip
        for kind, codes in kinds.items():
            assert {type(error_of(Capture("gemini", code, ""))).__name__ for code in codes} == {kind}
        error = error_of(Capture("gemini", 1, "", capture("gemini", "status_429_retry_after").stderr))
        assert isinstance(error, errors.RateLimited)
        assert error.retry_after_seconds == 7


if __name__ == "__main__":
    lines = (json.dumps({name: row}, ensure_ascii=False)[1:-1] for name, row in replays().items())
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
