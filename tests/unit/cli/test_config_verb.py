import json
from pathlib import Path

import pytest

from codeloupe.cli import config
from codeloupe.cli.parser import Parser
from codeloupe.config.schema import KEYS, Settings, initial_text, plain_values
from codeloupe.errors import ConfigError, OutputError


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


def test_init_writes_at_the_root_and_overwrites_nothing_without_force(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep, made = root / "a" / "b", root / "codeloupe.yaml"
    deep.mkdir(parents=True)
    (root / "usual").touch()
    assert run("init", "--repo", deep) == 0
    assert made.read_text(encoding="utf-8") == initial_text()
    assert made.stat().st_mode == (root / "usual").stat().st_mode
    assert capsys.readouterr().out == f"wrote {made}\n"
    assert sorted(path.name for path in root.iterdir()) == [".git", "a", "codeloupe.yaml", "usual"]
    made.write_text("fail_on: low\n", encoding="utf-8")
    with pytest.raises(OutputError, match="already exists") as caught:
        run("init")
    assert caught.value.hint == "add --force to replace it"
    assert made.read_text(encoding="utf-8") == "fail_on: low\n"
    assert run("init", "--force") == 0
    assert made.read_text(encoding="utf-8") == initial_text()
    made.rename(root / "codeloupe.yml")
    with pytest.raises(OutputError, match=r"codeloupe\.yml already exists"):
        run("init", "--force")
    assert not made.exists()


@pytest.mark.parametrize("exists", [True, False])
def test_init_never_writes_through_a_symbolic_link(root: Path, tmp_path: Path, *, exists: bool) -> None:
    victim = tmp_path / "victim"
    if exists:
        victim.write_text("precious", encoding="utf-8")
    (root / "codeloupe.yaml").symlink_to(victim)
    with pytest.raises(OutputError, match="already exists"):
        run("init")
    assert run("init", "--force") == 0
    assert not (root / "codeloupe.yaml").is_symlink()
    assert (victim.read_text(encoding="utf-8") == "precious") if exists else not victim.exists()


def test_when_init_cannot_write_it_leaves_nothing_behind(root: Path) -> None:
    (root / "codeloupe.yaml").mkdir()
    with pytest.raises(OutputError, match=r"cannot write the result to .*codeloupe\.yaml: it is a directory"):
        run("init", "--force")
    assert sorted(path.name for path in root.iterdir()) == [".git", "codeloupe.yaml"]


def test_every_key_is_shown_with_its_value_and_origin_and_cut_where_it_would_push_the_origin_away(
    root: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "\n".join(f"  - {{paths: [a], text: rule number {number}}}" for number in range(9))
    text = f'\ninclude: ["src/**", "\\e[31m"]\ninstructions:\n{rules}\n'
    (root / "codeloupe.yaml").write_text(text, encoding="utf-8")
    user_file.write_text("untrusted: true\n", encoding="utf-8")
    monkeypatch.setenv("CODELOUPE_FAIL_ON", "P3")
    assert run("show") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["KEY", *KEYS]
    table = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert table["fail_on"].split() == ["low", "CODELOUPE_FAIL_ON"]
    assert table["untrusted"].split() == ["true", f"{user_file}:1"]
    assert table["include"].split() == ['["src/**",', r'"\u001b[31m"]', "codeloupe.yaml:2"]
    assert table["timeout_seconds"].split() == ["300", "default"]
    assert table["instructions"].endswith("…  codeloupe.yaml:3")
    assert run("show", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["schema_version"], len(shown["settings"]["instructions"]["value"])) == (1, 9)
    values = {key: entry["value"] for key, entry in shown["settings"].items() if entry["origin"]["kind"] == "default"}
    assert values == {key: value for key, value in plain_values(Settings()).items() if key in values}
    assert shown["settings"]["include"]["origin"] == {"kind": "repository", "where": "codeloupe.yaml", "line": 2}
    assert shown["settings"]["exclude"]["origin"] == {"kind": "default", "where": None, "line": None}


def test_every_valid_file_is_named_and_all_mistakes_are_listed(
    root: Path, user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("validate")
    (root / "codeloupe.yaml").write_text("fail_on: low\n", encoding="utf-8")
    user_file.touch()
    run("validate")
    valid = f"codeloupe.yaml: valid\n{user_file}: valid\n"
    assert capsys.readouterr().out == f"no configuration file: defaults apply\n{valid}"
    (root / "codeloupe.yaml").write_text("failOn: high\nuntrusted: 5\n", encoding="utf-8")
    user_file.write_text("include: x\n", encoding="utf-8")
    for verb in ("validate", "show"):
        with pytest.raises(ConfigError) as caught:
            run(verb)
        places = [line.split(": ")[0].strip() for line in caught.value.message.splitlines()[1:]]
        assert places == [f"{user_file}:1", "codeloupe.yaml:1", "codeloupe.yaml:2"]
        assert caught.value.exit_code == 2
    other = root / "other.yaml"  # which is checked, and no other file
    with pytest.raises(ConfigError, match=r"other\.yaml: no such file"):
        run("validate", other)
    other.write_text("fail_on: low\n", encoding="utf-8")
    assert run("validate", other) == 0
    assert capsys.readouterr().out == f"{other}: valid\n"
