from __future__ import annotations

from itertools import pairwise

from codeloupe.engine.plan import Piece, cut_hunk, hunk_tokens
from codeloupe.engine.prompt import MAX_LINE_BYTES
from codeloupe.model.change import Hunk
from tests.unit.engine.plan_samples import LINE, hunk_of, own_body
from tests.unit.engine.samples import each_row

FUNCTION = b"+def work():\n" + b"+    value = compute(value)\n" * 18 + b"+\n"


def cut(hunk: Hunk, *, target: int = 200) -> tuple[Piece, ...]:
    return cut_hunk(hunk, target_tokens=target, most_tokens=round(target * 1.3))


def numbers(piece: Piece) -> tuple[int, int, int, int]:
    hunk = piece.hunk
    return hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines


def test_a_hunk_that_fits_is_left_as_it_is() -> None:
    hunk = hunk_of((b"+" + LINE) * 10)
    assert cut_hunk(hunk, target_tokens=150, most_tokens=hunk_tokens(hunk)) == (Piece(hunk, 0, hunk_tokens(hunk)),)


def test_pieces_of_an_added_file_count_only_new_lines() -> None:
    pieces = cut(hunk_of((b"+" + LINE) * 60))
    assert len(pieces) > 2
    assert numbers(pieces[0])[:3] == (0, 0, 1)
    next_line = 1
    for piece in pieces:
        old_start, old_lines, new_start, new_lines = numbers(piece)
        assert (old_start, old_lines) == (0, 0)
        assert new_start + piece.repeated_rows == next_line
        assert piece.hunk.added == new_lines
        next_line = new_start + new_lines
    assert next_line == 61


def test_pieces_of_a_deleted_file_count_only_old_lines() -> None:
    pieces = cut(hunk_of((b"-" + LINE) * 60))
    assert len(pieces) > 2
    assert {numbers(piece)[2:] for piece in pieces} == {(0, 0)}
    assert pieces[-1].hunk.old_start + pieces[-1].hunk.old_lines == 61


def test_a_piece_begins_with_a_few_rows_of_the_one_before_as_they_are() -> None:
    body = b"".join(b"%c    value_%d = compute()\n" % (b"+ -"[number % 3], number) for number in range(300))
    pieces = cut(hunk_of(body, old_start=7, new_start=9), target=1_000)
    assert len(pieces) > 2
    assert [piece.repeated_rows for piece in pieces] == [0] + [5] * (len(pieces) - 1)
    for before, after in pairwise(pieces):
        repeated = after.hunk.body.split(b"\n")[:5]
        assert before.hunk.body.endswith(b"\n".join(repeated) + b"\n")
        assert after.hunk.added == sum(row.startswith(b"+") for row in after.hunk.body.split(b"\n"))
    assert b"".join(own_body(piece.hunk, piece.repeated_rows) for piece in pieces) == body


def test_pieces_are_even_and_near_the_size_asked_for() -> None:
    tokens = [piece.tokens for piece in cut(hunk_of((b"+" + LINE) * 300))]
    assert max(tokens) <= 260
    assert min(tokens) >= 150


def test_a_cut_is_made_before_a_definition_when_one_is_near() -> None:
    pieces = cut(hunk_of(FUNCTION * 9), target=150)
    own = [own_body(piece.hunk, piece.repeated_rows) for piece in pieces]
    assert len(own) > 3
    assert all(body.startswith(b"+def work") for body in own)


def test_a_cut_does_not_part_old_lines_from_those_that_replace_them() -> None:
    def check(context: bytes) -> None:
        change = context + (b"-" + LINE) * 3 + (b"+" + LINE) * 2
        pieces = cut(hunk_of(change * 31), target=350)
        assert len(pieces) > 3
        assert all(own_body(piece.hunk, piece.repeated_rows).startswith(change) for piece in pieces)

    each_row([b"", b" same()\n" * 3], check)


def test_a_cut_that_must_be_inside_a_change_is_not_between_old_and_new() -> None:
    pieces = cut(hunk_of((b"-" + LINE) * 12 + (b"+" + LINE) * 12))
    assert len(pieces) == 2
    assert own_body(pieces[1].hunk, pieces[1].repeated_rows)[:1] != b"+"


def test_a_later_piece_names_the_definition_that_it_continues() -> None:
    body = b"+class Large:\n" + b"+    value = compute(first, second)\n" * 60
    pieces = cut(hunk_of(body, section="def earlier():"))
    assert [piece.hunk.section for piece in pieces[:3]] == ["def earlier():", "class Large:", "class Large:"]


def test_an_endless_row_is_never_cut_and_weighs_what_is_shown_of_it() -> None:
    def check(rows_around: int) -> None:
        around = (b"+" + LINE) * rows_around
        body = around + b"+" + b"var a;" * 500_000 + b"\n" + around
        pieces = cut(hunk_of(body), target=1_000)
        assert b"".join(own_body(piece.hunk, piece.repeated_rows) for piece in pieces) == body
        endless = [piece for piece in pieces if len(piece.hunk.body) > MAX_LINE_BYTES]
        assert len(endless) == 1
        assert endless[0].tokens < MAX_LINE_BYTES

    each_row([0, 30], check)


def test_two_endless_rows_are_two_pieces() -> None:
    pieces = cut(hunk_of(b"-" + b"a(1);" * 4_000 + b"\n+" + b"b(1);" * 4_000 + b"\n"), target=1_000)
    assert [(numbers(piece), piece.repeated_rows) for piece in pieces] == [((1, 1, 0, 0), 0), ((1, 0, 1, 1), 0)]


def test_the_mark_of_a_missing_newline_stays_with_its_row() -> None:
    marker = b"\\ No newline at end of file\n"
    for rows in range(20, 60):
        body = (b"-" + LINE) * rows + marker + (b"+" + LINE) * 30 + marker
        pieces = cut(hunk_of(body))
        assert b"".join(own_body(piece.hunk, piece.repeated_rows) for piece in pieces) == body
        assert not any(piece.hunk.body.startswith(b"\\") for piece in pieces)
        assert not any(own_body(piece.hunk, piece.repeated_rows).startswith(b"\\") for piece in pieces)


def test_a_body_without_a_last_newline_stays_without() -> None:
    body = ((b"+" + LINE) * 60).rstrip(b"\n")
    pieces = cut(hunk_of(body))
    assert len(pieces) > 2
    assert b"".join(own_body(piece.hunk, piece.repeated_rows) for piece in pieces) == body
    assert pieces[-1].hunk.new_start + pieces[-1].hunk.new_lines == 61


def test_an_endless_section_is_shortened() -> None:
    (piece,) = cut(hunk_of(b"+x\n", section="f" * 1_000_000))
    assert (len(piece.hunk.section), piece.hunk.body) == (80, b"+x\n")
    assert piece.tokens < 60
