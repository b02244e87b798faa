from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from codeloupe.cli import config
from codeloupe.cli.parser import Parser
from codeloupe.config.schema import KEYS, Settings, initial_text, json_schema, plain_values
from codeloupe.errors import ConfigError, OutputError, UsageError
from tests.rows import each


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    (place / ".git").mkdir(parents=True)
    return place.resolve()


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's file would be; its directory exists, the file does not."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    path = tmp_path / "settings" / "codeloupe" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


def run(*words: str | Path) -> int:
    parser = Parser(prog="codeloupe config")
    config.configure(parser)
    return config.run(parser.parse_args([str(word) for word in words]))


def test_init_writes_the_commented_file_at_the_root(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    assert run("init", "--repo", deep) == 0
    assert (root / "codeloupe.yaml").read_text(encoding="utf-8") == initial_text()
    assert capsys.readouterr().out == f"wrote {root / 'codeloupe.yaml'}\n"
    assert sorted(path.name for path in root.iterdir()) == [".git", "a", "codeloupe.yaml"]


def test_init_works_in_the_current_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert run("init") == 0
    assert (root / "codeloupe.yaml").is_file()


def test_init_gives_the_file_the_usual_permissions(root: Path) -> None:
    (root / "usual").touch()
    run("init", "--repo", root)
    mode = stat.S_IMODE((root / "codeloupe.yaml").stat().st_mode)
    assert mode == stat.S_IMODE((root / "usual").stat().st_mode)


def test_init_does_not_overwrite_without_force(root: Path) -> None:
    (root / "codeloupe.yaml").write_text("fail_on: low\n", encoding="utf-8")
    with pytest.raises(OutputError, match="already exists") as caught:
        run("init", "--repo", root)
    assert caught.value.hint == "add --force to replace it"
    assert (root / "codeloupe.yaml").read_text(encoding="utf-8") == "fail_on: low\n"
    assert run("init", "--force", "--repo", root) == 0
    assert (root / "codeloupe.yaml").read_text(encoding="utf-8") == initial_text()


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_init_does_not_make_a_second_file_beside_the_other_spelling(root: Path, force: list[str]) -> None:
    (root / "codeloupe.yml").touch()
    with pytest.raises(OutputError, match=r"codeloupe\.yml already exists"):
        run("init", *force, "--repo", root)
    assert not (root / "codeloupe.yaml").exists()


@pytest.mark.parametrize("exists", [True, False])
def test_init_never_writes_through_a_symbolic_link(root: Path, tmp_path: Path, *, exists: bool) -> None:
    victim = tmp_path / "victim"
    if exists:
        victim.write_text("precious", encoding="utf-8")
    (root / "codeloupe.yaml").symlink_to(victim)
    with pytest.raises(OutputError, match="already exists"):
        run("init", "--repo", root)
    assert run("init", "--force", "--repo", root) == 0
    assert not (root / "codeloupe.yaml").is_symlink()
    assert (victim.read_text(encoding="utf-8") == "precious") if exists else not victim.exists()


def test_init_that_cannot_write_says_so_and_leaves_nothing_behind(root: Path) -> None:
    (root / "codeloupe.yaml").mkdir()
    with pytest.raises(OutputError, match=r"codeloupe\.yaml: cannot be written: is a directory"):
        run("init", "--force", "--repo", root)
    assert sorted(path.name for path in root.iterdir()) == [".git", "codeloupe.yaml"]


@each("verb", ["init", "show", "validate"])
def test_a_directory_that_does_not_exist_is_refused(verb: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such directory"):
        run(verb, "--repo", tmp_path / "nowhere")


def test_show_lists_every_key_with_value_and_origin(
    root: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "codeloupe.yaml").write_text('\ninclude: ["src/**", "\\e[31m"]\n', encoding="utf-8")
    user_file.write_text("untrusted: true\n", encoding="utf-8")
    monkeypatch.setenv("CODELOUPE_FAIL_ON", "P3")
    assert run("show", "--repo", root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["KEY", *KEYS]
    starts = {line.index(word) for line, word in ((lines[0], "FROM"), (lines[1], "default"), (lines[4], "CODELOUPE"))}
    assert len(starts) == 1
    table = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert table["fail_on"].split() == ["low", "CODELOUPE_FAIL_ON"]
    assert table["untrusted"].split() == ["true", f"{user_file}:1"]
    assert table["include"].split() == ['["src/**",', r'"\u001b[31m"]', "codeloupe.yaml:2"]
    assert table["timeout_seconds"].split() == ["300", "default"]


def test_show_cuts_what_would_push_the_origins_off_the_screen(
    root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "\n".join(f"  - {{paths: [a], text: rule number {number}}}" for number in range(9))
    (root / "codeloupe.yaml").write_text(f"instructions:\n{rules}\n", encoding="utf-8")
    assert run("show", "--repo", root) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 120
    (row,) = [line for line in shown if line.startswith("instructions ")]
    assert row.endswith("…  codeloupe.yaml:1")
    assert run("show", "--json", "--repo", root) == 0
    assert len(json.loads(capsys.readouterr().out)["settings"]["instructions"]["value"]) == 9


def test_show_prints_json_for_machines(root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "codeloupe.yaml").write_text("fail_on: P0\n", encoding="utf-8")
    assert run("show", "--json", "--repo", root) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema_version"] == 1
    assert {key: entry["value"] for key, entry in shown["settings"].items()} == {
        **plain_values(Settings()),
        "fail_on": "critical",
    }
    assert shown["settings"]["fail_on"]["origin"] == {"kind": "repository", "where": "codeloupe.yaml", "line": 1}
    assert shown["settings"]["include"]["origin"] == {"kind": "default", "where": None, "line": None}


def test_show_refuses_a_broken_configuration(root: Path, user_file: Path) -> None:
    (root / "codeloupe.yaml").write_text("failOn: high\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"codeloupe\.yaml:1: failOn: unknown key"):
        run("show", "--repo", root)


def test_validate_says_that_there_is_no_file(root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("validate", "--repo", root) == 0
    assert capsys.readouterr().out == "no configuration file: defaults apply\n"


def test_validate_names_every_valid_file(root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "codeloupe.yaml").write_text("fail_on: low\n", encoding="utf-8")
    assert run("validate", "--repo", root) == 0
    user_file.touch()
    assert run("validate", "--repo", root) == 0
    one = "codeloupe.yaml: valid\n"
    assert capsys.readouterr().out == f"{one}{one}{user_file}: valid\n"


def test_validate_tells_all_mistakes_and_means_exit_code_2(root: Path, user_file: Path) -> None:
    (root / "codeloupe.yaml").write_text("failOn: high\nuntrusted: 5\n", encoding="utf-8")
    user_file.write_text("include: x\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        run("validate", "--repo", root)
    places = [line.split(": ")[0].strip() for line in caught.value.message.splitlines()[1:]]
    assert places == [f"{user_file}:1", "codeloupe.yaml:1", "codeloupe.yaml:2"]
    assert caught.value.exit_code == 2


def test_validate_checks_a_given_file_and_no_other(
    root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "codeloupe.yaml").write_text("broken", encoding="utf-8")
    user_file.write_text("broken", encoding="utf-8")
    other = root / "other.yaml"
    other.write_text("fail_on: low\n", encoding="utf-8")
    assert run("validate", other, "--repo", root) == 0
    assert capsys.readouterr().out == f"{other}: valid\n"
    other.write_text("fail_on: worst\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"other\.yaml:1: fail_on: expected critical"):
        run("validate", other, "--repo", root)


def test_validate_refuses_a_given_file_that_does_not_exist(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: no such file"):
        run("validate", root / "gone.yaml")


def test_schema_prints_the_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def test_a_verb_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 2
    assert "config needs a command: init, show, validate, schema" in capsys.readouterr().err
