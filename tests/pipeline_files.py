"""Files of pipelines for tests: written into a folder, with the files that they name."""

from pathlib import Path

import pytest

from codeloupe.errors import ConfigError
from codeloupe.model.pipeline import PipelineDefinition
from codeloupe.pipelines.definition import load_pipeline

MINIMAL = """\
name: small
stages:
  - name: only
    step: step.md
"""


def write_pipeline(folder: Path, text: str = MINIMAL, **files: str) -> Path:
    """A pipeline's file with `step.md` and `agent.md` beside it; `files` are more, with `__` for the dot."""
    for name, content in {"step__md": "Do it.\n", "agent__md": "You are careful.\n", **files}.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="utf-8")
    file = folder / "pipeline.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def load(folder: Path, text: str = MINIMAL, **files: str) -> PipelineDefinition:
    """The pipeline that a text defines."""
    return load_pipeline(write_pipeline(folder, text, **files))


def stage_text(*lines: str) -> str:
    """A pipeline of one stage with more lines in it, the first of which is line 5."""
    return MINIMAL + "".join(f"    {line}\n" for line in lines)


def refusal(folder: Path, text: str, **files: str) -> ConfigError:
    """The error that a text is refused with; its words begin with the file's name, without the folder's."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **files)
    error = caught.value
    error.message = error.message.replace(f"{folder}/", "")
    return error
