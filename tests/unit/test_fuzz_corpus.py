"""The kept inputs of the fuzzer, those that once broke something among them, break nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.engine import CORPUS, Search, corpus_files, failure, smaller
from fuzz.target import Fell, Target, hold
from fuzz.targets import TARGETS
from tests.endings import FAR_TOO_LONG_SECONDS, comes_to_pass

MOST_BYTES = 200_000


def _is_no_number(data: bytes) -> None:
    int(data)


def _looks_for_brackets(data: bytes) -> None:
    hold(not (b"[[" in data and b"]]" in data), "brackets")


@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_input_holds(name: str) -> None:
    files = corpus_files(name)
    assert len(files) > 5
    fell = {file.name: how for file in files if (how := failure(TARGETS[name].check, file.read_bytes()))}
    assert fell == {}


def test_the_corpus_is_small() -> None:
    assert sum(file.stat().st_size for file in CORPUS.rglob("*.input")) < MOST_BYTES


def test_a_failure_tells_how_and_where_and_holds_are_quiet() -> None:
    assert failure(_looks_for_brackets, b"[[x]]") == "Fell: brackets"
    assert failure(_is_no_number, b"x").startswith("ValueError at test_fuzz_corpus.py:")
    assert failure(_looks_for_brackets, b"[x]") == ""


def test_what_fell_is_made_as_small_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.engine._SHRINK_SECONDS", FAR_TOO_LONG_SECONDS)
    assert smaller(b"some [[ words ]] here", lambda data: failure(_looks_for_brackets, data) != "") == b"[[]]"


def test_the_search_finds_what_falls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fuzz.engine.CORPUS", tmp_path)
    monkeypatch.setattr("fuzz.engine._SHRINK_SECONDS", FAR_TOO_LONG_SECONDS)
    target = Target("planted", lambda: [b"[x]"], (b"[[", b"]]"), search=len, check=_looks_for_brackets)
    search = Search(target, seed=1)

    def falls() -> bool:
        search.run(0.05)
        return bool(search.fell)

    assert comes_to_pass(falls)
    assert search.fell == {"Fell: brackets": b"[[]]"}


def test_a_broken_promise_is_no_assertion() -> None:
    with pytest.raises(Fell, match="words"):
        hold(condition=False, words="words")
