from __future__ import annotations

import traceback

import pytest

from codeloupe.agents.calls.masking import mask_error, masked_request, masked_result, masked_sink
from codeloupe.errors import Crashed, OutputInvalid
from codeloupe.model.agent import AgentEvent, AgentStarted, AttemptFailed, TurnTaken
from tests.unit.agents.call_samples import made_up_token, request, result

TOKEN = made_up_token()


class TestRequests:
    def test_one_without_secrets_is_sent_as_it_is(self) -> None:
        plain = request(context={"Notes": "text"}, system_prompt="Be brief.")
        assert masked_request(plain) == (plain, ())
        assert masked_request(plain)[0] is plain

    @pytest.mark.requirement("R16")
    def test_secrets_are_masked_in_every_text_and_told_of(self) -> None:
        asked = request(
            f"look: {TOKEN}",
            system_prompt=f"key {TOKEN}",
            append_system_prompt=f"or {TOKEN}",
            context={f"about {TOKEN}": f"it is {TOKEN}", "clean": "text"},
            model="some-model",
        )
        sent, (note,) = masked_request(asked)
        assert TOKEN not in repr(sent)
        assert sent.prompt == "look: [redacted]"
        assert sent.context == {"about [redacted]": "it is [redacted]", "clean": "text"}
        assert sent.model == "some-model"
        assert note == (
            "secrets were masked in the prompt and the system_prompt and the append_system_prompt and the context"
            " before it was sent"
        )


class TestResults:
    @pytest.mark.requirement("R16")
    def test_secrets_are_masked_in_every_text(self) -> None:
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
        assert masked.permission_denials == ("Read [redacted]",)
        assert masked.session_id == "session-1"

    def test_our_own_credentials_are_masked_whatever_their_form(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_API_KEY", "plain-words-as-a-key")
        assert masked_result(result("it is plain-words-as-a-key")).output == "it is [redacted]"

    def test_one_secret_does_not_take_the_next_text_with_it(self) -> None:
        beside = {"first": "https://user", "second": ":pass@host", "third": f"{TOKEN}", "fourth": "kept"}
        assert masked_result(result(structured=beside)).structured == {**beside, "third": "[redacted]"}

    def test_what_has_no_secrets_is_the_same(self) -> None:
        plain = result("text\0with\n\0NUL", structured={"a": ["b", 1.5]})
        assert masked_result(plain) == plain

    def test_half_characters_are_replaced_and_halves_that_fit_are_joined(self) -> None:
        masked = masked_result(result("a\ud800b", raw_output="\ud83c\udf89 é", structured=["\udc00"]))
        assert masked.output == "a�b"
        assert masked.raw_output == "🎉 é"
        assert masked.structured == ["�"]

    def test_many_texts_take_one_pass(self) -> None:
        many = [f"text {number}" for number in range(50_000)]
        assert masked_result(result(structured=[*many, TOKEN])).structured == [*many, "[redacted]"]


@pytest.mark.requirement("R16")
def test_events_are_masked() -> None:
    told: list[AgentEvent] = []
    emit = masked_sink(told.append)
    emit(AgentStarted("scripted", None, f"label {TOKEN}"))
    emit(AttemptFailed("scripted", 1, "Crashed", f"it said {TOKEN}", 1.0))
    emit(TurnTaken("scripted", 2))
    assert told == [
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


class TestErrors:
    def test_what_a_model_said_is_masked_in_an_error_too(self) -> None:
        error = OutputInvalid("not as asked", agent="codex", output=f"the key is {TOKEN}", cost_usd=0.5, cut_off=True)
        mask_error(error)
        assert TOKEN not in error.output
        assert error.output.startswith("the key is ")
        assert (error.cost_usd, error.cut_off) == (0.5, True)

    @pytest.mark.requirement("R16")
    def test_every_text_of_an_error_is_masked(self) -> None:
        error = Crashed(
            f"it said {TOKEN}",
            agent="scripted",
            hint=f"unset {TOKEN}",
            raw_output=f"raw {TOKEN}",
            status=3,
            stderr_tail=f"err {TOKEN}",
        )
        error.add_note(f"attempt 1: {TOKEN}")
        mask_error(error)
        assert TOKEN not in repr(vars(error)) + repr(error)
        assert (str(error), error.message, error.hint) == (
            "it said [redacted]",
            "it said [redacted]",
            "unset [redacted]",
        )
        assert (error.raw_output, error.stderr_tail, error.status) == ("raw [redacted]", "err [redacted]", 3)
        assert error.__notes__ == ["attempt 1: [redacted]"]

    @pytest.mark.requirement("R16")
    def test_what_led_to_it_is_masked_too(self, subtests: pytest.Subtests) -> None:
        for place in ["__cause__", "__context__"]:
            for cause in [ValueError(f"bad {TOKEN}"), OSError(2, "No such file", f"/x/{TOKEN}"), Stubborn(TOKEN)]:
                with subtests.test(str((cause, place))[:80]):
                    error, between = Crashed("it failed", agent="scripted"), RuntimeError("in between")
                    error.__cause__ = between
                    setattr(between, place, cause)
                    error.__context__ = cause
                    mask_error(error)
                    shown = "".join(traceback.format_exception(error))
                    assert TOKEN not in shown
                    assert "[redacted]" in shown

    def test_a_cause_that_could_be_masked_keeps_its_kind(self) -> None:
        error = Crashed("it failed", agent="scripted")
        error.__cause__ = ValueError(f"bad {TOKEN}")
        mask_error(error)
        assert isinstance(error.__cause__, ValueError)
        assert str(error.__cause__) == "bad [redacted]"

    def test_a_clean_cause_stays_the_same_object(self) -> None:
        error, cause = Crashed("it failed", agent="scripted"), Unshowable()
        error.__cause__ = cause
        mask_error(error)
        assert error.__cause__ is cause

    def test_errors_that_led_to_each_other_do_not_go_on_for_ever(self) -> None:
        error, other = Crashed("it failed", agent="scripted"), ValueError(TOKEN)
        error.__cause__, other.__context__ = other, error
        mask_error(error)
        assert other.args == ("[redacted]",)

    def test_whether_the_context_is_shown_stays_as_it_was(self) -> None:
        error = Crashed("it failed", agent="scripted")
        error.__context__ = KeyError("x")
        mask_error(error)
        assert not error.__suppress_context__
