"""The forms of the answers that are asked for, as JSON Schema. They are paid for in each call, so they are short.

The order is that of the answer: place and evidence first, then the defect, then its weight, and the fix last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT = {"type": "string"}

FINDINGS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "file": _TEXT,
                    "line": {"type": "integer"},
                    "quote": _TEXT,
                    "title": _TEXT,
                    "body": _TEXT,
                    "category": _TEXT,
                    "severity": {"type": "string", "enum": ["critical", "high", "medium", "low"]},
                    "confidence": {"type": "number"},
                    "suggestion": _TEXT,
                    "replacement": _TEXT,
                },
                "required": ["file", "line", "quote", "title", "body", "category", "severity"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["findings"],
    "additionalProperties": False,
}

# An answer that is no review must not come back from its repair as one that found nothing.
REPAIR_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"readable": {"type": "boolean"}, **FINDINGS_SCHEMA["properties"]},
    "required": ["readable", "findings"],
    "additionalProperties": False,
}

VERIFY_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "reason": _TEXT,
        "proof": {"type": "string", "enum": ["refuted", "confirmed", "unproven"]},
    },
    "required": ["reason", "proof"],
    "additionalProperties": False,
}
