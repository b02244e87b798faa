"""Every attack on a lock file is found in every format that records it, and ordinary changes raise nothing."""

import json
from pathlib import Path

import pytest

import codeloupe.planning
from codeloupe.analysers.lock_files import review_lock_file
from tests.unit.analysers.lock_file_samples import (
    ATTACKS,
    DROPPED,
    EXCHANGED,
    GIT,
    HOST,
    HTTP,
    OTHER,
    SAMPLES,
    Entry,
    NotRecorded,
)

# The rules of which one reports an attack.
_RULES = {
    HOST: {"source-moved"},
    GIT: {"source-moved"},
    HTTP: {"insecure-source", "insecure-same-hash"},
    EXCHANGED: {"hash-changed"},
    DROPPED: {"hash-missing"},
    OTHER: {"other-package", "source-moved"},
}
_SECOND = Entry("other", "2.0.0", "c3")
_BUMPED = Entry(version="1.0.1", digest="b2")


def _rules(name: str, old: str, new: str) -> set[str | None]:
    lines_before = old.split("\n")
    added: set[int] = set()
    for number, line in enumerate(new.split("\n"), start=1):
        if line not in lines_before:
            added.add(number)
    claims = review_lock_file(name, old.encode(), new.encode(), frozenset(added))
    assert all(claim.line_start in added for claim in claims if added)
    return {claim.rule for claim in claims}


def _recorded() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for format_name, sample in SAMPLES.items():
        for attack, entry in sample.attacks.items():
            if isinstance(entry, Entry):
                found.append((format_name, attack))
    return found


@pytest.mark.parametrize(("format_name", "attack"), _recorded())
def test_an_attack_is_found_in_each_format_that_records_it(format_name: str, attack: str) -> None:
    sample = SAMPLES[format_name]
    old = sample.write(Entry(), _SECOND)
    found = _rules(sample.name, old, sample.write(sample.attacks[attack], _SECOND))
    assert found & _RULES[attack]


def test_the_table_has_each_readable_format_and_each_attack() -> None:
    names = json.loads(Path(codeloupe.planning.__path__[0], "file_names.json").read_text(encoding="utf-8"))
    assert {sample.name for sample in SAMPLES.values()} == {*names["readable_lock_files"], "requirements.txt"}
    for sample in SAMPLES.values():
        assert tuple(sample.attacks) == ATTACKS
        for entry in sample.attacks.values():
            assert isinstance(entry, Entry) or len(entry.reason) > 20


@pytest.mark.parametrize("format_name", SAMPLES)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((Entry(), _SECOND), (_BUMPED, _SECOND), id="bump"),
        pytest.param((Entry(),), (Entry(), _SECOND), id="addition"),
        pytest.param((Entry(), _SECOND), (Entry(),), id="removal"),
        pytest.param((Entry(), _SECOND), (_SECOND, Entry()), id="order"),
        pytest.param((Entry(), _SECOND), (Entry(), _SECOND, _BUMPED), id="second version"),
    ],
)
def test_an_ordinary_change_raises_nothing(
    format_name: str, before: tuple[Entry, ...], after: tuple[Entry, ...]
) -> None:
    sample = SAMPLES[format_name]
    assert _rules(sample.name, sample.write(*before), sample.write(*after)) == set()


def test_a_format_without_a_fact_says_why() -> None:
    reasons = {
        (format_name, attack)
        for format_name, sample in SAMPLES.items()
        for attack, entry in sample.attacks.items()
        if isinstance(entry, NotRecorded)
    }
    without_address = {(name, OTHER) for name in ("pipenv", "cargo", "bundler", "go", "go workspace")}
    without_source = {(name, attack) for name in ("go", "go workspace") for attack in (HOST, GIT, HTTP, DROPPED)}
    assert reasons == without_address | without_source
