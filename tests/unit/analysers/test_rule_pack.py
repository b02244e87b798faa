"""Every rule of the pack against its own examples, by the real ast-grep, in one scan of all of them."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from codeloupe.analysers import ast_grep as pack
from codeloupe.analysers import languages
from codeloupe.analysers.ast_grep import AstGrepAnalyser
from codeloupe.analysers.interface import Issue
from codeloupe.model.finding import Severity
from tests.unit.analysers.written import analyse

EXAMPLES = Path(__file__).parents[2] / "rule_examples"
RULES = {path.stem: path for folder in languages.FOLDERS for path in pack.rule_files(folder)}
CATEGORIES = {"security", "correctness", "reliability", "concurrency", "resource", "performance"}
# How the names of the rules in a folder begin, where that is not the name of the folder.
PREFIXES = {"bash": "sh-", "c-and-cpp": "c-", "javascript": "js-", "python": "py-", "typescript": "ts-"}


@dataclass(frozen=True, slots=True)
class Example:
    """One snippet, in one of the languages its rule is for."""

    rule: str
    language: str
    code: str
    bad: bool


@cache
def load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def examples() -> Iterator[Example]:
    for rule, path in RULES.items():
        snippets = load(EXAMPLES / path.parent.name / path.name)
        for language in languages.FOLDERS[path.parent.name]:
            for kind in ("bad", "good"):
                yield from (Example(rule, language, code, bad=kind == "bad") for code in snippets[kind])


def source(example: Example) -> str:
    is_bare_php = example.language == "Php" and "<?" not in example.code
    return f"<?php {example.code}" if is_bare_php else example.code


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[Example, list[Issue]]:
    """What the analyser says about every example of the pack."""
    named = {f"{number}{languages.EXTENSIONS[item.language]}": item for number, item in enumerate(examples())}
    sources = {name: source(item) for name, item in named.items()}
    report = analyse(AstGrepAnalyser(), tmp_path_factory.mktemp("examples"), sources)
    assert report.failed == {}
    issues: dict[str, list[Issue]] = defaultdict(list)
    for issue in report.issues:
        issues[issue.file].append(issue)
    return {item: issues[name] for name, item in named.items()}


@pytest.mark.program
def test_a_bad_example_is_found_by_its_rule_alone_and_a_good_one_by_none(found: dict[Example, list[Issue]]) -> None:
    actual = {item: {issue.rule for issue in issues} for item, issues in found.items()}
    wrong = {item: rules for item, rules in actual.items() if rules != ({item.rule} if item.bad else set())}
    assert wrong == {}


@pytest.mark.program
def test_an_issue_carries_what_its_rule_file_says(found: dict[Example, list[Issue]]) -> None:
    for rule, path in RULES.items():
        document = load(path)
        about = document["metadata"]
        issue = next(found[item][0] for item in found if item.rule == rule and item.bad)
        assert (issue.rule, issue.title) == (rule, document["message"])
        assert (issue.body, issue.suggestion) == (about["why"], about["fix"])
        assert (issue.severity.label, issue.category) == (about["severity"], about["category"])


def test_every_rule_file_is_complete_and_has_two_bad_and_two_good_examples() -> None:
    for rule, path in RULES.items():
        folder, document = path.parent.name, load(path)
        about, message = document["metadata"], document["message"]
        assert document["id"] == rule
        assert re.fullmatch(rf"{PREFIXES.get(folder, f'{folder}-')}[a-z0-9]+(-[a-z0-9]+)*", rule), rule
        assert (document["language"], document["severity"]) == (languages.FOLDERS[folder][0], "warning"), rule
        assert set(about) - {"quiet_in_tests", "defect", "needs"} == {"severity", "category", "why", "fix"}, rule
        assert about["category"] in CATEGORIES, rule
        assert about["severity"] in {severity.label for severity in Severity}, rule
        assert about.get("quiet_in_tests", True) is True, rule
        assert re.fullmatch(r".{9,79}[^.]", message), f"{rule}: its message is not a title"
        assert re.fullmatch(r".{29,319}\.", about["why"], re.DOTALL), f"{rule}: the reason is not a few sentences"
        assert re.fullmatch(r".{4,159}\.", about["fix"], re.DOTALL), f"{rule}: the fix is not a sentence or two"
        snippets = load(EXAMPLES / folder / path.name)
        assert set(snippets) == {"bad", "good"}, rule
        assert min(len(set(snippets["bad"])), len(set(snippets["good"]))) >= 2, rule


def test_no_name_is_given_to_two_rules_and_no_rule_file_or_example_is_unused() -> None:
    assert len(RULES) == sum(len(pack.rule_files(folder)) for folder in languages.FOLDERS)
    root = Path(pack.__file__).parent / "rules"
    used = {path.relative_to(root) for path in RULES.values()}
    assert {path.relative_to(root) for path in root.rglob("*.y*ml")} == used
    assert {path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*") if path.is_file()} == used


def test_the_pack_serves_every_language_and_category_and_few_rules_are_extreme() -> None:
    served = {language for folder in languages.FOLDERS for language in languages.FOLDERS[folder]}
    assert served == set(languages.EXTENSIONS)
    assert all(pack.rule_files(folder) for folder in languages.FOLDERS)
    documents = [load(path) for path in RULES.values()]
    severities = [document["metadata"]["severity"] for document in documents]
    assert {document["metadata"]["category"] for document in documents} == CATEGORIES
    assert len(RULES) >= 60
    assert severities.count("low") <= len(severities) // 20
    assert severities.count("critical") <= len(severities) // 20
