"""What a further review of the same change costs, for every way to name the change and every front door."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.lifelike import ChangeSize, make_lifelike_change
from bench.prompt_tokens import tokens_sent
from codeloupe.config.schema import Settings
from codeloupe.integrations import make_reviewer, make_workdir_reviewer
from codeloupe.model.agent import TokenUsage
from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.agent_programs import KEY, agents_at
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

SIXTY = ChangeSize(files=60, changed_lines=900)
FAULT = "def mean(prices):\n    return sum(prices) / len(prices)\n"
TITLE = "Division by zero for no prices"


def answer(request: RecordedRequest) -> Reply:
    """Finds the fault in any added line that has it, as a model would."""
    rows = "\n".join(request.strings()).split("\n")
    quote = "    return sum(prices) / len(prices)"
    place = {"file": "shop/mean.py", "line": 2, "quote": quote, "title": TITLE, "body": "It fails.", "severity": "high"}
    return Json({"findings": [place | {"category": "correctness"}] if f"+{quote}" in rows else []})


@pytest.fixture
def server() -> Iterator[StandInServer]:
    with StandInServer(reply=answer) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> GitRepository:
    make_lifelike_change(tmp_path / "project", SIXTY)
    return GitRepository(tmp_path / "project")


def commit_one_line(project: GitRepository) -> None:
    """Change a line in the middle of a file that the branch has changed already."""
    changed = project.git("diff", "--name-only", "--diff-filter=M", "main...HEAD").decode().split()
    path = project.path / next(name for name in changed if name.endswith(".py"))
    rows = path.read_text(encoding="utf-8").split("\n")
    middle = next(number for number in range(len(rows) // 2, len(rows)) if rows[number].strip())
    rows[middle] += "  # one more remark"
    path.write_text("\n".join(rows), encoding="utf-8")
    project.commit()


def review(server: StandInServer, place: Path, *words: str, state: Path | None = None) -> Ended:
    variables = agents_at(server, "api") | ({} if state is None else {"CODELOUPE_HOME": str(state)})
    flags = ("review", "--reviewer", "api", "--format", "json", "--no-verify")
    ended = codeloupe(*flags, *words, cwd=place, environment=variables)
    assert ended.json()["complete"] is True
    return ended


def sent_by(server: StandInServer, work: Callable[[], object]) -> Mapping[str, int]:
    """The tokens of all calls that some work makes."""
    before = len(server.requests)
    work()
    return tokens_sent(server.requests[before:])


def too_much(first: Mapping[str, int], again: Mapping[str, int]) -> dict[str, float]:
    return {name: again[name] / first[name] for name in first if not 0 < again[name] <= 0.05 * first[name]}


def sent_too_much(
    server: StandInServer, works: Mapping[str, Callable[[], object]], change: Callable[[], object]
) -> dict[str, dict[str, float]]:
    """Which work sends too much when it is done again after a change."""
    first = {name: sent_by(server, work) for name, work in works.items()}
    change()
    return {name: wrong for name in works if (wrong := too_much(first[name], sent_by(server, works[name])))}


@pytest.mark.defect("V1")
def test_after_a_commit_of_one_line_every_way_to_name_the_change_sends_a_twentieth(
    server: StandInServer, project: GitRepository, tmp_path: Path
) -> None:
    scopes = {"default": (), "three dots": ("main...HEAD",), "two dots": ("main..HEAD",), "base": ("--base", "main")}

    works = {name: partial(review, server, project.path, *scopes[name], state=tmp_path / name) for name in scopes}
    assert sent_too_much(server, works, lambda: commit_one_line(project)) == {}
    assert any(request.mentions("one more remark") for request in server.requests)


@pytest.mark.defect("V1")
def test_wherever_the_line_is_a_further_review_sends_a_twentieth(server: StandInServer, project: GitRepository) -> None:
    def names(kind: str) -> list[str]:
        listed = project.git("diff", "--name-only", f"--diff-filter={kind}", "main...HEAD").decode().split()
        return [name for name in listed if name.endswith(".py")]

    def round_of() -> Mapping[str, int]:
        return sent_by(server, lambda: review(server, project.path, "main...HEAD"))

    def edit(name: str, change: Callable[[list[str]], object]) -> None:
        rows = (project.path / name).read_text(encoding="utf-8").split("\n")
        change(rows)
        project.commit_files({name: "\n".join(rows)})

    def rename() -> None:
        project.git("mv", modified[1], f"{modified[1]}.renamed.py")
        edit(f"{modified[1]}.renamed.py", lambda rows: rows.insert(5, "# in a renamed file"))

    def amend() -> None:
        project.write(modified[2], f"{(project.path / modified[2]).read_text(encoding='utf-8')}# the end\n")
        project.git("add", "--all")
        project.git("commit", "--quiet", "--amend", "--no-edit")

    modified, added = names("M"), names("A")
    first = round_of()
    wrong: dict[str, float] = {}
    for place, change in {
        "a new file": lambda: edit(added[0], lambda rows: rows.insert(0, "# at its start")),
        "a deletion": lambda: edit(modified[0], lambda rows: rows.pop(len(rows) // 2)),
        "a renamed file": rename,
        "an amended commit": amend,
    }.items():
        change()
        wrong |= {f"{place}, {name}": share for name, share in too_much(first, round_of()).items()}
    assert wrong == {}


@pytest.mark.defect("V1")
def test_a_ci_job_with_a_fresh_checkout_goes_on_from_the_kept_state(
    server: StandInServer, project: GitRepository, tmp_path: Path
) -> None:
    scopes = {"range": ("origin/main...HEAD",), "base": ("--base", "origin/main")}
    numbers = itertools.count()

    def job(name: str, branch: str = "reservations") -> None:
        place = tmp_path / f"checkout {next(numbers)}"
        project.git("clone", "--quiet", str(project.path), str(place))
        GitRepository(place).git("checkout", "--quiet", "--detach", f"origin/{branch}")
        review(server, place, *scopes[name], state=tmp_path / name)

    def go_on() -> None:
        # Another change of the same repository is reviewed in between, and a rebase gives each commit another name.
        project.checkout("other", new=True)
        project.git("reset", "--hard", "--quiet", "main")
        project.commit_files({"unrelated.py": "x = 1\n"})
        for name in scopes:
            job(name, "other")
        project.checkout("reservations")
        project.git("commit", "--quiet", "--amend", "--message=another message")
        commit_one_line(project)

    assert sent_too_much(server, {name: partial(job, name) for name in scopes}, go_on) == {}


@pytest.mark.defect("V1")
def test_the_reviewers_of_orchestrators_send_a_twentieth_too(
    server: StandInServer, project: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    settings = Settings(
        reviewer_type="api", api_model="anthropic:claude-stand-in", api_base_url=server.url, verify=False
    )
    by_range, by_directory = make_reviewer(settings, repo=project.path), make_workdir_reviewer(settings)
    works: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "range": lambda: by_range("main..HEAD"),
        "directory": lambda: by_directory.review(project.path, "main"),
    }

    def work(kind: str) -> None:
        monkeypatch.setenv("CODELOUPE_HOME", str(project.path.parent / kind))
        assert asyncio.run(works[kind]()).passed

    rounds = {kind: partial(work, kind) for kind in works}
    assert sent_too_much(server, rounds, lambda: commit_one_line(project)) == {}


@pytest.mark.defect("V1")
def test_a_line_in_a_long_new_file_is_asked_about_without_the_rest_of_it(
    server: StandInServer, repository: GitRepository
) -> None:
    repository.commit_files({"README.md": "a shop\n"})
    repository.checkout("work", new=True)
    rows = [f"def price_{number}(item):\n    total = item * {number}\n    return total\n\n" for number in range(1_500)]
    repository.commit_files({"prices.py": "\n".join(rows)})
    first = sent_by(server, lambda: review(server, repository.path, "main...HEAD"))
    rows[200] = rows[200].replace("total = item", "total = item + tax")
    repository.commit_files({"prices.py": "\n".join(rows)})
    again = sent_by(server, lambda: review(server, repository.path, "main...HEAD"))
    assert too_much(first, again) == {}
    sent = "\n".join(server.requests[-1].strings())
    assert "+    total = item + tax * 200\n" in sent
    # The numbers are those of the file: five rows a function.
    start = int(sent.partition("@@ -")[2].partition(" +")[2].partition(",")[0])
    at = sent.partition(" @@")[2].split("\n")[1:]
    above = [row for row in at[: at.index("+    total = item + tax * 200")] if not row.startswith(":")]
    assert start + len(above) == 200 * 5 + 2


@pytest.mark.defect("V1")
def test_a_range_keeps_its_findings_and_asks_all_again_when_told_or_on_other_terms(
    server: StandInServer, repository: GitRepository
) -> None:
    repository.commit_files({"README.md": "a shop\n"})
    repository.commit_files({"shop/mean.py": FAULT}, branch="work")

    def statuses(*words: str) -> tuple[dict[str, str], int]:
        before = len(server.requests)
        ended = review(server, repository.path, "main...HEAD", *words)
        told = {finding["title"]: finding["status"] for finding in ended.json()["findings"]}
        return told, len(server.requests) - before

    assert statuses() == ({TITLE: "new"}, 1)
    assert statuses() == ({TITLE: "open"}, 0)
    repository.commit_files({"shop/other.py": "def other():\n    return 1\n"})
    # The finding stays, though nobody is asked about its lines; an answer that is paid for comes from the ledger.
    assert statuses() == ({TITLE: "open"}, 1)
    assert "shop/mean.py" not in "\n".join(server.requests[-1].strings())
    assert statuses("--fresh") == ({TITLE: "open"}, 1)
    assert "shop/mean.py" in "\n".join(server.requests[-1].strings())
    assert statuses("--experts", "security") == ({TITLE: "open"}, 1)
    # A review of a part of the change leaves what is outside of it alone, and the next one of all goes on from its own.
    part = review(server, repository.path, "HEAD~1..HEAD").json()["findings"]
    assert [(one["status"], one["counts"]) for one in part] == [("gone", False)]
    assert statuses("--experts", "security") == ({TITLE: "open"}, 0)
    repository.commit_files({"shop/mean.py": "def mean(prices):\n    return sum(prices) / max(1, count)\n"})
    # Only the expert that found it can find it fixed.
    assert statuses("--experts", "security") == ({TITLE: "open"}, 1)
    assert statuses() == ({TITLE: "fixed"}, 1)


@pytest.mark.defect("V11")
def test_the_default_experts_in_a_list_are_one_call(server: StandInServer, repository: GitRepository) -> None:
    repository.write("README.md", "a shop\n")
    money = "own_experts:\n  money:\n    focus: [amounts in floating point]\n"
    repository.commit_files({"codeloupe.yaml": f"experts: [default, money]\n{money}"})
    repository.commit_files({"shop/mean.py": FAULT}, branch="work")
    review(server, repository.path)
    prompts = ["\n".join(request.strings()) for request in server.requests]
    assert len(prompts) == 2
    assert [("- correctness:" in prompt, "- money:" in prompt) for prompt in prompts] in (
        [(True, False), (False, True)],
        [(False, True), (True, False)],
    )


def preview(place: Path, *words: str, **variables: str) -> Ended:
    ended = codeloupe("review", "--preview", *words, cwd=place, environment=variables)
    assert ended.exit_code == 0, ended.stderr
    return ended


def answer_with_usage(request: RecordedRequest) -> Reply:
    """Report the tokens that were sent, as a model service does."""
    sent = max(tokens_sent([request]).values())
    found = answer(request)
    assert isinstance(found, Json)
    return Json(found.value, usage=TokenUsage(input_tokens=sent, output_tokens=200))


@pytest.mark.defect("E12")
@pytest.mark.parametrize("agent", ["claude_cli", "codex"])
def test_a_preview_estimates_the_cost_by_earlier_calls(project: GitRepository, agent: str) -> None:
    with StandInServer(reply=answer_with_usage) as server:
        _estimates_by_earlier_calls(server, project, agent)


def _estimates_by_earlier_calls(server: StandInServer, project: GitRepository, agent: str) -> None:
    variables = agents_at(server, agent)
    words = ("--reviewer", agent, "--no-verify", "--format", "json")
    before = preview(project.path, *words, **variables).json()
    assert before["reviewers"] == [{"type": agent, "model": None, "why": "as requested"}]
    assert (before["cost_usd_estimate"], before["calls"] > 0) == (None, True)
    assert f"no call to {agent} is stored yet" in before["cost_basis"]
    assert not server.requests
    usage = codeloupe("review", *words, cwd=project.path, environment=variables).json()["usage"]
    made = len(server.requests)
    after = preview(project.path, *words, **variables).json()
    assert len(server.requests) == made
    assert after["calls"] == before["calls"] == usage["requests"]
    if agent == "claude_cli":
        assert "by the cost per token of" in after["cost_basis"]
        assert 0.5 < after["cost_usd_estimate"] / usage["cost_usd"] < 2
        assert "Cost      about $" in preview(project.path, *words[:3], **variables).stdout
    else:
        # Codex reports its model, but no cost.
        assert "for the prompts, by the list price of" in after["cost_basis"]


@pytest.mark.defect("E12")
def test_a_preview_names_the_reviewer_and_the_list_price(project: GitRepository) -> None:
    offline = preview(project.path).stdout
    assert "Reviewer  Offline review" in offline
    assert "no agent can be used here" in " ".join(offline.split())
    assert "Cost      nothing: no agent is called" in offline
    priced = ("--reviewer", "api", "--model", "anthropic:claude-sonnet-4-5")
    assert "for the prompts, by the list price of anthropic:claude-sonnet-4-5" in " ".join(
        preview(project.path, *priced).stdout.split()
    )
    unknown = preview(project.path, "--reviewer", "api", "--model", "anthropic:nonsense-7").stdout
    assert "Cost      not known: no stored call to api with anthropic:nonsense-7" in unknown


@pytest.mark.defect("E12")
def test_a_preview_of_many_files_sums_up_folders(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    for number in range(1_500):
        repository.write(f"app/part{number % 90}/deep/file{number}.py", f"x = {number}\n")
    for number in range(50):
        repository.write(f"vendor/lib/file{number}.js", "x = 1;\n")
    shown = preview(repository.path).stdout
    assert len(shown.splitlines()) < 40
    assert "· app/  1,500 files  +1,500 -0" in shown
    assert "· vendor/lib/  50 files  vendored" in shown
    assert len(preview(repository.path, "-v").stdout.splitlines()) > 1_550
    assert len(preview(repository.path, "--format", "json").json()["files"]) == 1_550
