import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from bench.growth_plot import Curve, exponent, plot
from tests.rows import each

_SVG = "{http://www.w3.org/2000/svg}"


@each("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_the_power_with_which_a_cost_grows(power: float) -> None:
    points = [(size, 3.7 * size**power) for size in (10.0, 31.0, 100.0, 1000.0)]
    assert exponent(points) == pytest.approx(power)


def test_what_grows_a_little_faster_than_linearly_is_above_the_limit_at_a_million() -> None:
    sorted_often = [(size, size * math.log(size) ** 2) for size in (10_000.0, 100_000.0, 1_000_000.0)]
    assert exponent(sorted_often) > 1.1


@each("points", [[], [(10.0, 1.0)], [(10.0, 1.0), (10.0, 2.0)], [(10.0, 1.0), (20.0, 0.0)]])
def test_what_cannot_be_fitted_is_an_error(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"two sizes|math domain error|expected a positive"):
        exponent(points)


def test_the_picture_is_well_formed_with_every_point_inside_of_it() -> None:
    curves = [
        Curve("own <CPU> & more", ((10_000.0, 0.4), (1_000_000.0, 40.0))),
        Curve("memory", ((10_000.0, 37.0), (1_000_000.0, 41.0))),
    ]
    root = ET.fromstring(plot("Cost & size", "lines", curves))
    circles = root.findall(f"{_SVG}circle")
    assert len(circles) == 4
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    assert all(0 < float(circle.attrib["cx"]) < width and 0 < float(circle.attrib["cy"]) < height for circle in circles)
    texts = [text.text for text in root.findall(f"{_SVG}text")]
    assert "own <CPU> & more" in texts
    assert {"0.1", "10", "10,000", "1,000,000"} <= set(texts)


def test_labels_of_lines_that_end_together_do_not_stand_upon_each_other() -> None:
    curves = [Curve(f"line {number}", ((10.0, 1.0), (100.0, 10.0 + number / 100))) for number in range(4)]
    root = ET.fromstring(plot("t", "s", curves))
    heights = sorted(float(text.attrib["y"]) for text in root.findall(f"{_SVG}text") if "line" in (text.text or ""))
    assert len(heights) == 4
    assert min(after - before for before, after in pairwise(heights)) >= 15
