"""The documentation and the program cannot drift apart: options, verbs, settings, fields, exit codes, links, names."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import fields

import codeloupe
from codeloupe.cli.boundary import INTERRUPTED
from codeloupe.cli.main import build_parser
from codeloupe.config.schema import KEYS
from codeloupe.errors import CodeloupeError
from codeloupe.model.agent import AGENT_NAMES, AGENTS
from codeloupe.planning.experts import BUILT_IN
from codeloupe.reports import FORMATS
from tests.documentation_pages import DOCS, PAGES, PROJECT, anchors, blocks, commands, links, spans
from tests.documentation_place import place_for
from tests.documentation_reference import MADE, RENEW, fields_of_report
from tests.documentation_verbs import calls, long_options, verb_of, verbs
from tests.fresh_install import Install
from tests.program import codeloupe as codeloupe_program
from tests.repository import GitRepository
from tests.rows import each
from tests.tested_package import shipped_files

VERBS = verbs()
GROUPS = {verb.partition(" ")[0] for verb in VERBS}
INDEX = DOCS / "README.md"
JSON_PAGE = DOCS / "json.md"
# A part of a page that nobody writes or reads from top to bottom.
_GENERATED = re.compile(r"<!-- generated: ([a-z ]+) -->.*?<!-- end: \1 -->", re.DOTALL)
OF_NO_VERB = frozenset({"--help", "--version"})


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def calls_on(page: Path) -> list[list[str]]:
    """Every call of the program on a page: in blocks, and in sentences and tables."""
    lines = [command.text for block in blocks(page) for command in commands(block)]
    lines += [span for span in spans(page) if span.startswith("codeloupe ")]
    return [words for line in lines for words in calls(line)]


@each("file", MADE)
def test_what_is_made_from_the_program_is_not_stale(file: Path) -> None:
    assert text_of(file) == MADE[file](), f"stale: run `{RENEW}`"


@each("page", PAGES)
def test_every_call_names_a_verb_and_only_options_of_it(page: Path) -> None:
    for words in calls_on(page):
        verb = verb_of(words, VERBS)
        if verb is None:
            assert words[0] in {*GROUPS, "COMMAND"}, words
            assert not words[1:2] or words[1].startswith("-"), words
        else:
            assert long_options(words) - OF_NO_VERB <= VERBS[verb], words


@each("page", PAGES)
def test_an_option_that_is_named_alone_belongs_to_a_review_or_to_a_verb_of_the_page(page: Path) -> None:
    called = {"review", *(verb for words in calls_on(page) if (verb := verb_of(words, VERBS)))}
    known = OF_NO_VERB.union(*(VERBS[verb] for verb in called))
    named = {
        option
        for span in spans(page)
        if not span.startswith(("codeloupe ", "git ", "make ", "pipx ", "pre-commit ", "uv "))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)
    }
    assert named - known == set()


def test_every_verb_is_told_with_its_page() -> None:
    told = {verb_of(words, VERBS) for words in calls_on(INDEX)}
    assert set(VERBS) - told == set()


def test_every_setting_has_a_row_and_no_variable_is_made_up() -> None:
    rows = re.findall(r"^\| `(\w+)`", text_of(DOCS / "configuration.md"), re.MULTILINE)
    assert sorted(rows) == sorted(KEYS)
    source = "\n".join(text_of(file) for file in (PROJECT / "src").rglob("*.py"))
    variables = {name for page in PAGES for name in re.findall(r"\bCODELOUPE_([A-Z_]+[A-Z])", text_of(page))}
    assert {name for name in variables if name.lower() not in KEYS and f"CODELOUPE_{name}" not in source} == set()


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    _, _, below = text_of(page).partition(f"# {heading}\n")
    rows = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert rows, heading
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[0].splitlines()[2:]]


@each("name", fields_of_report())
def test_every_field_of_the_report_is_told_with_its_type(name: str) -> None:
    told = {row[0].strip("`"): row[1] for row in table(JSON_PAGE, name)}
    assert told == fields_of_report()[name]
    assert all(row[2] for row in table(JSON_PAGE, name))


def every_exit_code() -> set[int]:
    kinds: list[type[CodeloupeError]] = [CodeloupeError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    return {0, 1, INTERRUPTED, *(kind.exit_code for kind in kinds)}


@each("page", [JSON_PAGE, PROJECT / "README.md"])
def test_every_exit_code_is_told(page: Path) -> None:
    [rows] = re.findall(r"^\| exit code .*\n\|[-|]+\n((?:\|.*\n)+)", text_of(page), re.MULTILINE)
    assert {int(code) for code in re.findall(r"^\| (\d+) ", rows, re.MULTILINE)} == every_exit_code()


def test_the_help_tells_the_same_exit_codes() -> None:
    [told] = re.findall(r"^exit codes:\n((?:  .+\n)+)", build_parser([]).format_help(), re.MULTILINE)
    assert {int(code) for code in re.findall(r"^  (\d+) ", told, re.MULTILINE)} == every_exit_code()


def test_the_help_and_the_readme_describe_exit_codes_in_the_same_words() -> None:
    _, _, listed = build_parser([]).format_help().partition("exit codes:\n")
    in_help = dict(re.findall(r"(\d+) +(\D+)(?= |$)", " ".join(listed.split())))
    rows = re.findall(r"^\| (\d+) \| ([^|(]+)", text_of(PROJECT / "README.md"), re.MULTILINE)
    in_readme = {code: meaning.replace("`", "").strip() for code, meaning in rows}
    assert in_help == in_readme


def test_every_agent_is_told_with_what_it_needs() -> None:
    rows = {row[0].strip("`"): row for row in table(DOCS / "agents.md", "Installation and login")}
    assert tuple(rows) == AGENT_NAMES
    assert all(all(row) for row in rows.values())


def test_the_other_documents_have_the_fields_that_are_told(tmp_path: Path, fresh_install: Install) -> None:
    rows = table(JSON_PAGE, "Other documents")
    assert len(rows) >= 10
    with place_for(JSON_PAGE, tmp_path, fresh_install) as place:
        place.type("codeloupe review")
        for call, told in rows:
            ended = place.type(call.strip("`"))
            assert ended.stdout, f"{call}: {ended.stderr}"
            assert list(json.loads(ended.stdout)) == re.findall(r"`(\w+)`", told), call
        asked = place.type("codeloupe agent run --json 'What is this?'")
    assert set(json.loads(asked.stdout)) == {"error_kind", *(field.name for field in fields(codeloupe.AgentResult))}


@each("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(PROJECT), link
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_leads_to_every_page_once() -> None:
    pages = {page.name for page in DOCS.glob("*.md")} - {INDEX.name}
    listed = re.findall(r"^\| \[[^\]]+\]\(([\w-]+\.md)\)", text_of(INDEX), re.MULTILINE)
    assert sorted(listed) == sorted(pages)


def test_names_of_the_library_on_any_page_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"\bcodeloupe\.([A-Za-z_]\w*)", text_of(page)):
            known = name in codeloupe.__all__ or importlib.util.find_spec(f"codeloupe.{name}") is not None
            assert known or name in {"yaml", "review", "transcript"}, f"{page.name}: codeloupe.{name}"


def test_every_format_and_every_built_in_expert_is_told() -> None:
    assert [name for name in FORMATS if f"`{name}`" not in text_of(DOCS / "ci.md")] == []
    assert [name for name in BUILT_IN if name not in text_of(DOCS / "experts.md")] == []


@pytest.mark.defect("E8")
def test_every_format_that_a_message_a_page_or_a_file_names_exists() -> None:
    named = set()
    for file in shipped_files():
        text = file.read_text(encoding="utf-8", errors="replace")
        # Git has an option of that name too, with a value behind `=`.
        named |= {(file.name, name) for name in re.findall(r"--format ([a-z][\w-]*)", text)}
    assert ("ci.md", "rdjson") in named
    assert {(file, name) for file, name in named if name not in FORMATS} == set()


@pytest.mark.defect("E8")
def test_what_publish_says_about_gitlab_can_be_typed(tmp_path: Path) -> None:
    ended = codeloupe_program("publish", "gitlab", cwd=tmp_path)
    assert ended.exit_code == 2
    [command] = re.findall(r"`codeloupe (review [^`]+)`", ended.stderr)
    repository = GitRepository(tmp_path / "repository")
    repository.commit_files({"a.py": "x = 1\n"})
    repository.write("a.py", "x = 2\n")
    typed = codeloupe_program(*command.split(), "--reviewer", "offline", cwd=repository.path)
    assert typed.exit_code == 0, typed.stderr
    assert json.loads(text_of(repository.path / command.split()[-1])) == []


def test_the_picture_shows_what_the_program_shows_and_asks_nobody_for_a_part_of_it(tmp_path: Path) -> None:
    assert codeloupe_program("demo", "--svg", "demo.svg", cwd=tmp_path).exit_code == 0
    picture = text_of(tmp_path / "demo.svg")
    assert picture.lstrip().startswith("<svg")
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert words_in(DOCS / "demo.svg") == words_in(tmp_path / "demo.svg"), "`make picture` makes it anew"


@pytest.mark.defect("E22")
def test_the_picture_is_at_most_half_as_tall_as_wide_and_shows_the_verdict() -> None:
    [(width, height)] = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text_of(DOCS / "demo.svg"))
    assert float(height) <= float(width) / 2
    words = " ".join(words_in(DOCS / "demo.svg")).replace("&#160;", " ")
    # One finding with all of its parts, the number of the others, and the verdict about all of them.
    for expected in ("CRITICAL P0", "Why", "Fix", "and 8 more findings", "FAIL", "1 critical", "5 of 5 files reviewed"):
        assert expected in words, words


def words_in(picture: Path) -> list[str]:
    """The text of a picture, without what is different each time: the name of a commit, and how long it took."""
    pieces = re.findall(r"<text [^>]*>([^<]*)</text>", text_of(picture))
    return [re.sub(r"[0-9a-f]{12}|[0-9.]+&#160;s$", "", piece) for piece in pieces]


def test_the_readme_is_short_and_no_page_is_long() -> None:
    assert len(text_of(PROJECT / "README.md").splitlines()) < 150
    written = {page.name: re.sub(_GENERATED, "", text_of(page)) for page in PAGES}
    assert {name for name, text in written.items() if len(text.splitlines()) > 250} == set()


@pytest.mark.defect("A6")
def test_the_page_of_agents_lists_the_prompt_limit_of_each() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.*(?:characters|bytes|model only)) \|$", text_of(DOCS / "agents.md"), re.MULTILINE
    )
    listed = {}
    for name, facts in AGENTS.items():
        limit = facts.prompt_limit
        sizes = [
            f"{size:,} {unit}" for size, unit in ((limit.characters, "characters"), (limit.bytes, "bytes")) if size
        ]
        listed[name] = " and ".join(sizes) or "limited by the model only"
    assert dict(rows) == listed


def test_each_of_the_ten_recipes_has_a_command_to_copy() -> None:
    page = DOCS / "cookbook.md"
    recipes = text_of(page).split("\n## ")[1:]
    assert len(recipes) == 10
    assert [recipe.splitlines()[0] for recipe in recipes if "\ncodeloupe " not in recipe] == []
