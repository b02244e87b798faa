"""Settings from files, variables, flags and the situation: which wins, where it came from, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from codeloupe.config.loading import LoadedSettings, Origin, OriginKind
from codeloupe.config.schema import KEYS, USER_KEYS, Settings
from codeloupe.errors import ConfigError
from codeloupe.model.change import Effort, PathInstruction
from codeloupe.model.finding import Severity
from codeloupe.model.sweep import CommitCategory
from codeloupe.planning.experts import load_experts
from tests.rows import each
from tests.unit.config.inputs import load, refusal

SOURCES = (OriginKind.USER, OriginKind.REPOSITORY, OriginKind.ENVIRONMENT, OriginKind.FLAG)
# What the user file, the repository file, the variable and the flag say, and what each means.
SAID: dict[str, tuple[tuple[object, object], ...]] = {
    "base_branch": (("one", "one"), ("two", "two"), ("three", "three"), ("four", "four")),
    "include": (("[a, b]", ("a", "b")), ("[c]", ("c",)), ("d, e,", ("d", "e")), (["f_1"], ("f_1",))),
    "fail_on": (("P0", Severity.CRITICAL), ("P2", Severity.MEDIUM), ("[P3]", Severity.LOW), ("Error", Severity.HIGH)),
    "verify": (("false", False), ("yes", True), ("no", False), (True, True)),
    "untrusted": (("true", True), ("off", False), ("1", True), ("FALSE", False)),
    "effort": (("low", Effort.LOW), ("high", Effort.HIGH), ("low", Effort.LOW), ("high", Effort.HIGH)),
    "max_file_bytes": (("2", 2), ("3", 3), ("1_0", 10), (4, 4)),
    "timeout_seconds": (("1", 1.0), ("2.5", 2.5), ("3e1", 30.0), (4, 4.0)),
    "reviewers": (("[codex]", ("codex",)), ("[api]", ("api",)), ("api, codex", ("api", "codex")), (["api"], ("api",))),
    "review_command": (("[a, b c]", ("a", "b c")), ("", None), ("p -f 'two w'", ("p", "-f", "two w")), (["f"], ("f",))),
}
FLAG_NAMES = {"timeout_seconds": "--timeout", "reviewers": "--reviewer"}


@each("key", SAID)
def test_the_strongest_source_wins_and_is_named(key: str, tmp_path: Path) -> None:
    name = f"CODELOUPE_{key.upper()}"
    for size in range(16):
        sources = [source for number, source in enumerate(SOURCES) if size >> number & 1]
        given_by = [source for source in sources if source != OriginKind.REPOSITORY or key not in USER_KEYS]
        said = dict(zip(SOURCES, SAID[key], strict=True))
        user_file = tmp_path / f"{size}.yaml"
        if OriginKind.USER in given_by:
            user_file.write_text(f"# mine\n\n{key}: {said[OriginKind.USER][0]}\n", encoding="utf-8")
        loaded = load(
            f"# ours\n{key}: {said[OriginKind.REPOSITORY][0]}\n" if OriginKind.REPOSITORY in given_by else None,
            user_file=user_file,
            environment={name: str(said[OriginKind.ENVIRONMENT][0])} if OriginKind.ENVIRONMENT in given_by else {},
            flags={key: said[OriginKind.FLAG][0] if OriginKind.FLAG in given_by else None},
        )
        origins = {
            OriginKind.USER: Origin(OriginKind.USER, str(user_file), 3),
            OriginKind.REPOSITORY: Origin(OriginKind.REPOSITORY, "codeloupe.yaml", 2),
            OriginKind.ENVIRONMENT: Origin(OriginKind.ENVIRONMENT, name),
            OriginKind.FLAG: Origin(OriginKind.FLAG, FLAG_NAMES.get(key, "--" + key.replace("_", "-"))),
        }
        strongest = given_by[-1] if given_by else None
        assert getattr(loaded.settings, key) == (said[strongest][1] if strongest else getattr(Settings(), key))
        assert loaded.origins[key] == (origins[strongest] if strongest else Origin(OriginKind.DEFAULT)), given_by
        assert {loaded.origins[other] for other in KEYS if other != key} == {Origin(OriginKind.DEFAULT)}


EXPERTS = """\
experts: [payments]
own_experts:
  payments:
    description: Where money moves.
    brief: money
    focus: [rounding, currency]
    do_not_flag: names
    paths: ["pay/**"]
    severity_guide: {critical: money is lost, low: a report is ugly}
"""


def test_an_empty_file_means_defaults_and_a_byte_order_mark_hides_nothing() -> None:
    for text in (None, "", "\n", "# only a comment\n", "---\n", "---\n...\n", "~", "{}", "\ufeff"):
        assert load(text).settings == Settings(), text
    assert load("\ufefffail_on: low").settings.fail_on is Severity.LOW


def test_null_lets_the_base_branch_be_found_again_and_what_is_loaded_cannot_be_changed(tmp_path: Path) -> None:
    user_file = tmp_path / "config.yaml"
    user_file.write_text("base_branch: trunk", encoding="utf-8")
    loaded = load(f"{EXPERTS}base_branch: null\n", user_file=user_file)
    assert loaded.settings.base_branch is None
    for frozen in (loaded.origins, loaded.settings.own_experts, loaded.settings.own_experts["payments"]):
        with pytest.raises(TypeError):
            frozen["fail_on"] = None  # type: ignore[index]  # that it is refused is the test


_HUGE = "0x" + "f" * 4000
WRONG = {
    "base_branch": {"yes": "'yes'", "-x": "'-x'", '""': "''", r'"a\0b"': r"'a\x00b'", "[a]": "a list"},
    "include": {"src": "'src'", "": "nothing", "{a: b}": "a group of keys"},
    "fail_on": {"worst": "'worst'", "true": "'true'", "": "nothing", "3": "'3'", _HUGE: f"'{_HUGE[:60]}…'"},
    "lanes": {"[]": "an empty list"},
    "passes": {"11": "'11'", "0": "'0'"},
    "verify": {"'yes'": "'yes'", "1": "'1'"},
    "max_file_bytes": {"true": "'true'", "'5'": "'5'", "1.5": "'1.5'", _HUGE: f"'{_HUGE[:60]}…'"},
    "timeout_seconds": {"0": "'0'", ".nan": "'.nan'", ".inf": "'.inf'", "true": "'true'", _HUGE: f"'{_HUGE[:60]}…'"},
}


@each(("key", "value", "found"), [(key, *row) for key, values in WRONG.items() for row in values.items()])
def test_a_wrong_value_is_named_with_its_line_and_what_was_expected(key: str, value: str, found: str) -> None:
    error = refusal(f"# first line\n{key}: {value}\n")
    assert error.message.startswith(f"codeloupe.yaml:2: {key}: expected ")
    assert error.message.endswith(f", found {found}")
    assert error.hint


_FILE, _ENV, _SCHEMA = "codeloupe.yaml", "CODELOUPE_", "`codeloupe config schema`"
_TIMEOUTS = ("timeout_seconds", "review_timeout_seconds", "agent_sdk_review_timeout")


@each(
    ("source", "message", "hint"),
    [
        ("on_incomplete: 'no'", f"{_FILE}:1: on_incomplete: expected fail or pass, found 'no'", "the default is fail"),
        ("fail_on: huge", f"{_FILE}:1: fail_on: expected critical, high, medium or low (or P0 to P3), found", "the"),
        ("on_incomplete: Pass", f"{_FILE}:1: on_incomplete: ", "did you mean `pass`?"),
        ("base_branch: 1.10", f"{_FILE}:1: base_branch: ", "put it in quotes"),
        ("timeout_seconds: soon", f"{_FILE}:1: timeout_seconds: ", "the default is 300"),
        (
            "include:\n  - src\n  - 5\n",
            f"{_FILE}:3: include: entry 2: expected a pattern (string), found '5'",
            "put it",
        ),
        ("reviewers: [agent_sdk, codx]", f"{_FILE}:1: reviewers: entry 2: expected agent_sdk", "did you mean `codex`?"),
        (
            "lanes:\n  - agent\n  - agent",
            f"{_FILE}:3: lanes: entry 2: expected each name at most once, found 'agent'",
            _SCHEMA,
        ),
        ("experts: [a b]", f"{_FILE}:1: experts: entry 1: expected a name consisting of letters", _SCHEMA),
        ("\n\nfailOn: high\n", f"{_FILE}:3: failOn: unknown key", "did you mean `fail_on`?"),
        ("colour: blue", f"{_FILE}:1: colour: unknown key", "`codeloupe config show` lists every key"),
        (r'"\e[31mred\u202e\n": 1', rf"{_FILE}:1: '\x1b[31mred\u202e\n': unknown key", "`codeloupe config show`"),
        ("fail_on: low\nuntrusted: true\nfail_on: low", f"{_FILE}:3: fail_on: already given on line 1", "keep one"),
        ("<<: {fail_on: low}", f"{_FILE}:1: '<<': unknown key", "`codeloupe config show`"),
        ({f"{_ENV}FAIL_ON": "worst"}, f"{_ENV}FAIL_ON: expected critical, high, medium or low", "change or remove"),
        ({f"{_ENV}UNTRUSTED": "ja"}, f"{_ENV}UNTRUSTED: expected true or false, found 'ja'", "change or remove"),
        ({f"{_ENV}MAX_FILE_BYTES": "9" * 5000}, f"{_ENV}MAX_FILE_BYTES: expected a whole number from 1", "change or"),
        ({f"{_ENV}TIMEOUT_SECONDS": "nan"}, f"{_ENV}TIMEOUT_SECONDS: expected a number of seconds above 0", "change"),
        ({f"{_ENV}REVIEWERS": "codex, offlin"}, f"{_ENV}REVIEWERS: expected a list of agent_sdk, ", "did you mean `o"),
        ({f"{_ENV}REVIEW_COMMAND": "a 'b"}, f"{_ENV}REVIEW_COMMAND: expected a list with a program and its", "change"),
        ({f"{_ENV}FAIL_ON\x1b": "high"}, rf"{_ENV}FAIL_ON\x1b: unknown variable", "did you mean `CODELOUPE_FAIL_ON`?"),
        ({f"{_ENV}TIMEOUT": "5"}, f"{_ENV}TIMEOUT: unknown variable", "did you mean `CODELOUPE_TIMEOUT_SECONDS`?"),
        ({"max_file_bytes": "many"}, "--max-file-bytes: expected a whole number from 1 to 1,000,000,000", "change or"),
        ({"include": [1, 2]}, "--include: expected a list of patterns", "put it in quotes"),
        (dict.fromkeys(_TIMEOUTS, -5.0), "--timeout: expected a number of seconds above 0, found '-5.0'", "change or"),
    ],
)
def test_a_mistake_is_told_with_its_place_what_was_expected_and_a_way_out(source: Any, message: str, hint: str) -> None:
    if isinstance(source, str):
        error = refusal(source)
    elif next(iter(source)).startswith(_ENV):
        error = refusal(environment=source)
    else:
        error = refusal(flags=source)
    assert error.message.startswith(message)
    assert error.hint.startswith(hint)
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
    first, *mistakes = caught.value.message.splitlines()
    assert first == "the configuration has 7 mistakes:"
    files = (f"{user_file}:1", *(f"codeloupe.yaml:{line}" for line in range(1, 5)))
    assert [row.strip().split(": ")[0] for row in mistakes] == [*files, "CODELOUPE_TIMEOUT_SECONDS", "--reviewer"]
    assert mistakes[0].endswith(": untrusted: expected true or false, found 'perhaps' (the default is false)")
    assert caught.value.exit_code == 2


@each("key", sorted(USER_KEYS))
def test_a_repository_cannot_choose_what_runs_here_or_where_keys_go(key: str) -> None:
    error = refusal(f"fail_on: low\n{key}: true\n")
    assert error.message.startswith(f"codeloupe.yaml:2: {key}: a repository cannot set this")
    assert f"CODELOUPE_{key.upper()}" in error.hint


@each(
    ("pattern", "problem"),
    [
        ("[z-a].py", "its range from 'z' to 'a' runs backwards"),
        ("./src", "it has `.` where a path has the name of a folder or file"),
        ("/", "it names no file"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_told_with_its_line(pattern: str, problem: str) -> None:
    error = refusal(f'fail_on: high\nexclude:\n  - "*.py"\n  - "{pattern}"\n')
    assert error.message == f"codeloupe.yaml:4: exclude: entry 2: invalid pattern: {problem}"
    assert "paths: entry 1: invalid pattern" in refusal(f'instructions: [{{paths: ["{pattern}"], text: x}}]').message
    flags: Any = {"exclude": [pattern]}
    assert refusal(flags=flags).message.startswith("--exclude: invalid pattern: ")


def test_what_is_no_setting_is_left_alone_and_an_unknown_flag_is_a_mistake_of_the_caller() -> None:
    for name in ("CODELOUPE_SPEED", "CODELOUPE_COLOUR", "CODELOUPE_", "MY_CODELOUPE_FAIL_ON", "FAIL_ON"):
        assert load(environment={name: "low"}) == load(), name
    for text in ("", "  "):
        assert load(environment={"CODELOUPE_INCLUDE": text, "CODELOUPE_FAIL_ON": text}) == load()
    with pytest.raises(KeyError):
        load(flags={"colour": "high"})


def test_experts_and_instructions_are_read_whole() -> None:
    settings = load(EXPERTS).settings
    assert settings.own_experts["payments"] == {
        "description": "Where money moves.",
        "brief": "money",
        "focus": ("rounding", "currency"),
        "do_not_flag": ("names",),
        "paths": ("pay/**",),
        "severity_guide": {"critical": "money is lost", "low": "a report is ugly"},
    }
    (expert,) = load_experts(settings.experts, own=settings.own_experts)
    assert (expert.name, expert.focus, expert.do_not_flag) == ("payments", ("rounding", "currency"), ("names",))
    settings = load("commit_experts:\n  bug_fix: [reliability, tests]\n  other: [mine]\n").settings
    assert settings.commit_experts == {"bug_fix": ("reliability", "tests"), "other": ("mine",)}
    assert Settings(commit_experts={CommitCategory.CHORE: ("x",)}).commit_experts == {"chore": ("x",)}
    told = load('instructions: [{paths: ["api/**", "*.proto"], text: Every field keeps its number.}]').settings
    assert told.instructions == (PathInstruction(("api/**", "*.proto"), "Every field keeps its number."),)


_NAMED = "expected a name consisting of letters, digits, - and _"
_OWN, _COMMITS, _GUIDE = "own_experts:\n  ", "commit_experts:\n  ", "severity_guide:\n      hihg: x"
_FOCUS, _RULES = "own_experts.a.focus", "instructions:\n"


@each(
    ("text", "message", "hint"),
    [
        (f"{_OWN}a:\n    focus: [x]\n    focsu: [x]", "4: own_experts.a.focsu: unknown key", "did you mean `focus`?"),
        (f"{_OWN}a: {{focus: [x], zzz: 1}}", "2: own_experts.a.zzz: unknown key", "the keys are"),
        (f"{_OWN}a:\n    paths: [x]", "2: own_experts.a: `focus` is missing", _SCHEMA),
        (f"{_OWN}a: 5", "2: own_experts.a: expected a group with focus and, optionally, description, brief, ", _SCHEMA),
        (f"{_OWN}a:\n    focus: []", f"3: {_FOCUS}: expected a list of at least one string, found an empty", _SCHEMA),
        (f"{_OWN}a:\n    focus:\n      - x\n      - 5", f"5: {_FOCUS}: entry 2: expected a string of at", "put it in"),
        (f"{_OWN}a:\n    focus: x\n    {_GUIDE}", "5: own_experts.a.severity_guide.hihg: unknown", "did you mean `h"),
        (f"{_OWN}Big Name: {{focus: x}}", f"2: own_experts.'Big Name': {_NAMED}, such as payments, found 'B", _SCHEMA),
        (
            f"{_OWN}default: {{focus: x}}",
            "2: own_experts.default: `default` is reserved: it means the experts",
            _SCHEMA,
        ),
        (f"{_OWN}a: {{focus: {'x' * 401}}}", f"2: {_FOCUS}: entry 1: expected a string of at most 400 char", _SCHEMA),
        ("own_experts: [a]", "1: own_experts: expected experts by name", "the default is {}"),
        (f"{_COMMITS}bugfix: [x]", "2: commit_experts.bugfix: unknown key", "did you mean `bug_fix`?"),
        (f"{_COMMITS}chore: []", "2: commit_experts.chore: expected a list of at least one expert name", _SCHEMA),
        (f"{_COMMITS}chore: [a, b c]", f"2: commit_experts.chore: entry 2: {_NAMED}", _SCHEMA),
        ("commit_experts: [a]", "1: commit_experts: expected lists of expert names", "the default is {}"),
        (f"{_RULES}  - text: x", "2: instructions: entry 1: `paths` is missing", _SCHEMA),
        (f"{_RULES}- {{paths: [a], text: x}}\n- paths: a\n  text: x", "3: instructions: entry 2: paths: exp", _SCHEMA),
        (f"{_RULES}- {{path: [a], text: x, paths: [b]}}", "2: instructions: entry 1: path: unknown key", "did you"),
        ("instructions: x", "1: instructions: expected a list of groups", "the default is []"),
    ],
)
def test_a_mistake_inside_a_group_is_named_with_its_own_line(text: str, message: str, hint: str) -> None:
    error = refusal(text)
    assert error.message.startswith(f"codeloupe.yaml:{message}")
    assert error.hint.startswith(hint)


def test_all_mistakes_of_a_group_are_told_at_once_and_a_key_twice_is_one() -> None:
    error = refusal("own_experts:\n  a: {focsu: [x], paths: [1]}\n  b: 5\n  b: {focus: [y]}\n")
    assert [row.split(": ")[:2] for row in error.message.splitlines()[1:]] == [
        *(["  codeloupe.yaml:2", f"own_experts.a{more}"] for more in (".focsu", "", ".paths")),
        ["  codeloupe.yaml:4", "b"],
    ]


@each("key", ["own_experts", "commit_experts", "instructions"])
def test_a_group_cannot_be_a_variable_or_a_flag(key: str) -> None:
    name = f"CODELOUPE_{key.upper()}"
    error = refusal(environment={name: "{}"})
    assert error.message.startswith(f"{name}: expected ")
    assert error.hint == "set it in a configuration file"
    assert refusal(flags={key: "x"}).hint == "set it in a configuration file"


FORK = "because this is a pull request from a fork"
UNKNOWN = "because this is a pull request from an unknown source"
OURS, THEIRS = {"id": 1, "full_name": "owner/shop"}, {"id": 2, "full_name": "ada/shop", "fork": True}


def loaded(environment: dict[str, str], *, file: str = "", **flags: object) -> LoadedSettings:
    return load(file or None, environment=environment, flags=flags)


def why(settings: LoadedSettings) -> str | None:
    """Why a change is not trusted; None when it is."""
    assert settings.settings.untrusted == (settings.origins["untrusted"].kind is not OriginKind.DEFAULT)
    return settings.origins["untrusted"].where if settings.settings.untrusted else None


def on_github(folder: Path, event: Any, *, name: str = "pull_request") -> dict[str, str]:
    path = folder / "event.json"
    path.write_text(event if isinstance(event, str) else json.dumps(event))
    return {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(path)}


def pull_request(head: Any, base: Any = OURS) -> dict[str, Any]:
    return {"pull_request": {"head": {"repo": head}, "base": {"repo": base}}, "repository": OURS}


@each(
    ("name", "event", "reason"),
    [
        *[("pull_request", pull_request(THEIRS), FORK), ("pull_request", pull_request(None), FORK)],
        ("pull_request", {"pull_request": {"head": {}, "base": {"repo": OURS}}}, FORK),
        ("pull_request", {"pull_request": {"head": {"repo": OURS}, "base": {}}}, UNKNOWN),
        ("pull_request", pull_request(OURS), None),
        # A project that is itself a fork of another has branches of its own.
        ("pull_request", pull_request({**OURS, "fork": True}), None),
        ("pull_request", pull_request({"full_name": "ada/shop"}, {"full_name": "owner/shop"}), FORK),
        *[("pull_request", odd, UNKNOWN) for odd in ("[]", "{broken", "[" * 100_000, {"pull_request": "odd"}, "{}")],
        ("workflow_run", {"workflow_run": {"head_repository": THEIRS}, "repository": OURS}, FORK),
        ("workflow_run", {"workflow_run": {"head_repository": OURS}, "repository": OURS}, None),
        ("issue_comment", {"issue": {"pull_request": {"url": "x"}}, "repository": OURS}, UNKNOWN),
        ("issue_comment", {"issue": {"number": 3}, "repository": OURS}, None),
        ("pull_request_target", pull_request(THEIRS), FORK),
        ("push", {"ref": "refs/heads/main", "repository": OURS}, None),
    ],
)
def test_on_github_the_event_tells_whose_change_it_is(
    tmp_path: Path, name: str, event: Any, reason: str | None
) -> None:
    variables = on_github(tmp_path, event, name=name)
    assert why(loaded(variables)) == reason
    assert why(loaded({**variables, "GITHUB_ACTIONS": ""})) is None
    # Without a readable event a pull request counts as a stranger's.
    for path in (str(tmp_path / "gone"), str(tmp_path), "", "\0"):
        assert why(loaded({**variables, "GITHUB_EVENT_PATH": path})) == (None if name == "push" else UNKNOWN)


@each(
    ("variables", "reason"),
    [
        ({"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "2", "CI_MERGE_REQUEST_PROJECT_ID": "1"}, FORK),
        ({"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "2"}, FORK),
        ({"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1", "CI_MERGE_REQUEST_PROJECT_ID": "1"}, None),
        ({"CI_MERGE_REQUEST_PROJECT_ID": "1"}, None),
        ({"SYSTEM_PULLREQUEST_ISFORK": "True"}, FORK),
        ({"SYSTEM_PULLREQUEST_ISFORK": "False"}, None),
        ({"CIRCLE_PR_REPONAME": "shop"}, FORK),
        ({"CI": "true"}, None),
    ],
)
def test_other_ci_tells_by_variables(variables: dict[str, str], reason: str | None) -> None:
    assert why(loaded(variables)) == reason


def test_the_repositorys_file_cannot_take_it_back_but_the_jobs_owner_can(tmp_path: Path) -> None:
    variables = on_github(tmp_path, pull_request(THEIRS))
    assert why(loaded(variables, file="untrusted: false\n")) == FORK
    told = loaded({**variables, "CODELOUPE_UNTRUSTED": "false"})
    assert not told.settings.untrusted
    assert told.origins["untrusted"] == Origin(OriginKind.ENVIRONMENT, "CODELOUPE_UNTRUSTED")
    assert why(loaded(variables, untrusted=True)) == "--untrusted"
