"""Whatever a file or a variable holds: settings come out, or one ConfigError in printable words."""

from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from codeloupe.config.files import read_config_file
from codeloupe.config.loading import load_settings
from codeloupe.config.schema import json_schema
from codeloupe.config.yaml import plain, read_document
from codeloupe.engine.experts import load_experts
from codeloupe.errors import ConfigError
from codeloupe.pipelines.definition import load_pipeline, pipeline_schema
from codeloupe.store.baseline import decode_baseline
from codeloupe.store.baseline_editing import edited
from tests.kept import broken_by_kept_inputs

# The first line of an input says what it is.
_KINDS = (b"#pipeline", b"#expert", b"#baseline", b"#environment")


def test_every_kept_input_is_loaded_or_refused_in_words(tmp_path: Path) -> None:
    for name in ("step.md", "agent.md"):
        (tmp_path / name).write_text("Do it.\n")
    assert broken_by_kept_inputs("configuration", lambda data: _check(tmp_path, data)) == {}


def _check(folder: Path, data: bytes) -> None:
    kind = next((kind for kind in _KINDS if data.startswith(kind)), b"#settings")
    try:
        loaded = _loaded(folder, kind, data)
    except ConfigError as refusal:
        _check_words(refusal.message, refusal.hint)
        return
    if kind == b"#pipeline":
        assert _fits("pipeline", data, levels=24), "the loader takes a pipeline that the schema refuses"
    if kind == b"#settings":
        assert _fits("settings", data, levels=8), "the loader takes settings that the schema refuses"
    if kind == b"#baseline":
        _check_baseline(loaded.text, loaded.baseline)


def _check_words(message: str, hint: str) -> None:
    assert message.replace("\n", "").isprintable()
    assert hint.isprintable()
    assert hint
    assert len(message) < 20_000


def _loaded(folder: Path, kind: bytes, data: bytes) -> Any:
    file = folder / "own.yaml"
    file.write_bytes(data)
    match kind:
        case b"#pipeline":
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
            load_settings(repository_file=text, user_file=None, environment={}, flags={})
            return load_settings(repository_file=None, user_file=file, environment={}, flags={})


def _check_baseline(text: str, baseline: Any) -> None:
    keys = [entry.key for entry in baseline.entries]
    assert len(set(keys)) == len(keys)
    for gone in (keys[:1], []):
        again = decode_baseline("known.yaml", edited(text, baseline, remove=gone).encode()).baseline
        assert [entry.key for entry in again.entries] == keys[len(gone) :]


def _fits(kind: str, data: bytes, *, levels: int) -> bool:
    try:
        document = plain(read_document("x", data.decode(), deepest_level=levels))
    except (ConfigError, ValueError):  # the loader may allow other levels
        return True
    return bool(_validator(kind).is_valid(document))


@cache
def _validator(kind: str) -> Any:
    return jsonschema.Draft202012Validator(pipeline_schema() if kind == "pipeline" else json_schema())
