"""Which agent is asked, and what users read if none can be: the real programs, a home with logins, and the stand-in."""

import json
from pathlib import Path

import pytest

from codeloupe.testing import Json, Refusal, StandInServer, Text
from tests.agent_programs import KEY, agents_at, find
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

NO_CLAUDE = {"CODELOUPE_AGENTS": "codex,gemini,api", "CODELOUPE_CODEX_PATH": "/nowhere/codex"}
PERSONAL = "a personal Google login no longer works"


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"README.md": "a shop\n"})
    text = "def average(prices):\n    return sum(prices) / len(prices)\n"
    repository.commit_files({"average.py": text}, branch="change")
    return repository


@pytest.fixture
def google_login(home: Path) -> Path:
    """A home with the file that a login with Google leaves, and the settings that choose it."""
    folder = home / ".gemini"
    folder.mkdir()
    (folder / "oauth_creds.json").write_text(json.dumps({"access_token": "made-up", "refresh_token": "made-up"}))
    (folder / "settings.json").write_text(json.dumps({"security": {"auth": {"selectedType": "oauth-personal"}}}))
    return home


def gemini_alone(server: StandInServer, **more: str) -> dict[str, str]:
    """The environment in which gemini is installed, at the stand-in, without a key."""
    keyed = agents_at(server, "gemini") | NO_CLAUDE | {"CODELOUPE_KEEP_HISTORY": "false"}
    return {name: value for name, value in keyed.items() if name != "GEMINI_API_KEY"} | more


def words_of(ended: Ended) -> str:
    return " ".join((ended.stdout + ended.stderr).split())


@pytest.mark.defect("A3")
@pytest.mark.usefixtures("google_login")
def test_a_personal_google_login_is_explained_and_skipped(project: GitRepository) -> None:
    with StandInServer([Json({"findings": []})]) as server:
        variables = gemini_alone(server)
        for verb in (("doctor",), ("agent", "list")):
            assert f"{PERSONAL}, because Google ended these logins in June 2026: set GEMINI_API_KEY" in words_of(
                codeloupe(*verb, cwd=project.path, environment=variables)
            )
        listed = codeloupe("agent", "list", "--json", cwd=project.path, environment=variables).json()
        (gemini,) = (agent for agent in listed["agents"] if agent["name"] == "gemini")
        assert gemini["logged_in"] is False
        review = codeloupe("review", "main...HEAD", "--format", "json", cwd=project.path, environment=variables)
        document = review.json()
        assert document["reviewer"]["type"] == "offline"
        problems = "codex is not installed, gemini is not logged in, api is without a model"
        assert problems in document["reviewer"]["why"]
        asked = codeloupe("agent", "run", "--agent", "gemini", "Hello?", cwd=project.path, environment=variables)
        assert asked.exit_code == 2
        assert PERSONAL in words_of(asked)
        assert server.count() == 0


@pytest.mark.defect("A3")
@pytest.mark.usefixtures("google_login")
def test_a_key_is_used_beside_a_personal_google_login(project: GitRepository) -> None:
    with StandInServer([Json({"findings": []})]) as server:
        for keys in (
            {"GEMINI_API_KEY": KEY},
            {"GOOGLE_API_KEY": KEY, "GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_VERTEX_BASE_URL": server.url},
        ):
            variables = gemini_alone(server, **keys)
            words = ("review", "main...HEAD", "--format", "json", "--fresh")
            document = codeloupe(*words, cwd=project.path, environment=variables).json()
            assert (document["reviewer"]["type"], document["complete"]) == ("gemini", True), document["errors"]


@pytest.mark.defect("A3")
@pytest.mark.usefixtures("google_login")
def test_a_google_login_that_is_refused_passes_the_review_to_the_next_agent(project: GitRepository) -> None:
    with StandInServer([Json({"findings": []})]) as server:
        enterprise = gemini_alone(server, GOOGLE_CLOUD_PROJECT="shop")
        doctor = words_of(codeloupe("doctor", cwd=project.path, environment=enterprise))
        assert "login unknown" in doctor
        assert "only a first call shows whether Google accepts this login" in doctor
        words = ("review", "main...HEAD", "--format", "json")
        alone = codeloupe(*words, cwd=project.path, environment=enterprise)
        assert (alone.exit_code, alone.json()["complete"]) == (3, False)
        assert "not logged in: gemini" in json.dumps(alone.json()["errors"])
        document = codeloupe(*words, cwd=project.path, environment=enterprise | agents_at(server, "api")).json()
        assert document["complete"]
        assert "1 unit was answered by api" in json.dumps(document["errors"])
        assert "not logged in: gemini" in json.dumps(document["errors"])


@pytest.mark.defect("A8")
def test_every_agent_that_cannot_be_used_is_named_in_the_order_asked(project: GitRepository, home: Path) -> None:
    variables = {
        "CODELOUPE_AGENTS": "claude_cli,codex,gemini,api",
        "CODELOUPE_CLAUDE_PATH": str(find("claude")),
        "CODELOUPE_CODEX_PATH": "/nowhere/codex",
        "CODELOUPE_GEMINI_PATH": str(home / "gemini"),
    }
    ended = codeloupe("agent", "run", "--json", "Hello?", cwd=project.path, environment=variables)
    document = ended.json()
    assert (ended.exit_code, document["error_kind"], document["agent"]) == (2, "NotLoggedIn", "claude_cli")
    places = [document["error"].index(name) for name in ("claude_cli", "codex", "gemini", "api does not know")]
    assert places == sorted(places)
    assert "ANTHROPIC_API_KEY" in ended.stderr
    listed = "claude_cli is not logged in, codex and gemini are not installed, api is without a model"
    for verb in (("doctor",), ("review", "main...HEAD", "-v"), ("commits", "main..HEAD")):
        assert listed in words_of(codeloupe(*verb, cwd=project.path, environment=variables)), verb


@pytest.mark.defect("A4")
def test_a_refusal_that_the_program_reports_ends_the_call_as_refused(project: GitRepository, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}))
    for agent in ("claude_cli", "codex", "gemini"):
        with StandInServer([Refusal()]) as server:
            for more in ((), ("--schema", str(schema))):
                words = ("agent", "run", "--agent", agent, "--json", *more, "Hello?")
                ended = codeloupe(*words, cwd=project.path, environment=agents_at(server, agent))
                assert (ended.exit_code, ended.json()["error_kind"]) == (3, "Refused"), (agent, ended.stdout)


@pytest.mark.defect("A4")
def test_a_refusal_in_words_fails_a_schema_and_is_shown(project: GitRepository, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"findings": {"type": "array"}}}))
    for agent in ("claude_cli", "codex", "gemini", "api"):
        with StandInServer([Text("I cannot help with this request.")]) as server:
            words = ("agent", "run", "--agent", agent, "--json", "--schema", str(schema), "Hello?")
            document = codeloupe(*words, cwd=project.path, environment=agents_at(server, agent)).json()
        assert document["error_kind"] == "OutputInvalid", document
        assert "it begins with: I cannot help with this request." in document["error"]


@pytest.mark.defect("A6")
def test_a_prompt_over_the_limit_names_limit_size_and_remedy(project: GitRepository) -> None:
    for agent, most, unit in (
        ("claude_cli", 2_800_000, "characters"),
        ("agent_sdk", 2_800_000, "characters"),
        ("codex", 1_048_576, "characters"),
        ("gemini", 2_097_152, "bytes"),
    ):
        with StandInServer([Text("Hello.")]) as server:
            words = ("agent", "run", "--agent", agent, "--json")
            ended = codeloupe(*words, cwd=project.path, stdin=b"x" * (most + 1), environment=agents_at(server, agent))
            assert server.count() == 0
        document = ended.json()
        assert (ended.exit_code, document["error_kind"]) == (3, "PromptTooLong")
        assert f"has {most + 1:,} {unit}; {agent} accepts at most {most:,} (shorten the prompt" in document["error"]
