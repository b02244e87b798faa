"""A pipeline's file: read, checked as a whole before anything is spent, and made the pipeline that it defines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from codeloupe.config.files import read_config_file
from codeloupe.config.kinds import Wrong
from codeloupe.config.yaml import Refused, config_error, escape, plain, plain_or_quoted, read_document, repetitions
from codeloupe.errors import ConfigError, UsageError
from codeloupe.model.pipeline_definition import PipelineDefinition
from codeloupe.pipeline.definition_building import build_pipeline
from codeloupe.pipeline.definition_checks import check_references
from codeloupe.pipeline.definition_files import NamedFiles
from codeloupe.pipeline.definition_keys import PIPELINE, pipeline_schema
from codeloupe.pipeline.definition_kinds import AGENT_NAMES
from codeloupe.pipeline.definition_problems import Complaints, did_you_mean

__all__ = ["input_values", "load_pipeline", "pipeline_schema"]

# Schemas may stand inside the file, some levels below its own.
_DEEPEST_LEVEL = 24
_FILE_HINT = "name a pipeline's file, such as pipeline.yaml"


def load_pipeline(path: Path, *, agents: Collection[str] | None = AGENT_NAMES) -> PipelineDefinition:
    """The pipeline that a YAML file defines. Every file that it names was found and read.

    `agents` are the names of those that it may speak of; with None every name is taken. Raises
    ConfigError, which tells every mistake with its line.
    """
    text = _text_of(path)
    try:
        root = read_document(str(path), text, deepest_level=_DEEPEST_LEVEL)
    except Refused as refusal:
        raise config_error([refusal.problem]) from refusal
    files = NamedFiles(path.absolute().parent)
    complaints = Complaints(str(path), root)
    complaints.add_problems(repetitions(str(path), root))
    complaints.add_odd_numbers()
    document: Any = plain(root)
    values: Mapping[str, Any] = {}
    try:
        values = PIPELINE.read(document)
    except Wrong as wrong:
        for mistake in wrong.mistakes:
            complaints.add_mistake(mistake)
    check_references(document, files, complaints, agents=agents)
    if error := complaints.error():
        raise error
    return build_pipeline(values, file=path.absolute(), files=files, digest=files.digest(text))


def _text_of(path: Path) -> str:
    try:
        return read_config_file(path, name=str(path), follow_symlinks=True).text
    except ConfigError as error:
        is_missing = isinstance(error.__cause__, FileNotFoundError)
        raise ConfigError(error.message, hint=_FILE_HINT if is_missing else error.hint) from error
    except ValueError as error:  # a NUL byte
        raise ConfigError(f"{escape(str(path))}: this cannot be the name of a file", hint=_FILE_HINT) from error


def input_values(definition: PipelineDefinition, given: Mapping[str, str]) -> Mapping[str, str]:
    """The value of every input of a pipeline: what is given, else its default.

    Raises UsageError, which names every input that is missing or empty and has no default, and every unknown one.
    """
    known = {each.name: each for each in definition.inputs}
    mistakes = [f"there is no input {plain_or_quoted(name)}" for name in given if name not in known]
    meant = [hint for name in given if name not in known and (hint := did_you_mean(name, known))]
    wanted = [name for name, each in known.items() if each.required and not given.get(name, "").strip()]
    mistakes += [f"the input {name} is {'empty' if name in given else 'missing'}" for name in wanted]
    if mistakes:
        missing = f"give {' '.join(f'--input {name}=VALUE' for name in wanted)}" if wanted else ""
        inputs = f"the inputs are: {', '.join(known)}" if known else "the pipeline has no inputs"
        raise UsageError(f"{definition.name}: {'; '.join(mistakes)}", hint=" ".join(meant) or missing or inputs)
    return {name: given.get(name, each.default or "") for name, each in known.items()}
