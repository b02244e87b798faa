from __future__ import annotations

from codeloupe.engine.plan import Bond, Weight, pack


def packed(*pieces: tuple[int, Bond] | int, header: int = 0) -> list[tuple[int, ...]]:
    """The tokens of the pieces of each unit, packed for a target of 1,000."""
    weights = [
        Weight(piece, header, Bond.STRANGER) if isinstance(piece, int) else Weight(piece[0], header, piece[1])
        for piece in pieces
    ]
    return [tuple(weights[place].tokens for place in unit) for unit in pack(weights, 1_000)]


def test_nothing_is_packed_into_nothing() -> None:
    assert packed() == []


def test_pieces_fill_a_unit_in_order() -> None:
    assert packed(400, 300, 300, 500, 400) == [(400, 300, 300), (500, 400)]


def test_a_piece_larger_than_a_unit_is_alone() -> None:
    assert packed(900, 5_000, 900) == [(900,), (5_000,), (900,)]


def test_what_is_left_over_makes_the_last_unit_larger() -> None:
    assert packed(500, 500, 250) == [(500, 500, 250)]


def test_crumbs_join_a_unit_that_has_room_the_nearest_first() -> None:
    assert packed(900, 700, 400, 1_200) == [(900,), (700, 400), (1_200,)]
    assert packed(400, 1_200, 400, 1_200) == [(400, 400), (1_200,), (1_200,)]
    assert packed(300, 1_200, 900) == [(300, 900), (1_200,)]


def test_two_halves_are_joined_but_not_to_more_than_is_asked_for() -> None:
    assert packed(520, 1_200, 540) == [(520, 540), (1_200,)]
    assert packed(600, 1_200, 620) == [(600,), (1_200,), (620,)]


def test_a_unit_ends_where_the_bond_is_weakest() -> None:
    near = [(500, Bond.STRANGER), (400, Bond.FILE)]
    for weak, strong in (
        (Bond.STRANGER, Bond.FOLDER),
        (Bond.FOLDER, Bond.BLOCK),
        (Bond.BLOCK, Bond.FILE),
        (Bond.FILE, Bond.SECTION),
    ):
        assert packed(*near, (350, weak), (350, strong), (600, Bond.SECTION))[0] == (500, 400)
        assert packed(*near, (350, strong), (350, weak), (600, Bond.SECTION))[0] == (500, 400, 350)


def test_the_header_of_a_file_counts_once_a_unit() -> None:
    assert packed(600, (200, Bond.FILE), (200, Bond.FILE), header=300) == [(600, 200, 200)]
    assert packed(600, (200, Bond.FOLDER), (200, Bond.FOLDER), header=300) == [(600,), (200, 200)]


def test_pieces_that_come_together_from_afar_keep_their_order() -> None:
    assert packed(100, 1_290, 101, 1_290, 102) == [(100, 101, 102), (1_290,), (1_290,)]
