"""The parts of the documentation that are generated: settings, events, errors, and the JSON Schema of a report.

`python -m tests.documentation_reference` writes them again.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from codeloupe import events
from codeloupe.config.schema import ABOUT, KEYS, USER_KEYS, default_text
from codeloupe.errors import CodeloupeError
from codeloupe.reports.json_v1 import json_schema
from tests.documentation_pages import DOCS

RENEW = "python -m tests.documentation_reference"
# Words that end with _ stand for every key that begins so and has no group before.
_GROUPS = {
    "Files": "base_branch include exclude max_file_bytes max_file_lines skip_ accept_unread untrusted",
    "Reviewers": "reviewer_type reviewers lanes agents model agent_sdk_reviewer_model api_",
    "Shared database": "database shared_ team monthly_",
    "Review": "effort experts own_experts commit_experts instructions guidance passes verify",
    "Verdict": "fail_on min_severity on_",
    "Limits": "timeout_seconds review_timeout_seconds agent_timeout_seconds agent_sdk_review_timeout concurrency "
    "calls_per_minute max_ wait_for_quota",
    "Storage and permissions": "keep_ ledger_ mask_ allow_",
    "Programs": "claude_path codex_path gemini_path review_command review_gate_ experts_folder",
}


def configuration_page() -> str:
    """The page of the settings. A key that no group names is shown in the group of the key before it."""
    groups: dict[str, list[str]] = {title: [] for title in _GROUPS}
    current = next(iter(groups))
    for key in KEYS:
        named = (title for title, words in _GROUPS.items() if any(_belongs(key, word) for word in words.split()))
        current = next(named, current)
        groups[current].append(key)
    # What comes before the first group is written by hand, in the page itself.
    written = (DOCS / "configuration.md").read_text(encoding="utf-8")
    parts = [written.partition(f"\n## {next(iter(groups))}\n")[0]]
    for title, keys in groups.items():
        rows = "\n".join(_setting(key) for key in keys)
        parts.append(f"## {title}\n\n| key | value | default | meaning |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _belongs(key: str, word: str) -> bool:
    return key.startswith(word) if word.endswith("_") else key == word


def _setting(key: str) -> str:
    mark = " *" if key in USER_KEYS else ""
    return _row(f"`{key}`{mark}", ABOUT[key].kind.expected, f"`{default_text(key)}`", ABOUT[key].meaning)


def review_schema() -> str:
    """The JSON Schema of the report of a review, as a file."""
    return json.dumps(json_schema(), indent=2) + "\n"


def fields_of_report() -> dict[str, dict[str, str]]:
    """The types of all fields of the report in words, by the name of their object; the whole is `review`."""
    schema = json_schema()
    objects = {"review": schema, **{_object_name(name): part for name, part in schema["$defs"].items()}}
    return {name: {key: type_words(kind) for key, kind in part["properties"].items()} for name, part in objects.items()}


def type_words(kind: Mapping[str, Any]) -> str:
    """A type of the schema as the page says it."""
    if "$ref" in kind:
        return _object_name(kind["$ref"].rpartition("/")[2])
    if "anyOf" in kind:
        return " or ".join(type_words(each) for each in kind["anyOf"])
    if "const" in kind:
        return json.dumps(kind["const"])
    if "enum" in kind:
        return " / ".join(kind["enum"])
    return f"list of {type_words(kind['items'])}" if kind["type"] == "array" else str(kind["type"])


def _object_name(name: str) -> str:
    return {"FailedUnitV1": "failed unit", "ReviewV1": "review"}.get(name, name.removesuffix("V1").lower())


def events_and_errors_page() -> str:
    """Return the page of events and errors. The parts between two comments are generated."""
    page = (DOCS / "events-and-errors.md").read_text(encoding="utf-8")
    parts = {
        "review events": _events_table(events.Event),
        "agent events": _events_table(events.AgentEvent),
        "error tree": f"```text\n{error_tree()}\n```",
        "errors": _errors_table(),
    }
    for name, text in parts.items():
        start, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->\n"
        before, _, rest = page.partition(start)
        _, found, after = rest.partition(end)
        assert found, f"the page has no part {name}"
        page = f"{before}{start}\n{text}\n\n{end}{after}"
    return page


def error_tree() -> str:
    """Return the tree of all exceptions, one name on a line, indented below its base."""
    rows = (f"{'  ' * depth}{kind.__name__}" for kind, depth in _errors())
    return "\n".join(rows)


def _errors(kind: type[CodeloupeError] = CodeloupeError, depth: int = 0) -> Iterator[tuple[type[CodeloupeError], int]]:
    """Yield each public exception with its depth in the tree."""
    yield kind, depth
    for below in kind.__subclasses__():
        if below.__module__ == CodeloupeError.__module__:
            yield from _errors(below, depth + 1)


def _events_table(union: Any) -> str:
    rows = ["| event, kind | fields | meaning |", "|---|---|---|"]
    for kind in get_args(union):
        hints = (f"`{name}: {hint}`" for name, hint in kind.__annotations__.items())
        rows.append(_row(f"`{kind.__name__}`<br>`{kind.__struct_config__.tag}`", ", ".join(hints), _words(kind)))
    return "\n".join(rows)


def _errors_table() -> str:
    rows = ["| error | exit code | retryable | meaning |", "|---|---|---|---|"]
    for kind, _ in _errors():
        rows.append(_row(f"`{kind.__name__}`", str(kind.exit_code), "yes" if kind.retryable else "no", _words(kind)))
    return "\n".join(rows)


def _words(kind: type) -> str:
    return " ".join(str(kind.__doc__).split())


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


MADE = {
    DOCS / "configuration.md": configuration_page,
    DOCS / "events-and-errors.md": events_and_errors_page,
    DOCS / "review.schema.json": review_schema,
}


def renew() -> list[Path]:
    """Write every made file anew, and return which."""
    for file, make in MADE.items():
        file.write_text(make(), encoding="utf-8")
    return list(MADE)


if __name__ == "__main__":
    for written in renew():
        sys.stdout.write(f"wrote {written.relative_to(DOCS.parent)}\n")
