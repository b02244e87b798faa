from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as program
from bench.lifelike import SMALL, make_lifelike_change
from bench.own_review import measure_review
from bench.table import BenchRow


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the table goes; the rooms are two quick ones, and one that is measured only when asked."""

    def room(name: str, ratio: float) -> Iterator[BenchRow]:
        yield BenchRow(f"row of {name}", "1 s", ratio, 1.0)

    rooms = {"quick": lambda: room("quick", 0.5), "slow": lambda: room("slow", 2.0), "peers": lambda: room("peers", 1)}
    monkeypatch.setattr(program, "_ROOMS", rooms)
    monkeypatch.setattr(program, "_RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.delenv("BENCH_PEERS", raising=False)
    return tmp_path / "RESULTS.md"


def test_only_the_named_rooms_are_measured_and_half_a_table_is_not_written(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["quick"]) == 0
    assert capsys.readouterr().out.count("row of") == 1
    assert not results.exists()


def test_a_limit_that_is_broken_gives_exit_code_1_and_stands_in_the_table(results: Path) -> None:
    assert program.main([]) == 1
    text = results.read_text(encoding="utf-8")
    assert "| row of slow | 2.00x | 1x | 1 s |" in text
    assert "growth.svg" in text
    assert "row of peers" not in text


def test_peers_are_measured_when_asked_for(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_PEERS", "1")
    program.main([])
    assert "row of peers" in results.read_text(encoding="utf-8")


def test_a_room_that_nobody_knows_is_refused_before_anything_is_measured(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["quick", "quik"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no room 'quik'; there are quick, slow, peers" in shown.err
    assert not results.exists()


@pytest.mark.program
def test_a_measured_review_is_complete_and_has_numbers(tmp_path: Path) -> None:
    make_lifelike_change(tmp_path / "repository", SMALL)
    measured = measure_review(tmp_path / "repository")
    assert (measured.calls, measured.findings) == (1, 1)
    assert measured.prompt_tokens > 1000
    assert measured.peak_bytes > 10_000_000
    assert measured.cpu_seconds > 0
    assert measured.wall_seconds > 0
