"""The frozen classes made here do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from codeloupe.model.records import dataclass as ours


@dataclasses.dataclass(frozen=True, slots=True)
class _Theirs:
    """Data."""

    name: str
    size: int = 3
    secret: str = dataclasses.field(default="x", repr=False)
    note: list[int] = dataclasses.field(default_factory=list, hash=False)
    left_out: float = dataclasses.field(default=0.0, compare=False)


@ours(frozen=True, slots=True)
class _Ours:
    """Data."""

    name: str
    size: int = 3
    secret: str = dataclasses.field(default="x", repr=False)
    note: list[int] = dataclasses.field(default_factory=list, hash=False)
    left_out: float = dataclasses.field(default=0.0, compare=False)


@ours(frozen=True, slots=True)
class _Empty:
    """Nothing."""


@ours(frozen=True, slots=True)
class _One:
    """One value."""

    value: Any


@ours(frozen=True, slots=True, kw_only=True)
class _More(_One):
    """One more value."""

    other: int = 1


@ours(frozen=True)
class _WithOwnMethods:  # noqa: PLW1641 - the hash is made
    """A class that compares and shows itself in its own way."""

    value: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WithOwnMethods) and other.value.lower() == self.value.lower()

    def __repr__(self) -> str:
        return "shown"


@ours(frozen=True, slots=True)
class _Checked:
    """A value that is looked at."""

    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError("negative")


@dataclasses.dataclass(frozen=True, slots=True)
class _Further(_One):
    """More data."""

    more: int


@ours(frozen=True)
class _Odd:
    """All that is seldom used."""

    value: int
    shared: ClassVar[int] = 7
    made: int = dataclasses.field(init=False)
    given: dataclasses.InitVar[int] = 0

    def __post_init__(self, given: int) -> None:
        object.__setattr__(self, "made", given)


@ours(slots=True)
class _Loose:
    """A class that is not frozen."""

    value: int


def test_its_words_and_its_hash_are_those_of_the_standard_library() -> None:
    theirs, mine = _Theirs("a", note=[1]), _Ours("a", note=[1])
    assert repr(mine) == repr(theirs).replace("_Theirs", "_Ours")
    assert hash(mine) == hash(theirs)
    assert "secret" not in repr(mine)
    assert _Ours.__match_args__ == _Theirs.__match_args__


@pytest.mark.parametrize(
    ("values", "same"),
    [({}, True), ({"size": 4}, False), ({"secret": "y"}, False), ({"note": [2]}, False), ({"left_out": 1.0}, True)],
)
def test_it_compares_the_fields_that_are_to_be_compared(values: dict[str, Any], same: bool) -> None:
    assert (_Ours("a") == _Ours("a", **values)) is same
    assert (_Theirs("a") == _Theirs("a", **values)) is same


def test_it_is_never_equal_to_another_class_with_the_same_values() -> None:
    assert _One(1) != _More(value=1)
    others: tuple[object, ...] = (1, (1,))
    for other in others:
        assert _One(other) != other


def test_it_can_be_frozen_copied_replaced_and_pickled() -> None:
    mine = _Ours("a", note=[1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        mine.name = "b"  # type: ignore[misc]  # this is what must fail
    assert dataclasses.replace(mine, name="b") == _Ours("b", note=[1])
    assert copy.deepcopy(mine) == mine
    assert pickle.loads(pickle.dumps(mine)) == mine
    assert dataclasses.asdict(mine)["note"] == [1]
    assert not hasattr(mine, "__dict__")


@pytest.mark.parametrize("words", [(), ("a", 1, "b", [], 0.5, 6)], ids=["too few", "too many"])
def test_a_wrong_number_of_arguments_is_told_as_usual(words: tuple[Any, ...]) -> None:
    said = []
    for kind in (_Theirs, _Ours):
        with pytest.raises(TypeError) as refused:
            kind(*words)
        said.append(str(refused.value).replace("_Theirs", "_Ours"))
    assert said[0] == said[1]


def test_each_one_gets_a_list_of_its_own() -> None:
    one, other = _Ours("a"), _Ours("a")
    one.note.append(1)
    assert other.note == []


def test_what_is_done_behind_the_constructor_is_done() -> None:
    with pytest.raises(ValueError, match="negative"):
        _Checked(-1)
    assert _Checked(1).value == 1


def test_the_standard_library_can_inherit_from_it() -> None:
    assert repr(_Further(1, 2)) == "_Further(value=1, more=2)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        _Further(1, 2).more = 3  # type: ignore[misc]  # this is what must fail


def test_fields_that_are_no_arguments_work_as_usual() -> None:
    odd = _Odd(1, given=4)
    assert (odd.value, odd.made, _Odd.shared) == (1, 4, 7)


def test_a_class_without_fields_and_one_that_inherits_work() -> None:
    assert _Empty() == _Empty()
    assert hash(_Empty()) == hash(())
    assert repr(_Empty()) == "_Empty()"
    assert repr(_More(value="x")) == "_More(value='x', other=1)"
    assert len({_More(value=1), _More(value=1), _More(value=1, other=2)}) == 2


def test_a_value_that_holds_itself_is_shown() -> None:
    around: list[object] = []
    one = _One(around)
    around.append(one)
    assert repr(one) == "_One(value=[...])"


def test_methods_of_its_own_stay() -> None:
    assert _WithOwnMethods("a") == _WithOwnMethods("A")
    assert repr(_WithOwnMethods("a")) == "shown"


def test_a_class_that_is_not_frozen_is_made_by_the_standard_library() -> None:
    loose = _Loose(1)
    loose.value = 2
    assert loose == _Loose(2)
    with pytest.raises(TypeError):
        hash(loose)
