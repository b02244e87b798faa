"""What all agents have in common that start a program, with one of ours in the place of each vendor's."""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from codeloupe import errors
from codeloupe.agents.calls.program import agent_environment, call_folder, installed_version, user_home
from codeloupe.agents.gemini.agent import GeminiAgent
from codeloupe.model.agent import AgentRequest, AgentResult, full_prompt
from codeloupe.system.process import NETWORK_NAMES, stream
from tests.endings import FAR_TOO_LONG_SECONDS, before_its_limit, ends_soon, timed_out
from tests.rows import each
from tests.unit.agents.samples import AGENTS, FakeProgram, capture, printing, request, unheard

pytestmark = pytest.mark.program

KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
SESSIONS = {"claude": "session_id", "codex": "thread_id", "gemini": "session_id"}
ANSWERS = {name: printing(capture(name, "answer").stdout + "\n") for name in AGENTS}
OUTPUTS = {"claude": "hello from fake", "codex": "hello from the stand-in", "gemini": "hello from the stand-in"}
RESULT: dict[str, Any] = capture("claude", "answer").result
every_agent = each("name", AGENTS)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def fake(folder: Path, name: str, body: str | None = None, **more: Any) -> FakeProgram:
    place = folder / f"{name}-{len(list(folder.iterdir()))}"
    place.mkdir()
    return FakeProgram(place, ANSWERS[name] if body is None else body, name=name, **more)


def run(name: str, program: FakeProgram, asked: AgentRequest, **more: Any) -> AgentResult:
    source = {"PATH": os.defpath, KEYS[name]: "made-up", **more.pop("source", {})}
    return asyncio.run(AGENTS[name](program.path, source, **more).run(asked, unheard))


@pytest.mark.requirement("R16")
@every_agent
def test_a_program_sees_nothing_of_ours_but_its_key_and_leads_a_session_of_its_own(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "not-for-others")
    program = fake(tmp_path, name)
    source = {"GITHUB_TOKEN": "nor-this", "CLAUDECODE": "1", "GOOGLE_API_KEY": "nor-that", "CODEX_HOME": "/nowhere"}
    assert run(name, program, request("Look.", working_dir=work), source=source).output == OUTPUTS[name]
    seen = program.started["environment"]
    assert seen[KEYS[name]] == "made-up"
    assert not {"DATABASE_PASSWORD", "GITHUB_TOKEN", "CLAUDECODE", "GOOGLE_API_KEY"} & seen.keys()
    assert not any("made-up" in argument for argument in program.started["argv"])
    assert not Path(seen["HOME"]).exists(), "the home that was thrown away is still there"
    assert (program.started["cwd"], program.started["stdin"]) == (str(work), "Look.")
    assert program.started["leads"]


@pytest.mark.requirement("R12")
def test_a_run_without_a_result_is_never_an_answer(tmp_path: Path, work: Path) -> None:
    common: list[tuple[str, type[errors.AgentError], str]] = [
        ("sys.exit(3)", errors.Crashed, "exit code 3"),
        ("", errors.Crashed, "exit code 0"),
        ("print('{\"type\": \"resu', end='')", errors.Crashed, "without a result"),
        ("print('plain words'); sys.exit(1)", errors.Crashed, "without a result"),
        ("os.write(2, b'out of memory'); os.abort()", errors.Crashed, "exit code -6; it said: out of memory"),
    ]
    node = ("env: 'node': No such file or directory", 127, "Node.js")
    own = {
        "claude": [("error: unknown option '--restricted'", 1, "too old")],
        "codex": [("error: unexpected argument '--json' found", 1, "too old"), node],
        "gemini": [("Unknown argument: output-format", 1, "too old"), node],
    }
    wrong = []
    for name, rows in own.items():
        missing = [
            (f"os.write(2, {said.encode()!r}); sys.exit({code})", errors.NotInstalled, words)
            for said, code, words in rows
        ]
        for body, kind, words in (*common, *missing):
            with pytest.raises(errors.AgentError) as raised:
                run(name, fake(tmp_path, name, body), request(working_dir=work))
            error = raised.value
            if type(error) is not kind or words not in error.message or not error.hint:
                wrong.append((name, body, error))
    assert wrong == []


@every_agent
def test_a_program_that_answers_and_does_not_end_has_answered_and_is_not_waited_for_until_its_deadline(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program = fake(tmp_path, name, f"{ANSWERS[name]}\ntime.sleep({FAR_TOO_LONG_SECONDS})")
    answered = before_its_limit(
        errors.TimedOut, lambda seconds: run(name, program, request(working_dir=work, timeout_seconds=seconds))
    )
    assert answered.output == OUTPUTS[name]
    # So that the test need not wait as long as a real program may take.
    monkeypatch.setattr("codeloupe.system.process._END_SECONDS", 0.3)
    with ends_soon():
        asked = request(working_dir=work, timeout_seconds=FAR_TOO_LONG_SECONDS)
        assert run(name, program, asked).output == OUTPUTS[name]


@pytest.mark.requirement("R8")
@every_agent
def test_a_silent_program_is_ended_and_what_it_said_is_kept(tmp_path: Path, work: Path, name: str) -> None:
    first = capture(name, "retry_500" if name == "claude" else "answer").lines[0]
    program = fake(tmp_path, name, printing(first, then="time.sleep(60)"))
    limits = {"timeout_seconds": r"did not finish within \d", "idle_timeout_seconds": r"wrote nothing for \d"}
    for limit, words in limits.items():

        def ask(seconds: float, limit: str = limit) -> AgentResult:
            return run(name, program, request("Look.", working_dir=work, **{limit: seconds}))

        error = timed_out(errors.TimedOut, ask, ready=lambda error: bool(error.raw_output), words=words)
        assert error.session_id == json.loads(first)[SESSIONS[name]]
        assert error.raw_output == first
        assert error.__cause__ is not None


@pytest.mark.requirement("R11")
def test_a_program_that_is_not_there_or_cannot_run_is_told_with_the_command_that_installs_it(
    tmp_path: Path, work: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    for name, path in ((name, path) for name in AGENTS for path in (tmp_path / "nowhere", broken)):
        agent = AGENTS[name](str(path), {KEYS[name]: "made-up"})
        with pytest.raises(errors.NotInstalled, match=path.name) as raised:
            asyncio.run(agent.run(request(working_dir=work), unheard))
        assert "npm install" in raised.value.hint
        availability = asyncio.run(agent.check())
        assert (availability.found, availability.usable) == (False, False)
        assert "npm install" in availability.how_to_fix


@pytest.mark.requirement("R11")
def test_the_check_tells_version_and_login_and_gives_the_program_no_key(tmp_path: Path) -> None:
    home = tmp_path / "own"
    for folder, file in ((".claude", ".credentials.json"), (".codex", "auth.json"), (".gemini", "oauth_creds.json")):
        (home / folder).mkdir(parents=True)
        (home / folder / file).touch(mode=0o000)
    login, nothing = {"HOME": str(home)}, {"HOME": "/nowhere"}
    cases: list[tuple[str, dict[str, str], bool]] = [
        *((name, {KEYS[name]: "made-up", **nothing}, True) for name in AGENTS),
        *((name, {KEYS[name]: "", **nothing}, False) for name in AGENTS),
        *((name, login, True) for name in AGENTS if name != "gemini"),
        ("claude", {"CLAUDE_CODE_USE_VERTEX": "1", **nothing}, True),
        ("claude", {"CLAUDE_CONFIG_DIR": str(home / ".claude"), **nothing}, True),
        ("gemini", {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": "made-up", **nothing}, True),
    ]
    for name, source, logged_in in cases:
        program = fake(tmp_path, name, "print('the program 9.8.7 (some words)')")
        found = asyncio.run(AGENTS[name](program.path, {**source, "GEMINI_MODEL": "own"}).check())
        assert (found.found, found.version, found.logged_in, found.path) == (True, "9.8.7", logged_in, program.path)
        assert bool(found.how_to_fix) is not logged_in, (name, source)
        assert found.default_model == ("own" if name == "gemini" else None)
        assert program.started["environment"]["HTTPS_PROXY"] == "http://127.0.0.1:9"
        assert KEYS[name] not in program.started["environment"]
        if name == "claude" and not logged_in:
            # None is on the PATH of a test, so it has to be started by its path.
            assert f"start {program.path} in a terminal" in found.how_to_fix
    for name in AGENTS:
        found = asyncio.run(AGENTS[name](fake(tmp_path, name, "print('none')").path, {KEYS[name]: "x"}).check())
        assert not found.found
        assert "does not report its version" in found.how_to_fix


@pytest.mark.defect("A3")
@each(
    ("source", "selected", "login", "logged_in", "words"),
    [
        ({}, "oauth-personal", None, False, "personal Google login no longer works.*GEMINI_API_KEY.*PROJECT"),
        ({"GOOGLE_API_KEY": "x"}, "", None, False, "personal Google login no longer works"),
        ({"GEMINI_API_KEY": "x"}, "oauth-personal", "gemini-api-key", True, ""),
        ({"GOOGLE_CLOUD_PROJECT": "shop"}, "", "oauth-personal", None, "only a first call shows"),
        ({"GOOGLE_CLOUD_PROJECT": "shop", "GEMINI_API_KEY": "x"}, "oauth-personal", "gemini-api-key", True, ""),
        ({"GOOGLE_API_KEY": "x"}, "vertex-ai", "vertex-ai", True, ""),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "", None, False, "Vertex AI is chosen.*GOOGLE_CLOUD_LOCATION"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true", "GEMINI_API_KEY": "x"}, "", "gemini-api-key", True, ""),
        (
            {"GOOGLE_GENAI_USE_VERTEXAI": "1", "GOOGLE_CLOUD_PROJECT": "shop", "GOOGLE_CLOUD_LOCATION": "eu"},
            *("", "vertex-ai", None, "only a first call shows"),
        ),
    ],
)
def test_gemini_has_the_login_that_its_settings_and_variables_choose(
    tmp_path: Path, source: dict[str, str], selected: str, login: str | None, logged_in: bool | None, words: str
) -> None:
    folder = tmp_path / ".gemini"
    folder.mkdir(exist_ok=True)
    (folder / "oauth_creds.json").touch(mode=0o000)
    (folder / "settings.json").write_text(json.dumps({"security": {"auth": {"selectedType": selected}}}))
    program = fake(tmp_path, "gemini", "print('9.8.7')")
    agent = GeminiAgent(program.path, {"HOME": str(tmp_path), **source})
    found = asyncio.run(agent.check())
    assert (agent.login, found.logged_in, found.usable) == (login, logged_in, logged_in is not False)
    assert re.search(words, found.how_to_fix)
    assert bool(words) is bool(found.how_to_fix)


@pytest.mark.requirement("R11")
def test_without_key_and_login_nothing_is_started(tmp_path: Path, work: Path) -> None:
    for name, hint in (("codex", "codex login"), ("gemini", "GEMINI_API_KEY")):
        program = fake(tmp_path, name)
        with pytest.raises(errors.NotLoggedIn, match="no key") as raised:
            run(name, program, request(working_dir=work), source={"HOME": str(work), KEYS[name]: ""})
        assert hint in raised.value.hint
        assert not program.was_started


@pytest.mark.requirement("S7")
def test_an_answer_that_is_too_long_is_told_as_such_and_bytes_that_are_no_utf_8_are_replaced(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps({**RESULT, "result": "caf@"}).replace("@", "\\xe9")
    program = fake(tmp_path, "claude", f"os.write(1, b'{line}\\n')")
    assert run("claude", program, request(working_dir=work)).output == "caf\N{REPLACEMENT CHARACTER}"
    # So that the test need not print as much as a real program may.
    monkeypatch.setitem(stream.__kwdefaults__ or {}, "max_line_bytes", 10_000)
    long = json.dumps({**RESULT, "result": "x" * 20_000})
    with pytest.raises(errors.OutputInvalid, match="too long to be read") as raised:
        run("claude", fake(tmp_path, "claude", printing(f"{long}\n")), request(working_dir=work))
    assert "xxx" in raised.value.raw_output


def test_a_retry_of_the_program_ends_it_at_once(tmp_path: Path, work: Path) -> None:
    lines = "".join(capture("claude", "retry_429_after_1").lines[:2])
    with pytest.raises(errors.AgentError, match="429"), ends_soon():
        run("claude", fake(tmp_path, "claude", printing(lines, then="time.sleep(600)")), request(working_dir=work))


def test_a_program_that_would_trust_the_repository_is_refused(tmp_path: Path, work: Path) -> None:
    for version in ("0.60.9", "0.9.0", "nonsense"):
        program = fake(tmp_path, "gemini", f"print({version!r})", version=version)
        with pytest.raises(errors.NotInstalled, match=r"only version 0\.61 or newer") as raised:
            run("gemini", program, request(working_dir=work))
        assert "npm install" in raised.value.hint
        assert not program.was_started
        assert not asyncio.run(AGENTS["gemini"](program.path, {"GEMINI_API_KEY": "made-up"}).check()).usable
    for version, is_refused in (("0.70.1", False), ("1.0.0", False), ("0.12.0", True)):
        # One without its package is asked for its version.
        told = f"sys.argv[1:] == ['--version'] and (print({version!r}), sys.exit())\n"
        program = fake(tmp_path, "gemini", told + ANSWERS["gemini"])
        (Path(program.path).parent / "package.json").unlink()
        with pytest.raises(errors.NotInstalled) if is_refused else contextlib.nullcontext():
            assert run("gemini", program, request(working_dir=work)).success


class TestEnvironment:
    def made(self, source: dict[str, str], *names: str, **settings: str) -> dict[str, str]:
        return agent_environment(source, Path("/away"), names=names, settings=settings)

    @pytest.mark.requirement("R16")
    def test_nothing_passes_that_is_not_named(self) -> None:
        source = {"DATABASE_PASSWORD": "x", "GITHUB_TOKEN": "y", "LD_PRELOAD": "z", "NAMED": "yes"}
        found = self.made(source, "NAMED")
        assert found["NAMED"] == "yes"
        assert found.keys() - {"NAMED"} <= {
            "PATH", "LC_ALL", "TZ", "HOME", "TMPDIR", "NO_COLOR", "DISABLE_TELEMETRY", "DO_NOT_TRACK",
            "DISABLE_AUTOUPDATER",
        }  # fmt: skip

    def test_home_search_path_and_network_are_as_they_should_be_and_a_setting_has_the_last_word(self) -> None:
        found = self.made({"HOME": "/home/someone", "TMPDIR": "/elsewhere"}, "HOME", "TMPDIR")
        assert (found["HOME"], found["TMPDIR"]) == ("/away/home", "/away/tmp")
        found = self.made(dict.fromkeys(NETWORK_NAMES, "value") | {"ALL_PROXY": ""})
        assert {name for name in NETWORK_NAMES if name in found} == set(NETWORK_NAMES) - {"ALL_PROXY"}
        found = self.made({"NO_PROXY": "a"}, NO_PROXY="b", HOME="/c")
        assert (found["NO_PROXY"], found["HOME"]) == ("b", "/c")
        relative = f":.:bin{os.pathsep}/usr/bin{os.pathsep}/bin:"
        assert self.made({"PATH": relative})["PATH"] == f"/usr/bin{os.pathsep}/bin"
        assert Path(self.made({"PATH": "."})["PATH"].split(os.pathsep)[0]).is_absolute()
        assert (user_home({"HOME": "/home/someone"}), user_home({})) == (Path("/home/someone"), Path.home())

    def test_the_folder_of_a_call_is_private_empty_and_gone_afterwards(self) -> None:
        with call_folder() as root:
            assert root.stat().st_mode & 0o077 == 0
            assert list((root / "home").iterdir()) == list((root / "tmp").iterdir()) == []
            (root / "home" / "deep").mkdir()
            (root / "home" / "deep" / "file").touch(mode=0o400)
        assert not root.exists()

    @pytest.mark.requirement("R5")
    def test_context_is_after_the_prompt_under_its_title(self) -> None:
        asked = request("Look.", context={"The diff": "+a", "Notes": "none"})
        assert full_prompt(asked) == "Look.\n\n## The diff\n\n+a\n\n## Notes\n\nnone"
        assert full_prompt(request("Look.")) == "Look."


def test_the_version_of_a_package_is_what_the_standard_library_says() -> None:
    for name in ("claude-agent-sdk", "pydantic-ai-slim", "anthropic", "openai", "google-genai"):
        assert installed_version(name) == importlib.metadata.version(name), name
    for name in ("nothing-of-the-kind", "claude", "agent-sdk"):
        assert installed_version(name) is None
