"""A schema in words, for a program or a model that takes none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def schema_words(schema: Mapping[str, Any]) -> str:
    """What is put behind a prompt whose answer has to be JSON of this schema."""
    text = json.dumps(schema, ensure_ascii=False, default=dict)
    return (
        "\n\n## Form of the answer\n\nThe answer is one JSON value and nothing else: no text around it, no code fence."
        f" It conforms to this JSON Schema:\n\n{text}\n"
    )
