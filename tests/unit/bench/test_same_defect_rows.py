"""The measurement of `same defect` on the pairs that were written before the function."""

from bench.same_defect import is_recognised, next_rounds, rows


def test_findings_of_the_next_round_are_recognised() -> None:
    recognised = [is_recognised(known, answer) for known, answer in next_rounds()]
    assert len(recognised) >= 80
    assert sum(recognised) >= 0.9 * len(recognised)


def test_an_id_counts_only_at_the_place_of_its_finding() -> None:
    known, answer = next(iter(next_rounds()))
    elsewhere = {
        **answer,
        "findings": [{**one, "title": "Other words", "body": "Nothing alike."} for one in answer["findings"]],
    }
    assert is_recognised(known, elsewhere)
    without_id = {"findings": [{**one, "id": ""} for one in elsewhere["findings"]]}
    assert not is_recognised(known, without_id)


def test_every_row_without_public_data_is_within_its_limit() -> None:
    assert all(row.ok for row in rows())
