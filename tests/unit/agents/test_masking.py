import traceback

import pytest

from codeloupe.agents.calls.masking import mask_error, masked_request, masked_result, masked_sink
from codeloupe.errors import Crashed, OutputInvalid
from codeloupe.model.agent import AgentEvent, AgentStarted, AttemptFailed, TurnTaken
from tests.unit.agents.samples import made_up_token, request, result

TOKEN = made_up_token()


@pytest.mark.requirement("R16")
def test_secrets_are_masked_in_every_text_of_a_request_and_noted() -> None:
    plain = request(context={"Notes": "text"}, system_prompt="Be brief.")
    assert masked_request(plain)[0] is plain
    sent, (note,) = masked_request(
        request(
            f"look: {TOKEN}",
            system_prompt=f"key {TOKEN}",
            append_system_prompt=f"or {TOKEN}",
            context={f"about {TOKEN}": f"it is {TOKEN}", "clean": "text"},
        )
    )
    assert TOKEN not in repr(sent)
    assert sent.prompt == "look: [redacted]"
    assert sent.context == {"about [redacted]": "it is [redacted]", "clean": "text"}
    names = "the prompt and the system_prompt and the append_system_prompt and the context"
    assert note == f"secrets were masked in {names} before it was sent"


@pytest.mark.requirement("R16")
def test_secrets_are_masked_in_every_text_of_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    masked = masked_result(
        result(
            f"it is {TOKEN}",
            raw_output=f"raw {TOKEN}",
            structured={"a": [f"x {TOKEN}", 1, None, {TOKEN: True}]},
            permission_denials=(f"Read {TOKEN}",),
            notes=(f"note {TOKEN}",),
            session_id="session-1",
        )
    )
    assert TOKEN not in repr(masked)
    assert masked.structured == {"a": ["x [redacted]", 1, None, {"[redacted]": True}]}
    assert (masked.permission_denials, masked.session_id) == (("Read [redacted]",), "session-1")
    monkeypatch.setenv("SOME_API_KEY", "plain-words-as-a-key")
    assert masked_result(result("it is plain-words-as-a-key")).output == "it is [redacted]"


def test_one_secret_does_not_take_other_texts_with_it_and_of_others_only_half_characters_change() -> None:
    beside = {"first": "https://user", "second": ":pass@host", "third": f"{TOKEN}", "fourth": "kept"}
    assert masked_result(result(structured=beside)).structured == {**beside, "third": "[redacted]"}
    plain = result("text\0with\n\0NUL", structured={"a": ["b", 1.5]})
    assert masked_result(plain) == plain
    halves = masked_result(result("a\ud800b", raw_output="\ud83c\udf89 é", structured=["\udc00"]))
    assert (halves.output, halves.raw_output, halves.structured) == ("a�b", "🎉 é", ["�"])
    many = [f"text {number}" for number in range(50_000)]
    assert masked_result(result(structured=[*many, TOKEN])).structured == [*many, "[redacted]"]


@pytest.mark.requirement("R16")
def test_events_are_masked() -> None:
    passed_on: list[AgentEvent] = []
    emit = masked_sink(passed_on.append)
    emit(AgentStarted("scripted", None, f"label {TOKEN}"))
    emit(AttemptFailed("scripted", 1, "Crashed", f"it said {TOKEN}", 1.0))
    emit(TurnTaken("scripted", 2))
    assert passed_on == [
        AgentStarted("scripted", None, "label [redacted]"),
        AttemptFailed("scripted", 1, "Crashed", "it said [redacted]", 1.0),
        TurnTaken("scripted", 2),
    ]


class Stubborn(Exception):
    """Its text is made from what no one can reach."""

    __slots__ = ("_words",)

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    def __str__(self) -> str:
        return f"stubborn {self._words}"


class Unshowable(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.requirement("R16")
def test_every_text_of_an_error_is_masked() -> None:
    said = OutputInvalid("no", agent="codex", output=f"the key is {TOKEN}", cost_usd=0.5, other_answers=(TOKEN,))
    mask_error(said)
    assert (said.output, said.cost_usd, said.other_answers) == ("the key is [redacted]", 0.5, ("[redacted]",))
    texts = {name: f"{name} {TOKEN}" for name in ("hint", "raw_output", "stderr_tail")}
    error = Crashed(f"it said {TOKEN}", agent="scripted", status=3, **texts)
    error.add_note(f"attempt 1: {TOKEN}")
    mask_error(error)
    assert TOKEN not in repr(vars(error)) + repr(error)
    assert str(error) == error.message == "it said [redacted]"
    assert {name: getattr(error, name) for name in texts} == {name: f"{name} [redacted]" for name in texts}
    assert (error.status, error.__notes__) == (3, ["attempt 1: [redacted]"])


@pytest.mark.requirement("R16")
def test_what_led_to_an_error_is_masked_too() -> None:
    for place in ("__cause__", "__context__"):
        for cause in (ValueError(f"bad {TOKEN}"), OSError(2, "No such file", f"/x/{TOKEN}"), Stubborn(TOKEN)):
            error, between = Crashed("it failed", agent="scripted"), RuntimeError("in between")
            error.__cause__ = between
            setattr(between, place, cause)
            error.__context__ = cause
            mask_error(error)
            shown = "".join(traceback.format_exception(error))
            assert (TOKEN in shown, "[redacted]" in shown) == (False, True)


def test_a_cause_keeps_its_kind_and_a_circle_of_them_ends() -> None:
    error, cause = Crashed("it failed", agent="scripted"), Unshowable()
    error.__cause__ = cause
    mask_error(error)
    assert error.__cause__ is cause
    error, other = Crashed("it failed", agent="scripted"), ValueError(TOKEN)
    error.__cause__, other.__context__ = other, error
    mask_error(error)
    assert error.__cause__ is other
    assert other.args == ("[redacted]",)
    error = Crashed("it failed", agent="scripted")
    error.__context__ = KeyError("x")
    mask_error(error)
    assert not error.__suppress_context__, "whether the context is shown has changed"
