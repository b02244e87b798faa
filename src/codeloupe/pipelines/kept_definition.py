"""The definition of a pipeline as a run stores it, so that the run continues on any machine."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import convert
from msgspec.structs import replace

from codeloupe.errors import ConfigError
from codeloupe.model.pipeline import PipelineDefinition
from codeloupe.pipelines.definition import load_pipeline

# The folder of a run for the files that define it: the pipeline's file, and the others under new names.
KEPT_FOLDER = "definition"
_OWN = "pipeline.yaml"
_NAMES = "names.json"


def kept_files(definition: PipelineDefinition) -> dict[str, bytes]:
    """Return the pipeline's file and every file that it names, under new names, to be stored with a run."""
    names: dict[str, str] = {}
    texts = {_OWN: definition.texts[""]}
    for number, (written, text) in enumerate(definition.texts.items()):
        if written:
            names[written] = f"named-{number}"
            texts[names[written]] = text
    texts[_NAMES] = json.dumps(names)
    return {f"{KEPT_FOLDER}/{name}": text.encode("utf-8", "surrogatepass") for name, text in texts.items()}


def load_kept(directory: Path, *, file: Path) -> PipelineDefinition:
    """Return the pipeline that a run has stored, with the path of its own `file`. Raise ConfigError."""
    folder = directory / KEPT_FOLDER
    try:
        names = convert(json.loads((folder / _NAMES).read_bytes()), dict[str, str])
    except (OSError, ValueError) as error:
        words = f"the stored copy of {file} is missing or damaged: {error}"
        raise ConfigError(words, hint="resume the run on the machine where it started") from error
    return replace(load_pipeline(folder / _OWN, agents=None, names=names), file=file)


def outside_files(definition: PipelineDefinition) -> tuple[str, ...]:
    """Return the files that a pipeline names outside its own folder, as they are written, sorted."""
    folder = definition.file.parent.resolve()
    named = [written for written in definition.texts if written]
    outside = [written for written in named if not (folder / written).resolve().is_relative_to(folder)]
    return tuple(sorted(outside))
