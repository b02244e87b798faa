"""A baseline that is edited again and again holds what it should, and its text can always be read."""

from datetime import date

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.model.baseline import BaselineEntry
from codeloupe.store.baseline import edited, parse_baseline

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(lambda text: text if text.strip() else "")
ENTRIES = st.builds(
    BaselineEntry,
    fingerprint=st.sampled_from([f"{number:032x}" for number in range(6)]),
    file=st.sampled_from(["a.py", " b c.py ", "d: #.py"]),
    title=WORDS,
    evidence=WORDS,
    reason=WORDS.map(lambda text: f"x{text}".strip()),
    owner=WORDS,
    expires=st.none() | st.dates(date(1000, 1, 1)),
)
STEPS = st.lists(
    st.tuples(st.lists(ENTRIES, max_size=4), st.lists(ENTRIES.map(lambda entry: entry.key), max_size=3)), max_size=4
)
STARTS = st.sampled_from(
    ["", "# ours\nversion: 1\nentries: []\n", "version: 1\r\nentries:\r\n", "entries:\n\n# x\n\nversion: 1"]
)


@settings(max_examples=20)
@given(STARTS, STEPS)
def test_the_text_holds_what_was_put_in_and_not_removed(
    text: str, steps: list[tuple[list[BaselineEntry], list[tuple[str, str]]]]
) -> None:
    expected: dict[tuple[str, str], BaselineEntry] = {}
    for put, remove in steps:
        text = edited(text, parse_baseline("x", text), remove=remove)
        text = edited(text, parse_baseline("x", text), put=put)
        expected = {key: entry for key, entry in expected.items() if key not in remove}
        expected |= {entry.key: entry for entry in put}
        found = {entry.key: replace(entry, line=0) for entry in parse_baseline("x", text).entries}
        assert found == expected
