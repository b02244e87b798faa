import tomllib
from importlib.resources import files

from hypothesis import given
from hypothesis import strategies as st

from codeloupe.commits.categories import categorise
from codeloupe.model.sweep import CommitCategory
from tests.rows import each
from tests.unit.commits.commit_messages import MESSAGES, Message
from tests.unit.commits.sweep_samples import commit


def category(text: str, files: tuple[str, ...] = ()) -> CommitCategory:
    subject, _, body = text.partition("\n\n")
    return categorise(commit(subject=subject, body=body, files=files))


@each("message", MESSAGES)
def test_each_message_of_the_table_has_its_category(message: Message) -> None:
    assert category(message.text, message.files) is message.category


def test_the_table_is_long_and_has_every_category() -> None:
    assert len(MESSAGES) >= 120
    assert {message.category for message in MESSAGES} == set(CommitCategory)
    # Of such a size that work that grows with its square would not end within the time limit of a test.
    assert len([message for message in MESSAGES if len(message.text) > 100_000]) >= 7
    many = tuple(f"tests/test_{number}.py" for number in range(120_000))
    assert category("asdf", many) is CommitCategory.TEST_CHANGE


def test_no_rule_stands_for_two_categories() -> None:
    tables = tomllib.loads(files("codeloupe.commits").joinpath("categories.toml").read_text(encoding="utf-8"))
    del tables["skipped"], tables["experts"]
    for name, table in tables.items():
        words = [word for entries in table.values() for word in entries]
        assert sorted(words) == sorted(set(words)), name
        assert all(CommitCategory(category) for category in table)


@given(st.text(max_size=200), st.lists(st.text(min_size=1, max_size=40), max_size=5))
def test_any_message_has_a_category(text: str, names: list[str]) -> None:
    assert category(text, tuple(names)) in CommitCategory


@given(st.sampled_from(["fix", "feat", "docs", "test", "refactor", "chore"]), st.text(max_size=80))
def test_a_conventional_type_decides_whatever_follows(word: str, rest: str) -> None:
    alone = category(f"{word}: x")
    assert category(f"{word}: {rest}") is alone
    assert category(f"{word.upper()}(scope)!: {rest}") is alone
