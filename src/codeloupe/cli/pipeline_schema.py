"""`codeloupe pipeline schema`: JSON Schemas of what people write and of what programs read."""

from __future__ import annotations

import argparse
import json

from codeloupe.pipeline.definition import pipeline_schema
from codeloupe.reports.pipeline_json import list_schema, run_schema

_DOCUMENTS = {"file": pipeline_schema, "status": run_schema, "list": list_schema}


def run(arguments: argparse.Namespace) -> int:
    """Print the schema that was asked for."""
    print(json.dumps(_DOCUMENTS[arguments.of](), indent=2))
    return 0
