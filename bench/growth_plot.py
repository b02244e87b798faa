"""How cost grows with size as a picture: both axes by powers of ten, so that linear growth is a slope of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 760, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 40, 50
_LABEL_STEP = 18
# One colour for each line; each stands out from white and from black.
_COLOURS = ("#d9480f", "#1c7ed6", "#2b8a3e", "#ae3ec9", "#868e96")
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.grid{stroke:#8c959f;stroke-opacity:.35}"
    ".ideal{stroke:#6e7781;stroke-dasharray:5 5}path{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.ideal{stroke:#9198a1}}"
)


@dataclass(frozen=True, slots=True)
class Curve:
    """One cost by size; all numbers are above zero."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The powers of ten that are shown, and where they are."""

    left: int
    right: int
    bottom: int
    top: int

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.left) / (self.right - self.left)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.bottom) / (self.top - self.bottom)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The power of the size with which a cost grows, by least squares over the logarithms; 1 is linear.

    Raises ValueError for fewer than two sizes, and for numbers that are not above zero.
    """
    sizes, costs = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    if len(set(sizes)) < 2:
        raise ValueError("how something grows is seen at two sizes at least")
    middle_size, middle_cost = sum(sizes) / len(sizes), sum(costs) / len(costs)
    together = sum((size - middle_size) * (cost - middle_cost) for size, cost in zip(sizes, costs, strict=True))
    return together / sum((size - middle_size) ** 2 for size in sizes)


def plot(title: str, size_name: str, curves: Sequence[Curve]) -> str:
    """An SVG of the curves, with a dashed line for linear growth; readable on light and on dark ground."""
    return "\n".join(_elements(title, size_name, curves)) + "\n"


def _elements(title: str, size_name: str, curves: Sequence[Curve]) -> Iterator[str]:
    frame = _frame(curves)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    yield f'<text x="{_LEFT}" y="22" font-weight="bold">{escape(title)}</text>'
    yield from _grid(frame)
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(size_name)}</text>'
    yield from _ideal(frame)
    labels = _spread([frame.y(curve.points[-1][1]) for curve in curves])
    for curve, colour, label in zip(curves, _COLOURS, labels, strict=False):
        yield from _curve(curve, colour, label, frame)
    yield "</svg>"


def _frame(curves: Sequence[Curve]) -> _Frame:
    sizes, costs = ([math.log10(point[axis]) for curve in curves for point in curve.points] for axis in (0, 1))
    return _Frame(*_whole(sizes), *_whole(costs))


def _whole(logarithms: Sequence[float]) -> tuple[int, int]:
    low = math.floor(min(logarithms))
    # A hair above a power of ten needs no further decade of empty room.
    return low, max(low + 1, math.ceil(max(logarithms) - 0.15))


def _grid(frame: _Frame) -> Iterator[str]:
    for power in range(frame.left, frame.right + 1):
        x = frame.x(10.0**power)
        yield f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}"/>'
        yield f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{_power_of_ten(power)}</text>'
    for power in range(frame.bottom, frame.top + 1):
        y = frame.y(10.0**power)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_power_of_ten(power)}</text>'


def _power_of_ten(power: int) -> str:
    return f"{10.0**power:,.{max(0, -power)}f}"


def _ideal(frame: _Frame) -> Iterator[str]:
    decades = min(frame.right - frame.left, frame.top - frame.bottom)
    start, height = 10.0**frame.left, 10.0**frame.bottom
    x1, y1, x2, y2 = frame.x(start), frame.y(height), frame.x(start * 10**decades), frame.y(height * 10**decades)
    yield f'<line class="ideal" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"><title>linear</title></line>'


def _curve(curve: Curve, colour: str, label: float, frame: _Frame) -> Iterator[str]:
    places = [f"{frame.x(size):.1f} {frame.y(cost):.1f}" for size, cost in curve.points]
    yield f'<path stroke="{colour}" d="M{" L".join(places)}"/>'
    for place in places:
        x, y = place.split()
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>'
    yield f'<rect x="{_WIDTH - _RIGHT + 12}" y="{label - 5:.1f}" width="10" height="10" fill="{colour}"/>'
    yield f'<text x="{_WIDTH - _RIGHT + 28}" y="{label + 5:.1f}">{escape(curve.name)}</text>'


def _spread(heights: Sequence[float]) -> list[float]:
    """The heights of labels, moved down where two would stand upon each other."""
    placed: dict[int, float] = {}
    last = -math.inf
    for number in sorted(range(len(heights)), key=lambda number: heights[number]):
        last = placed[number] = max(heights[number], last + _LABEL_STEP)
    return [placed[number] for number in range(len(heights))]
