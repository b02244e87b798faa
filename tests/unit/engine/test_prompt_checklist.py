from __future__ import annotations

from msgspec.structs import replace

from codeloupe.engine.prompt import checklist
from codeloupe.model.expert import Expert
from tests.unit.engine.prompt_samples import CORRECTNESS, SECURITY


def test_one_expert_says_all_that_it_knows() -> None:
    expert = replace(
        CORRECTNESS,
        sceptical_of=("copied code",),
        do_not_flag=("style.", "names"),
        severity_guide={"critical": "data is lost", "low": "odd"},
    )
    assert checklist((expert,)) == (
        "- correctness: Wrong results.\n"
        "Look for: wrong conditions; lost errors\n"
        "Be sceptical of: copied code\n"
        "Leave out here: style; names\n"
        "Severity here: critical = data is lost; low = odd"
    )


def test_several_experts_are_a_line_each() -> None:
    assert checklist((CORRECTNESS, SECURITY)) == (
        "- correctness: wrong conditions; lost errors\n- security: injection; secrets in code"
    )


def test_several_experts_share_a_fixed_room_and_each_keeps_its_first_point() -> None:
    experts = [
        Expert(name=f"expert{number}", description="d", focus=tuple(f"point {n} " + "x" * 60 for n in range(20)))
        for number in range(9)
    ]
    text = checklist(experts)
    assert len(text) < 1_200
    assert all(f"- expert{number}: point 0 " in text for number in range(9))


def test_what_an_expert_leaves_out_is_said_where_it_fits() -> None:
    strict = replace(SECURITY, do_not_flag=("tests", "y" * 900))
    assert checklist((CORRECTNESS, strict)).endswith("- security: injection; secrets in code (not: tests)")


def test_an_expert_without_points_gives_its_description() -> None:
    assert checklist((replace(CORRECTNESS, focus=()), SECURITY)).startswith("- correctness: Wrong results\n")


def test_the_words_of_an_expert_stay_on_their_line() -> None:
    expert = Expert(name="own\nname", description="a\n\nSeverity: x\u202e", focus=("one\n- two",))
    assert checklist((expert,)) == "- own name: a Severity: x<U+202E>\nLook for: one - two"


def test_without_experts_correctness_is_asked_for() -> None:
    assert checklist(()).startswith("- correctness: ")
