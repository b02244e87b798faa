"""Scripts for the stand-in server, and what docs/testing.md shows: it is run, and what it names exists."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from codeloupe import testing
from codeloupe.errors import ConfigError
from codeloupe.model.agent import TokenUsage
from codeloupe.testing.replies import REPLY_NAMES
from tests.rows import each

SCRIPT = """[
  "hello",
  {"reply": "Text", "text": "hi", "usage": {"input_tokens": 3}},
  {"reply": "json", "value": {"a": 1}, "as_text": true},
  {"reply": "tooluse", "name": "Read", "input": {"file_path": "a"}},
  {"reply": "status", "code": 429, "retry_after": 3},
  {"reply": "delay", "seconds": 0.5, "then": {"reply": "hang"}},
  {"reply": "cut", "after_bytes": 9, "of": "words"}
]"""


def test_a_script_is_read_from_json(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(SCRIPT)
    assert testing.read_script(file) == [
        testing.Text("hello"),
        testing.Text("hi", usage=TokenUsage(input_tokens=3)),
        testing.Json({"a": 1}, as_text=True),
        testing.ToolUse("Read", {"file_path": "a"}),
        testing.Status(429, retry_after=3),
        testing.Delay(0.5, testing.Hang()),
        testing.Cut(9, of=testing.Text("words")),
    ]
    # A kind that needs no field can be named alone.
    kinds = ("MaxTokens", "Refusal", "Hang", "Stall", "Garbage", "Empty", "Cut")
    file.write_text(json.dumps([{"reply": kind.lower()} for kind in kinds]))
    assert testing.read_script(file) == [getattr(testing, kind)() for kind in kinds]


@each(
    ("text", "words"),
    [
        ("[", "cannot read the script .*script.json: "),
        ('{"reply": "hang"}', "cannot read the script .*script.json: Expected `array`"),
        ('["fine", 3]', "cannot read the script .*script.json, reply 2: Expected `object`, got `int`"),
        ('[{"reply": "shout"}]', "reply 1: .*shout"),
        ('[{"reply": ["text"]}]', "reply 1: .*text.*at `[$].reply`"),
        ('[{"reply": "status"}]', "reply 1: .*code"),
        ('[{"reply": "status", "code": "429"}]', "reply 1: .*got `str` - at `[$].code`"),
        ('[{"reply": "text", "text": "x", "txt": "x"}]', "reply 1: .*txt"),
        ('[{"reply": "delay", "seconds": 1, "then": 5}]', "reply 1: .*got `int`"),
        ('[{"reply": "text", "text": "x", "usage": 5}]', "reply 1: .*got `int` - at `[$].usage`"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "script.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        testing.read_script(file)
    assert "JSON list" in caught.value.hint
    assert "cut, delay, empty" in caught.value.hint
    with pytest.raises(ConfigError, match="cannot read the script .*missing.json: "):
        testing.read_script(tmp_path / "missing.json")


TEXT = (Path(__file__).parents[3] / "docs" / "testing.md").read_text(encoding="utf-8")


@pytest.mark.program
def test_the_examples_run_and_every_reply_is_described_and_public(tmp_path: Path) -> None:
    for source in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        command = (sys.executable, "-X", "dev", "-W", "error", "-c", source)
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    (tmp_path / "script.json").write_text(re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)[0])
    assert len(testing.read_script(tmp_path / "script.json")) == 3
    for name in REPLY_NAMES:
        assert f"`{name}(" in TEXT
        assert name in testing.__all__
