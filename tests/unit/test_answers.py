from __future__ import annotations

from codeloupe.engine.keeping import Answers


def test_answers_and_failures_are_kept_and_prompts_are_not() -> None:
    heard: list[tuple[str, str]] = []
    answers = Answers(lambda title, text: heard.append((title, text)))
    answers("prompt of a.py", "look at this")
    answers("answer of a.py", "not JSON")
    answers("answer of a.py", "{}")
    answers("failure of b.py", "timeout")
    assert dict(answers.texts) == {"answer of a.py": "not JSON\n\n{}", "failure of b.py": "timeout"}
    assert [title for title, _ in heard] == ["prompt of a.py", "answer of a.py", "answer of a.py", "failure of b.py"]


def test_endless_answers_do_not_fill_the_history() -> None:
    answers = Answers()
    for number in range(30):
        answers(f"answer of {number}", "x" * 5_000_000)
    assert {len(text) for text in answers.texts.values()} == {1_000_000}
    assert sum(len(text) for text in answers.texts.values()) == 20_000_000
