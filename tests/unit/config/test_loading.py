from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codeloupe.config.loading import load_settings_from_disk
from codeloupe.config.provenance import LoadedSettings, Origin, OriginKind
from codeloupe.config.schema import KEYS, USER_KEYS, Settings
from codeloupe.config.values import plain_values
from codeloupe.errors import ConfigError
from codeloupe.model.change import Effort
from codeloupe.model.severity import Severity
from tests.unit.config.inputs import load, refusal

USER, REPOSITORY, ENVIRONMENT, FLAG = "user", "repository", "environment", "flag"
SOURCES = (USER, REPOSITORY, ENVIRONMENT, FLAG)

# For each key: what the user file, the repository file, the variable and the flag say, and what each means.
TABLE: dict[str, tuple[tuple[str, object], tuple[str, object], tuple[str, object], tuple[object, object]]] = {
    "base_branch": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "include": (("[a, b]", ("a", "b")), ("[c]", ("c",)), ("d, e,", ("d", "e")), (["f"], ("f",))),
    "exclude": (("[a, b]", ("a", "b")), ("[c]", ("c",)), ("d,e", ("d", "e")), (("f",), ("f",))),
    "fail_on": (("P0", Severity.CRITICAL), ("P2", Severity.MEDIUM), ("[P3]", Severity.LOW), ("Error", Severity.HIGH)),
    "min_severity": (("high", Severity.HIGH), ("info", Severity.LOW), ("P1", Severity.HIGH), ("P2", Severity.MEDIUM)),
    "on_incomplete": (("pass", "pass"), ("fail", "fail"), ("pass", "pass"), ("fail", "fail")),
    "on_parse_error": (("pass", "pass"), ("fail", "fail"), ("pass", "pass"), ("fail", "fail")),
    "reviewer_type": (("offline", "offline"), ("auto", "auto"), ("codex", "codex"), ("cerberus", "cerberus")),
    "reviewers": (
        ("[codex, offline]", ("codex", "offline")),
        ("[api]", ("api",)),
        ("gemini, command,", ("gemini", "command")),
        (["agent_sdk", "codex"], ("agent_sdk", "codex")),
    ),
    "lanes": (
        ("[offline]", ("offline",)),
        ("[offline, agent]", ("offline", "agent")),
        ("agent, offline", ("agent", "offline")),
        (["offline"], ("offline",)),
    ),
    "effort": (("low", Effort.LOW), ("high", Effort.HIGH), ("low", Effort.LOW), ("high", Effort.HIGH)),
    "experts": (("[a, b]", ("a", "b")), ("[c]", ("c",)), ("d, e", ("d", "e")), (["f_1"], ("f_1",))),
    "experts_folder": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "guidance": (("false", False), ("true", True), ("no", False), (True, True)),
    "keep_history": (("false", False), ("true", True), ("no", False), (True, True)),
    "passes": (("2", 2), ("3", 3), ("10", 10), (4, 4)),
    "verify": (("false", False), ("true", True), ("no", False), (True, True)),
    "max_file_bytes": (("1", 1), ("2_000", 2000), ("3", 3), (4, 4)),
    "max_file_lines": (("1", 1), ("2", 2), ("3_000", 3000), ("4", 4)),
    "timeout_seconds": (("1", 1.0), ("2.5", 2.5), ("3e1", 30.0), (4, 4.0)),
    "review_timeout_seconds": (("1", 1.0), ("2.5", 2.5), ("3e1", 30.0), (4, 4.0)),
    "skip_generated": (("false", False), ("true", True), ("no", False), (True, True)),
    "skip_vendored": (("no", False), ("yes", True), ("0", False), (True, True)),
    "skip_lock_files": (("off", False), ("on", True), ("FALSE", False), ("yes", True)),
    "skip_minified": (("False", False), ("True", True), ("off", False), (True, True)),
    "accept_unread": (
        ("[archives]", ("archives",)),
        ("[media]", ("media",)),
        ("submodules, lfs_pointers", ("submodules", "lfs_pointers")),
        (["programs"], ("programs",)),
    ),
    "untrusted": (("true", True), ("false", False), ("1", True), (False, False)),
    "agents": (("[codex]", ("codex",)), ("[api]", ("api",)), ("gemini, api", ("gemini", "api")), (["api"], ("api",))),
    "model": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "agent_timeout_seconds": (("1", 1.0), ("2.5", 2.5), ("3e1", 30.0), (4, 4.0)),
    "agent_sdk_review_timeout": (("1", 1.0), ("2.5", 2.5), ("3e1", 30.0), (4, 4.0)),
    "agent_sdk_reviewer_model": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "concurrency": (("1", 1), ("2", 2), ("3", 3), (4, 4)),
    "calls_per_minute": (("1", 1), ("2", 2), ("3", 3), (4, 4)),
    "max_budget_usd": (("1", 1.0), ("2.5", 2.5), ("3", 3.0), (4, 4.0)),
    "max_tokens": (("1", 1), ("2", 2), ("3", 3), (4, 4)),
    "max_requests": (("1", 1), ("2", 2), ("3", 3), (4, 4)),
    "wait_for_quota": (("true", True), ("false", False), ("1", True), (False, False)),
    "keep_sessions": (("true", True), ("false", False), ("1", True), (False, False)),
    "mask_prompts": (("false", False), ("true", True), ("no", False), (True, True)),
    "claude_path": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "codex_path": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "gemini_path": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "review_command": (
        ("[a, b c]", ("a", "b c")),
        ("[d]", ("d",)),
        ("program --flag 'two words'", ("program", "--flag", "two words")),
        (["f"], ("f",)),
    ),
    "review_gate_path": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "review_gate_arguments": (("[--a]", ("--a",)), ("[b]", ("b",)), ('"c d" e', ("c d", "e")), (["f"], ("f",))),
    "api_model": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "api_base_url": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "allow_bypass": (("true", True), ("false", False), ("1", True), (False, False)),
}
# What only a file can carry; `test_groups.py` has their tests.
GROUPS = ("own_experts", "commit_experts", "instructions")
# Flags that are called otherwise than their key.
FLAG_NAMES = {
    "reviewer_type": "--reviewer",
    "reviewers": "--reviewer",
    "timeout_seconds": "--timeout",
    "review_timeout_seconds": "--timeout",
    "agent_sdk_review_timeout": "--timeout",
    "agent_timeout_seconds": "--timeout",
    "agents": "--agent",
    "keep_sessions": "--keep-session",
}
SUBSETS = [subset for size in range(5) for subset in itertools.combinations(SOURCES, size)]


def test_the_table_of_this_test_has_every_key() -> None:
    assert {*TABLE, *GROUPS} == set(KEYS)


@pytest.mark.parametrize("key", TABLE)
def test_the_strongest_source_wins_and_is_named(key: str, tmp_path: Path) -> None:
    for number, subset in enumerate(SUBSETS):
        # What a repository may not set is not looked for there; that it is refused is another test.
        given_by = tuple(source for source in subset if source != REPOSITORY or key not in USER_KEYS)
        check_the_strongest(key, given_by, user_file=tmp_path / f"{number}.yaml")


def check_the_strongest(key: str, given_by: tuple[str, ...], *, user_file: Path) -> None:
    (user, _), (repository, _), (variable, _), (flag, _) = TABLE[key]
    name, flag_name = f"CODELOUPE_{key.upper()}", FLAG_NAMES.get(key, "--" + key.replace("_", "-"))
    if USER in given_by:
        user_file.write_text(f"# mine\n\n{key}: {user}\n", encoding="utf-8")

    loaded = load(
        f"# ours\n{key}: {repository}\n" if REPOSITORY in given_by else None,
        user_file=user_file,
        environment={name: variable} if ENVIRONMENT in given_by else {},
        flags={key: flag if FLAG in given_by else None},
    )

    meanings = {source: entry[1] for source, entry in zip(SOURCES, TABLE[key], strict=True)}
    origins = {
        USER: Origin(OriginKind.USER, str(user_file), 3),
        REPOSITORY: Origin(OriginKind.REPOSITORY, "codeloupe.yaml", 2),
        ENVIRONMENT: Origin(OriginKind.ENVIRONMENT, name),
        FLAG: Origin(OriginKind.FLAG, flag_name),
    }
    strongest = given_by[-1] if given_by else None
    expected = meanings[strongest] if strongest else getattr(Settings(), key)
    assert getattr(loaded.settings, key) == expected, given_by
    assert loaded.origins[key] == (origins[strongest] if strongest else Origin(OriginKind.DEFAULT)), given_by
    others = {loaded.origins[other] for other in KEYS if other != key}
    assert others == {Origin(OriginKind.DEFAULT)}, given_by


def test_nothing_given_means_defaults() -> None:
    assert load().settings == Settings()


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "---\n...\n", "~", "{}", "\ufeff"])
def test_an_empty_file_means_defaults(text: str) -> None:
    assert load(text).settings == Settings()


def test_a_byte_order_mark_does_not_hide_the_first_key() -> None:
    assert load("\ufefffail_on: low").settings.fail_on is Severity.LOW


def test_null_lets_the_base_branch_be_found_again(tmp_path: Path) -> None:
    user_file = tmp_path / "config.yaml"
    user_file.write_text("base_branch: trunk", encoding="utf-8")
    assert load("base_branch: null", user_file=user_file).settings.base_branch is None


def test_loaded_settings_cannot_be_changed() -> None:
    loaded = load()
    with pytest.raises(TypeError):
        loaded.origins["fail_on"] = Origin(OriginKind.FLAG)  # type: ignore[index]  # that it is refused is the test


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("base_branch", "yes", "'yes'"),
        ("base_branch", "-x", "'-x'"),
        ("base_branch", '""', "''"),
        ("base_branch", r'"a\0b"', r"'a\x00b'"),
        ("base_branch", "[a]", "a list"),
        ("include", "src", "'src'"),
        ("include", "", "nothing"),
        ("exclude", "{a: b}", "a group of keys"),
        ("fail_on", "worst", "'worst'"),
        ("fail_on", "true", "'true'"),
        ("fail_on", "", "nothing"),
        ("fail_on", "4", "'4'"),
        ("fail_on", "3", "'3'"),
        ("min_severity", "0", "'0'"),
        ("fail_on", "0x" + "f" * 4000, "'0x" + "f" * 58 + "…'"),
        ("min_severity", "[high]", "a list"),
        ("on_incomplete", "ignore", "'ignore'"),
        ("reviewer_type", "claude", "'claude'"),
        ("reviewers", "codex", "'codex'"),
        ("lanes", "[]", "an empty list"),
        ("effort", "3", "'3'"),
        ("passes", "11", "'11'"),
        ("passes", "0", "'0'"),
        ("verify", "'yes'", "'yes'"),
        ("max_file_bytes", "0", "'0'"),
        ("max_file_bytes", "true", "'true'"),
        ("max_file_bytes", "'5'", "'5'"),
        ("max_file_bytes", "1.5", "'1.5'"),
        ("max_file_lines", "0x" + "f" * 4000, "'0x" + "f" * 58 + "…'"),
        ("timeout_seconds", "0", "'0'"),
        ("timeout_seconds", ".nan", "'.nan'"),
        ("timeout_seconds", ".inf", "'.inf'"),
        ("timeout_seconds", "true", "'true'"),
        ("timeout_seconds", "0x" + "f" * 4000, "'0x" + "f" * 58 + "…'"),
        ("skip_generated", "1", "'1'"),
        ("untrusted", "maybe", "'maybe'"),
    ],
)
def test_a_wrong_value_is_named_with_its_line_and_what_was_expected(key: str, value: str, found: str) -> None:
    error = refusal(f"# first line\n{key}: {value}\n")
    assert error.message.startswith(f"codeloupe.yaml:2: {key}: expected ")
    assert error.message.endswith(f", found {found}")
    assert error.hint


def test_the_allowed_words_are_listed() -> None:
    assert "expected fail or pass, found 'no'" in refusal("on_incomplete: 'no'").message
    assert "expected critical, high, medium or low (or P0 to P3), found" in refusal("fail_on: huge").message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("fail_on: hihg", "did you mean `high`?"),
        ("on_incomplete: Pass", "did you mean `pass`?"),
        ("base_branch: 1.10", "put it in quotes"),
        ("include: [1.10]", "put it in quotes"),
        ("timeout_seconds: soon", "the default is 300"),
    ],
)
def test_a_wrong_value_comes_with_a_way_out(text: str, hint: str) -> None:
    assert refusal(text).hint == hint


def test_a_wrong_entry_of_a_list_is_named_with_its_own_line() -> None:
    error = refusal("include:\n  - src\n  - 5\n")
    assert error.message == "codeloupe.yaml:3: include: entry 2: expected a pattern as text, found '5'"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CODELOUPE_FAIL_ON", "worst", "CODELOUPE_FAIL_ON: expected critical, high, medium or low (or P0 to P3)"),
        ("CODELOUPE_UNTRUSTED", "ja", "CODELOUPE_UNTRUSTED: expected true or false, found 'ja'"),
        ("CODELOUPE_MAX_FILE_BYTES", "9" * 5000, "CODELOUPE_MAX_FILE_BYTES: expected a whole number from 1 to"),
        ("CODELOUPE_TIMEOUT_SECONDS", "nan", "CODELOUPE_TIMEOUT_SECONDS: expected a number of seconds above 0"),
        ("CODELOUPE_BASE_BRANCH", "\udcff", r"CODELOUPE_BASE_BRANCH: expected the name of a branch as text, found"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, message: str) -> None:
    error = refusal(environment={name: value})
    assert error.message.startswith(message)
    assert error.hint == f"change or unset {name}"


def test_a_wrong_flag_is_named() -> None:
    error = refusal(flags={"max_file_bytes": "many"})
    assert error.message == "--max-file-bytes: expected a whole number from 1 to 1,000,000,000, found 'many'"
    assert error.hint == "change or leave out --max-file-bytes"


def test_a_flag_that_sets_several_keys_is_blamed_once() -> None:
    keys = ("timeout_seconds", "review_timeout_seconds", "agent_sdk_review_timeout")
    error = refusal(flags=dict.fromkeys(keys, -5.0))  # type: ignore[arg-type]  # numbers, as argparse gives them
    assert error.message == "--timeout: expected a number of seconds above 0, found '-5.0'"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("reviewers: [agent_sdk, codx]", "reviewers: entry 2: expected agent_sdk", "did you mean `codex`?"),
        ("reviewers: [auto]", "reviewers: entry 1: expected agent_sdk", "`codeloupe config schema`"),
        ("lanes:\n  - agent\n  - agent", "lanes: entry 2: expected each name once, found 'agent'", "`codeloupe"),
        ("experts: [a b]", "experts: entry 1: expected a name of letters", "`codeloupe"),
        ("experts: [5]", "experts: entry 1: expected a name of letters", "put it in quotes"),
    ],
)
def test_a_wrong_name_in_a_list_is_named_with_its_entry(text: str, message: str, hint: str) -> None:
    error = refusal(text)
    assert message in error.message
    assert error.hint.startswith(hint)


def test_a_wrong_name_in_a_variable_comes_with_the_one_that_was_meant() -> None:
    error = refusal(environment={"CODELOUPE_REVIEWERS": "codex, offlin"})
    assert error.message.startswith("CODELOUPE_REVIEWERS: expected a list of agent_sdk, ")
    assert error.message.endswith("found 'codex, offlin'")
    assert error.hint == "did you mean `offline`?"


def test_quotes_that_do_not_close_in_a_command_are_refused_in_words() -> None:
    error = refusal(environment={"CODELOUPE_REVIEW_COMMAND": "a 'b"})
    assert error.message.startswith("CODELOUPE_REVIEW_COMMAND: expected a program and its arguments as a list")


def test_several_wrong_entries_in_a_variable_are_told_once() -> None:
    error = refusal(flags={"include": [1, 2]})  # type: ignore[dict-item]  # a caller's mistake
    assert error.message.startswith("--include: expected a list of patterns")
    assert "\n" not in error.message


def test_all_mistakes_of_all_sources_are_told_at_once(tmp_path: Path) -> None:
    user_file = tmp_path / "mine.yaml"
    user_file.write_text("untrusted: perhaps\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(
            "failOn: high\ninclude: [1]\nfail_on: hihg\nfail_on: low\n",
            user_file=user_file,
            environment={"CODELOUPE_TIMEOUT_SECONDS": "-1"},
            flags={"reviewer_type": "offlin"},
        )
    severities = "critical, high, medium or low (or P0 to P3)"
    seconds = "CODELOUPE_TIMEOUT_SECONDS"
    assert caught.value.message.splitlines() == [
        "the configuration has 7 mistakes:",
        f"  {user_file}:1: untrusted: expected true or false, found 'perhaps' (the default is false)",
        "  codeloupe.yaml:1: failOn: unknown key (did you mean `fail_on`?)",
        "  codeloupe.yaml:2: include: entry 1: expected a pattern as text, found '1' (put it in quotes)",
        f"  codeloupe.yaml:3: fail_on: expected {severities}, found 'hihg' (did you mean `high`?)",
        "  codeloupe.yaml:4: fail_on: already given on line 3 (keep one of the two)",
        f"  {seconds}: expected a number of seconds above 0, found '-1' (change or unset {seconds})",
        (
            "  --reviewer: expected auto, agent_sdk, claude_cli, codex, gemini, api, cerberus, command or offline, "
            "found 'offlin' (did you mean `offline`?)"
        ),
    ]
    assert caught.value.exit_code == 2


def test_a_mistake_is_told_even_where_a_stronger_source_overrides_it() -> None:
    with pytest.raises(ConfigError, match=r"codeloupe\.yaml:1: fail_on"):
        load("fail_on: worst", flags={"fail_on": "high"})


def test_both_files_are_read_from_disk(tmp_path: Path) -> None:
    (tmp_path / "codeloupe.yml").write_text("fail_on: low\n", encoding="utf-8")
    user_file = tmp_path / "home" / "codeloupe" / "config.yaml"
    user_file.parent.mkdir(parents=True)
    user_file.write_text("fail_on: high\nuntrusted: true\n", encoding="utf-8")
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "home")}
    loaded = load_settings_from_disk(tmp_path, environment=environment, flags={})
    assert (loaded.settings.fail_on, loaded.settings.untrusted) == (Severity.LOW, True)
    assert loaded.origins["fail_on"] == Origin(OriginKind.REPOSITORY, "codeloupe.yml", 1)
    assert loaded.origins["untrusted"] == Origin(OriginKind.USER, str(user_file), 2)


_FRAGMENTS = (
    *KEYS,
    *("failOn", ": ", ":", "\n", "\n  ", "- ", "[", "]", "{", "}", ", ", "&a ", "*a", "!!int ", "!x ", "!!str ", "'"),
    *('"', "|", ">", "?", "%", "%TAG ! x", "---", "...", "#", "\t", "<<", "=", "~", "true", "high", "0x_", "1:2"),
    *("1e999", ".nan", "2024-13-45", "9" * 50, "\x00", "\x1b[31m", "\u2028", "\x85", "\ufeff", "\ud800", "🔍"),
)
_TEXTS = st.text() | st.lists(st.sampled_from(_FRAGMENTS)).map("".join)


def outcome(text: str | None = None, **sources: Mapping[str, str]) -> LoadedSettings | ConfigError:
    try:
        return load(text, **sources)  # type: ignore[arg-type]  # environment, a mapping
    except ConfigError as error:
        return error


@given(_TEXTS)
@example("fail_on: high\ninclude: [")
@example("a: !!python/object/apply:os.system [echo]")
@example("? ? ? ?")
@example("!!int _: 1")
@example("'': {")
def test_any_text_loads_or_is_refused_in_words(text: str) -> None:
    result = outcome(text)
    if isinstance(result, ConfigError):
        shown = (result.message + result.hint).replace("\n", "")
        assert shown.isprintable()
        assert "codeloupe.yaml" in shown
        assert "pydantic" not in shown
    else:
        assert result.settings == Settings(**plain_values(result.settings))


@given(st.sampled_from(KEYS), st.text())
def test_any_variable_loads_or_is_refused_in_words(key: str, text: str) -> None:
    name = f"CODELOUPE_{key.upper()}"
    result = outcome(environment={name: text})
    if isinstance(result, ConfigError):
        assert result.message.startswith(f"{name}: expected ")
        assert result.message.isprintable()
    else:
        assert result.origins[key].kind is (OriginKind.ENVIRONMENT if text.strip() else OriginKind.DEFAULT)
