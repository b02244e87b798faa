"""`codeloupe pipeline run`: a pipeline from its file to where it stops."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from codeloupe.cli.pipeline_carrying import carry
from codeloupe.errors import UsageError
from codeloupe.pipelines import Pipeline


def run(arguments: argparse.Namespace) -> int:
    """Run it. Raises ConfigError for a file that is wrong, before anything is spent."""
    inputs = inputs_of(arguments.input)
    pipeline = Pipeline.load(arguments.file, agents=())
    return carry(
        lambda runtime, options: runtime.run_pipeline(pipeline, inputs, options=options),
        arguments,
        repo=arguments.repo,
    )


def inputs_of(words: Sequence[str]) -> dict[str, str]:
    """The inputs that were given as NAME=VALUE. Raises UsageError."""
    inputs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{word!r} is not an input", hint="write --input NAME=VALUE")
        if name in inputs:
            raise UsageError(f"the input {name!r} is given twice", hint="give it once")
        inputs[name] = value
    return inputs
