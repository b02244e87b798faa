"""Every requirement and every mended defect has a test that names it, and no test names one that does not exist."""

import re

from tests import defects

# How many there are of each group: commits, runner, reviewer, stages, change review in CI.
GROUPS = {"D": 9, "R": 17, "V": 14, "S": 10, "C": 11}
# Of version 0.1.0: false greens, what got in or out, library, pipelines, reviews, what people see; O is offline.
DEFECTS = {"T": 19, "X": 4, "L": 7, "P": 8, "V": 17, "U": 10}
# Found in later examinations.
LATER = {
    *(f"F{number}" for number in range(1, 15)),
    *(f"N{number}" for number in range(1, 10)),
    *(f"M{number}" for number in range(1, 5)),
    *(f"W{number}" for number in range(1, 12)),
    *("A1", "A2", "A3", "A4", "A6", "A7", "A8"),
    *(f"E{number}" for number in range(1, 27) if number not in {5, 23}),
}
MARK = re.compile(r"""requirement\((?:id=)?["']([A-Z]\d{1,2})["']\)""")


def test_every_requirement_is_held_by_a_test() -> None:
    texts = (file.read_text(encoding="utf-8") for file in defects.TESTS.rglob("test_*.py"))
    named = {found for text in texts for found in MARK.findall(text)}
    known = {f"{group}{number}" for group, count in GROUPS.items() for number in range(1, count + 1)}
    assert named - known == set()
    missing = sorted(known - named, key=lambda name: (name[0], int(name[1:])))
    assert not missing, f"no test names {', '.join(missing)}"


def test_every_fixed_defect_is_held_by_a_test() -> None:
    first = {f"{group}{number}" for group, count in DEFECTS.items() for number in range(1, count + 1)}
    known = first | {"O"} | LATER
    named = set(defects.tests_by_defect())
    missing = sorted(known - named)
    assert not missing, f"no test names {', '.join(missing)}"
    assert named - known == set()
