from __future__ import annotations

from codeloupe.config.schema import KEYS
from codeloupe.config.yaml import closest, closest_key
from tests.rows import rows


@rows(
    ("word", "meant"),
    [
        ("failOn", "fail_on"),
        ("FailOn", "fail_on"),
        ("fail-on", "fail_on"),
        ("FAIL ON", "fail_on"),
        ("fail.on", "fail_on"),
        ("skipLockFiles", "skip_lock_files"),
        ("fial_on", "fail_on"),
        ("excludes", "exclude"),
        ("timeout", "timeout_seconds"),
        ("base", "base_branch"),
        ("reviewer", "reviewer_type"),
        ("ignore", "exclude"),
        ("colour", None),
        ("", None),
        ("---", None),
    ],
)
def test_the_key_that_was_probably_meant_is_found(word: str, meant: str | None) -> None:
    assert closest_key(word, KEYS) == meant


def test_a_beginning_that_several_keys_share_is_no_guess_of_its_own() -> None:
    assert closest("skip", KEYS, cutoff=0.99) is None


def test_a_synonym_counts_only_where_its_key_exists() -> None:
    assert closest_key("ignore", ["fail_on"]) is None


def test_a_very_long_word_is_not_compared() -> None:
    assert closest_key(f"{'fail on':60}", KEYS) == "fail_on"
    assert closest_key(f"{'fail on':61}", KEYS) is None
