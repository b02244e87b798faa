"""Whatever stands in a file or a variable: settings come out, or one ConfigError in printable words.

The first line says what the text is: `#settings`, `#pipeline`, `#expert`, `#baseline` or `#environment`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

import codeloupe
from codeloupe.baseline.editing import edited
from codeloupe.baseline.file import decode_baseline
from codeloupe.config.document import read_document
from codeloupe.config.files import read_config_file
from codeloupe.config.json_schema import json_schema
from codeloupe.config.loading import load_settings
from codeloupe.config.nodes import plain
from codeloupe.config.schema import KEYS
from codeloupe.config.values import default_text
from codeloupe.errors import ConfigError
from codeloupe.experts.loading import load_experts
from codeloupe.pipeline.definition import load_pipeline, pipeline_schema
from fuzz.target import Target, hold
from tests.property.test_pipeline_definition import VALID
from tests.unit.baseline.baseline_samples import ONE, TEXT

_EXPERTS = Path(codeloupe.__file__).parent / "experts"
_KINDS = (b"#settings", b"#pipeline", b"#expert", b"#baseline", b"#environment")
_OWN = b"""own_experts:
  payments:
    description: d
    focus: [a, b]
    severity_guide: {high: x}
experts: [payments]
"""
_WORDS = (
    *(f"{key}: ".encode() for key in KEYS),
    *(f"CODELOUPE_{key.upper()}=".encode() for key in KEYS),
    *(f"{key}: ".encode() for key in ("name", "step", "needs", "gate", "kind", "command", "inputs", "artifacts", "x")),
    *(
        f"{key}: ".encode()
        for key in ("version", "entries", "fingerprint", "reason", "expires", "focus", "description")
    ),
    *(
        b"- ",
        b"? ",
        b"&a ",
        b"*a",
        b"!!python/object:os.system ",
        b"!x ",
        b"|\n",
        b">-\n",
        b"<<: *a",
        b"---\n",
        b"...\n",
    ),
    *(b"%TAG ! x\n", b"%YAML 9.9\n", b"yes", b"null", b"~", b"0x10", b"1_000", b".inf", b".nan", b"2024-01-01", b"30m"),
    *(b"[", b"]", b"{", b"}", b"[[[[[[[[", b"high", b"critic", b"review", b"step.md", b"../step.md", b"\xef\xbb\xbf"),
)


def _seeds() -> Sequence[bytes]:
    settings = [f"{key}: {default_text(key)}" for key in KEYS]
    pieces = ["\n".join(settings[start : start + 6]) for start in range(0, len(settings), 6)]
    variables = "CODELOUPE_FAIL_ON=low\nCODELOUPE_INCLUDE=a,*.py\nCODELOUPE_PASSES=2\nCODELOUPE_VERIFY=no\n"
    return [
        b"#settings\n" + _OWN,
        *(f"#settings\n{text}\n".encode() for text in pieces),
        b"#settings\ninstructions:\n  - paths: ['*.py']\n    text: x\ncommit_experts: {bug_fix: [tests]}\n",
        f"#environment\n{variables}".encode(),
        b"#pipeline\n" + json.dumps(VALID, indent=1).encode(),
        b"#pipeline\nname: small\nstages:\n  - name: only\n    step: step.md\n    gate: critic\n",
        *(b"#expert\n" + file.read_bytes()[:1500] for file in sorted(_EXPERTS.glob("*.yaml"))[:4]),
        b"#baseline\n" + TEXT.encode(),
        f"#baseline\nversion: 1\nentries:\n- {{fingerprint: {ONE}, reason: x}} # c\n".encode(),
    ]


def _kind_of(data: bytes) -> bytes:
    return next((kind for kind in _KINDS if data.startswith(kind)), _KINDS[0])


def _loaded(data: bytes) -> Any:
    """What the text holds. Raises ConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        return _loaded_in(Path(folder), data)


def _loaded_in(folder: Path, data: bytes) -> Any:
    file = folder / "own.yaml"
    file.write_bytes(data)
    match _kind_of(data):
        case b"#pipeline":
            for name in ("step.md", "agent.md"):
                (folder / name).write_text("Do it.\n")
            return load_pipeline(file)
        case b"#expert":
            return load_experts(("own",), folder=folder)
        case b"#baseline":
            return decode_baseline("known.yaml", data)
        case b"#environment":
            rows = [row.split("=", 1) for row in data.decode("utf-8", "surrogateescape").split("\n") if "=" in row]
            environment = {name: value for name, value in rows if "\0" not in value}
            return load_settings(repository_file=None, user_file=None, environment=environment, flags={})
        case _:
            text = read_config_file(file, name="codeloupe.yaml", follow_symlinks=False)
            return [
                _outcome(repository_file=text, user_file=None),
                load_settings(repository_file=None, user_file=file, environment={}, flags={}),
            ]


def _outcome(**sources: Any) -> Any:
    try:
        return load_settings(environment={}, flags={}, **sources)
    except ConfigError as error:
        return error


def _check(data: bytes) -> None:
    try:
        loaded = _loaded(data)
    except ConfigError as error:
        _check_words(error)
        return
    match _kind_of(data):
        case b"#pipeline":
            hold(_is_valid("pipeline", data, levels=24), "the loader takes a pipeline that the schema refuses")
        case b"#settings":
            hold(_is_valid("settings", data, levels=8), "the loader takes settings that the schema refuses")
        case b"#baseline":
            _check_baseline(loaded.text, loaded.baseline)
        case _:
            pass


def _check_words(error: ConfigError) -> None:
    hold(error.message.replace("\n", "").isprintable(), "a message holds what a terminal may act on")
    hold(error.hint.isprintable(), "a hint holds what a terminal may act on")
    hold(error.hint, "an error does not say what to do")
    hold(len(error.message) < 20_000, "a message is endless")


def _check_baseline(text: str, baseline: Any) -> None:
    keys = [entry.key for entry in baseline.entries]
    hold(len(set(keys)) == len(keys), "two entries have one key")
    for gone in (keys[:1], []):
        again = decode_baseline("known.yaml", edited(text, baseline, remove=gone).encode()).baseline
        hold([entry.key for entry in again.entries] == keys[len(gone) :], "an edited baseline holds something else")


def _is_valid(kind: str, data: bytes, *, levels: int) -> bool:
    try:
        document = plain(read_document("x", data.decode(), deepest_level=levels))
    except Exception:  # noqa: BLE001 - the loader may allow other levels
        return True
    return bool(_validator(kind).is_valid(document))


@cache
def _validator(kind: str) -> Any:
    return jsonschema.Draft202012Validator(pipeline_schema() if kind == "pipeline" else json_schema())


TARGET = Target("configuration", _seeds, _WORDS, search=_loaded, check=_check, most_bytes=500_000)
