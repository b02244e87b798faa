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
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, in which we are."""
    place = tmp_path / "repository"
    (place / ".git").mkdir(parents=True)
    monkeypatch.chdir(place)
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


class TestInit:
    def test_the_commented_file_is_written_at_the_root(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        deep = root / "a" / "b"
        deep.mkdir(parents=True)
        (root / "usual").touch()
        assert run("init", "--repo", deep) == 0
        made = root / "codeloupe.yaml"
        assert made.read_text(encoding="utf-8") == initial_text()
        assert stat.S_IMODE(made.stat().st_mode) == stat.S_IMODE((root / "usual").stat().st_mode)
        assert capsys.readouterr().out == f"wrote {made}\n"
        assert sorted(path.name for path in root.iterdir()) == [".git", "a", "codeloupe.yaml", "usual"]

    def test_nothing_is_overwritten_without_force(self, root: Path) -> None:
        made = root / "codeloupe.yaml"
        made.write_text("fail_on: low\n", encoding="utf-8")
        with pytest.raises(OutputError, match="already exists") as caught:
            run("init")
        assert caught.value.hint == "add --force to replace it"
        assert made.read_text(encoding="utf-8") == "fail_on: low\n"
        assert run("init", "--force") == 0
        assert made.read_text(encoding="utf-8") == initial_text()

    @each("force", [[], ["--force"]])
    def test_there_is_no_second_file_beside_the_other_spelling(self, root: Path, force: list[str]) -> None:
        (root / "codeloupe.yml").touch()
        with pytest.raises(OutputError, match=r"codeloupe\.yml already exists"):
            run("init", *force)
        assert not (root / "codeloupe.yaml").exists()

    @pytest.mark.parametrize("exists", [True, False])
    def test_it_never_writes_through_a_symbolic_link(self, root: Path, tmp_path: Path, *, exists: bool) -> None:
        victim = tmp_path / "victim"
        if exists:
            victim.write_text("precious", encoding="utf-8")
        (root / "codeloupe.yaml").symlink_to(victim)
        with pytest.raises(OutputError, match="already exists"):
            run("init")
        assert run("init", "--force") == 0
        assert not (root / "codeloupe.yaml").is_symlink()
        assert (victim.read_text(encoding="utf-8") == "precious") if exists else not victim.exists()

    def test_when_it_cannot_write_it_leaves_nothing_behind(self, root: Path) -> None:
        (root / "codeloupe.yaml").mkdir()
        with pytest.raises(OutputError, match=r"codeloupe\.yaml: cannot be written: is a directory"):
            run("init", "--force")
        assert sorted(path.name for path in root.iterdir()) == [".git", "codeloupe.yaml"]


class TestShow:
    def test_every_key_has_its_value_and_origin(
        self, root: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (root / "codeloupe.yaml").write_text('\ninclude: ["src/**", "\\e[31m"]\n', encoding="utf-8")
        user_file.write_text("untrusted: true\n", encoding="utf-8")
        monkeypatch.setenv("CODELOUPE_FAIL_ON", "P3")
        assert run("show") == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["KEY", *KEYS]
        words = ((lines[0], "FROM"), (lines[1], "default"), (lines[4], "CODELOUPE"))
        assert len({line.index(word) for line, word in words}) == 1
        table = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
        assert table["fail_on"].split() == ["low", "CODELOUPE_FAIL_ON"]
        assert table["untrusted"].split() == ["true", f"{user_file}:1"]
        assert table["include"].split() == ['["src/**",', r'"\u001b[31m"]', "codeloupe.yaml:2"]
        assert table["timeout_seconds"].split() == ["300", "default"]

    def test_what_would_push_the_origins_off_the_screen_is_cut(
        self, root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rules = "\n".join(f"  - {{paths: [a], text: rule number {number}}}" for number in range(9))
        (root / "codeloupe.yaml").write_text(f"instructions:\n{rules}\n", encoding="utf-8")
        assert run("show") == 0
        shown = capsys.readouterr().out.splitlines()
        assert max(map(len, shown)) <= 120
        (row,) = [line for line in shown if line.startswith("instructions ")]
        assert row.endswith("…  codeloupe.yaml:1")
        assert run("show", "--json") == 0
        assert len(json.loads(capsys.readouterr().out)["settings"]["instructions"]["value"]) == 9

    def test_programs_get_json(self, root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (root / "codeloupe.yaml").write_text("fail_on: P0\n", encoding="utf-8")
        assert run("show", "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["schema_version"] == 1
        values = {key: entry["value"] for key, entry in shown["settings"].items()}
        assert values == {**plain_values(Settings()), "fail_on": "critical"}
        assert shown["settings"]["fail_on"]["origin"] == {"kind": "repository", "where": "codeloupe.yaml", "line": 1}
        assert shown["settings"]["include"]["origin"] == {"kind": "default", "where": None, "line": None}


class TestValidate:
    def test_every_valid_file_is_named(self, root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run("validate")
        (root / "codeloupe.yaml").write_text("fail_on: low\n", encoding="utf-8")
        run("validate")
        user_file.touch()
        run("validate")
        one = "codeloupe.yaml: valid\n"
        expected = f"no configuration file: defaults apply\n{one}{one}{user_file}: valid\n"
        assert capsys.readouterr().out == expected

    def test_all_mistakes_are_listed_and_mean_exit_code_2(self, root: Path, user_file: Path) -> None:
        (root / "codeloupe.yaml").write_text("failOn: high\nuntrusted: 5\n", encoding="utf-8")
        user_file.write_text("include: x\n", encoding="utf-8")
        for verb in ("validate", "show"):
            with pytest.raises(ConfigError) as caught:
                run(verb)
            places = [line.split(": ")[0].strip() for line in caught.value.message.splitlines()[1:]]
            assert places == [f"{user_file}:1", "codeloupe.yaml:1", "codeloupe.yaml:2"]
            assert caught.value.exit_code == 2

    def test_a_given_file_is_checked_and_no_other(
        self, root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (root / "codeloupe.yaml").write_text("broken", encoding="utf-8")
        user_file.write_text("broken", encoding="utf-8")
        other = root / "other.yaml"
        with pytest.raises(ConfigError, match=r"other\.yaml: no such file"):
            run("validate", other)
        other.write_text("fail_on: low\n", encoding="utf-8")
        assert run("validate", other) == 0
        assert capsys.readouterr().out == f"{other}: valid\n"
        other.write_text("fail_on: worst\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"other\.yaml:1: fail_on: expected critical"):
            run("validate", other)


@each("verb", ["init", "show", "validate"])
def test_a_directory_that_does_not_exist_is_refused(verb: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such directory"):
        run(verb, "--repo", tmp_path / "nowhere")


def test_schema_prints_the_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
