"""Globs against an obvious and slow reading of the same patterns: every way to fit, one character after the other."""

from hypothesis import example, given
from hypothesis import strategies as st

from codeloupe.model.scope import OneOf, Piece, parse_pattern
from codeloupe.planning.globs import Globs

PATTERNS = st.lists(
    st.sampled_from(["a", "b", "/", "*", "**", "**/", "/**/", "?", "[ab]", "[!a]", "ab", "b/a", "["]),
    min_size=1,
    max_size=9,
).map("".join)
PATHS = st.text("aab/", min_size=1, max_size=14)


def fits(pattern: str, path: str) -> bool:
    """Whether a pattern covers a path: it fits the whole of it, or all of it up to a slash."""
    pieces, anchored = parse_pattern(pattern)
    reached = {0}
    for piece in pieces if anchored else ("**/", *pieces):
        reached = {end for start in reached for end in ends(piece, path, start)}
    return any(path[end : end + 1] in ("", "/") for end in reached)


def ends(piece: Piece, path: str, start: int) -> list[int]:
    """Where a piece may end that begins at some place of a path."""
    places = range(start, len(path) + 1)
    if piece == "**/":
        return [start, *(end for end in places if path[start:end].endswith("/"))]
    if piece == "**":
        return list(places)
    if piece == "*":
        return [end for end in places if "/" not in path[start:end]]
    return [start + 1] if start < len(path) and fits_one(piece, path[start]) else []


def fits_one(piece: Piece, character: str) -> bool:
    """Whether a piece that is one character fits this one."""
    if isinstance(piece, OneOf):
        return character != "/" and any(low <= character <= high for low, high in piece.ranges) is not piece.negated
    return character == piece if piece != "?" else character != "/"


@given(PATTERNS | st.text("ab*?/[]!-\\^", max_size=12), PATHS)
@example("*b*a**ab", "b/ba/aab")
@example("**/a*/**/b", "aa/a/ab/b")
def test_a_pattern_fits_what_its_pieces_fit_one_after_the_other(pattern: str, path: str) -> None:
    assert (Globs((), (pattern,)).unwanted(path) is not None) is fits(pattern, path)


@given(st.text(), st.text())
def test_no_pattern_fails_on_any_path(pattern: str, path: str) -> None:
    assert Globs((pattern,), ()).unwanted(path) in (None, "no include pattern fits")
