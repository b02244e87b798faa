"""What is kept of an output and how it is cut into lines, however it arrives."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from codeloupe.system.process import HeadAndTail, Lines

PIECES = st.lists(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\0", b"\xff"]), max_size=12).map(b"".join))


def lines_of(pieces: list[bytes], limit_bytes: int = 1000) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    lines = Lines(found.append, limit_bytes)
    for piece in pieces:
        lines.add(piece)
    lines.finish()
    return found, lines.skipped


class TestHeadAndTail:
    @given(pieces=PIECES, limit_bytes=st.integers(min_value=0, max_value=20))
    def test_all_is_kept_or_head_and_tail_with_a_word_between(self, pieces: list[bytes], limit_bytes: int) -> None:
        output, whole = HeadAndTail(limit_bytes), b"".join(pieces)
        for piece in pieces:
            output.add(piece)
        head, tail = (limit_bytes + 1) // 2, limit_bytes // 2
        omitted = max(0, len(whole) - limit_bytes)
        assert output.omitted_bytes == omitted
        word = b"\n[... %d bytes omitted ...]\n" % omitted
        expected = whole[:head] + word + whole[len(whole) - tail :] if omitted else whole
        assert output.kept() == output.kept() == expected

    def test_memory_is_bounded_whatever_the_size_of_the_pieces(self) -> None:
        for piece, count in ((b"x", 50_000), (b"x" * 1_000_000, 300)):
            output = HeadAndTail(1000)
            for _ in range(count):
                output.add(piece)
                assert sys.getsizeof(output._head) + sys.getsizeof(output._tail) < 200_000


class TestLines:
    @given(pieces=PIECES)
    def test_lines_do_not_depend_on_how_the_bytes_arrive(self, pieces: list[bytes]) -> None:
        expected = b"".join(pieces).split(b"\n")
        if not expected[-1]:
            expected.pop()
        assert lines_of(pieces) == ([line.removesuffix(b"\r") for line in expected], 0)

    @given(pieces=PIECES, limit_bytes=st.integers(min_value=0, max_value=6))
    def test_a_line_over_the_limit_is_counted_and_the_others_come(self, pieces: list[bytes], limit_bytes: int) -> None:
        every, _ = lines_of(pieces)
        short, skipped = lines_of(pieces, limit_bytes)
        assert len(short) + skipped == len(every)
        assert all(len(line) <= limit_bytes for line in short)
        below = [[line for line in lines if len(line) < limit_bytes] for lines in (every, short)]
        assert below[0] == below[1]

    def test_a_line_over_the_limit_is_not_held(self) -> None:
        found: list[bytes] = []
        lines = Lines(found.append, 10)
        for _ in range(1000):
            lines.add(b"x" * 10)
        assert len(lines._line) <= 11
        lines.add(b"\nnext\n")
        assert (found, lines.skipped) == ([b"next"], 1)
