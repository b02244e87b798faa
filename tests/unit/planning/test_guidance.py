from pathlib import Path

import pytest

import bench.lifelike
from codeloupe.model.change import GuidanceFile
from codeloupe.planning.guidance import GuidanceText, guidance_budget, guidance_for, guidance_texts, split_paragraphs
from codeloupe.planning.units import tokens_of

ROOT = GuidanceFile("AGENTS.md", "root agents")
REVIEW = GuidanceFile("REVIEW.md", "root review")
NEAR = GuidanceFile("src/AGENTS.md", "near agents")
OTHER = GuidanceFile("docs/AGENTS.md", "other agents")
SHOP = Path(bench.lifelike.__file__).with_name("shop_guidance.md").read_text(encoding="utf-8")
RULE = "- Never do this or that to any of the orders.\n"


def texts(*guidance: GuidanceFile, unit_tokens: int = 1_000) -> tuple[GuidanceText, ...]:
    return guidance_texts(["src/a.py"], guidance, unit_tokens=unit_tokens)


@pytest.mark.parametrize(
    ("unit_tokens", "budget"),
    [(0, 250), (2_500, 250), (2_510, 251), (5_000, 500), (15_000, 1_500), (45_000, 1_500)],
)
def test_the_budget_is_a_tenth_of_the_unit_within_limits(unit_tokens: int, budget: int) -> None:
    assert guidance_budget(unit_tokens) == budget


@pytest.mark.parametrize(
    ("files", "guidance", "applying"),
    [
        (["src/deep/a.py"], (REVIEW, ROOT, OTHER, NEAR), (NEAR, REVIEW)),
        (["a.py"], (REVIEW, ROOT, OTHER, NEAR), (REVIEW, ROOT)),
        (["src/a.py", "docs/b.md"], (REVIEW, ROOT, OTHER, NEAR), (OTHER, NEAR, REVIEW)),
        (["src/a.py", "b.py"], (REVIEW, ROOT, OTHER, NEAR), (NEAR, REVIEW, ROOT)),
        (["src2/a.py"], (NEAR,), ()),
        (["a.py"], (ROOT, GuidanceFile("CLAUDE.md", "root agents\n")), (ROOT,)),
        (["a.py"], (GuidanceFile("REVIEW.md", " \n"), ROOT), (ROOT,)),
        (["a.py"], (), ()),
    ],
)
def test_the_nearest_file_of_each_name_applies_once(
    files: list[str], guidance: tuple[GuidanceFile, ...], applying: tuple[GuidanceFile, ...]
) -> None:
    assert guidance_for(files, guidance) == applying


def test_guidance_that_fits_is_sent_unchanged() -> None:
    text = "# Rules\n\nBe brief.\n\n\n- one\n  - nested\n- two\n\n## Review\n\nLook twice."
    assert texts(GuidanceFile("REVIEW.md", f"\n{text}\n")) == (GuidanceText("REVIEW.md", text),)


@pytest.mark.defect("V9")
def test_review_md_comes_first_then_review_sections_then_the_rest() -> None:
    agents = GuidanceFile(
        "AGENTS.md", "# Work\n\nTop.\n\n## Code review\n\nLook.\n\n### Tests\n\nRun.\n\n## End\n\nStop."
    )
    claude = GuidanceFile("CLAUDE.md", "First.\n\n# REVIEWING\n\nThink.")
    review = GuidanceFile("REVIEW.md", "Read.")
    assert texts(agents, claude, review) == (
        GuidanceText("REVIEW.md", "Read."),
        GuidanceText("AGENTS.md", "## Code review\n\nLook.\n\n### Tests\n\nRun.\n\n# Work\n\nTop.\n\n## End\n\nStop."),
        GuidanceText("CLAUDE.md", "# REVIEWING\n\nThink.\n\nFirst."),
    )


@pytest.mark.parametrize("path", ["AGENTS.md", "CLAUDE.md"])
def test_a_review_section_is_sent_before_a_long_beginning(path: str) -> None:
    guidance = GuidanceFile(path, f"# Setup\n\n{RULE * 100}\n## Review\n\n- Check the money.\n\n## More\n\n- Last.\n")
    (sent,) = texts(guidance)
    assert sent.text.startswith("## Review\n\n- Check the money.\n\n# Setup\n\n- Never")
    assert "Last" not in sent.text
    assert sent.paragraphs_cut == 101 - sent.text.count("- Never")


def test_a_long_review_md_leaves_no_room_for_other_files() -> None:
    assert [(one.path, bool(one.text)) for one in texts(ROOT, GuidanceFile("REVIEW.md", RULE * 100))] == [
        ("REVIEW.md", True),
        ("AGENTS.md", False),
    ]


@pytest.mark.defect("V9")
@pytest.mark.parametrize("unit_tokens", [100, 5_000, 14_000])
def test_a_long_text_is_cut_at_a_paragraph_within_the_budget(unit_tokens: int) -> None:
    (sent,) = texts(GuidanceFile("AGENTS.md", SHOP), unit_tokens=unit_tokens)
    budget = guidance_budget(unit_tokens)
    assert 0.8 * budget < tokens_of(sent.text) <= budget
    assert SHOP.startswith(sent.text)
    assert SHOP[len(sent.text) :].startswith(("\n- ", "\n\n"))
    assert len(split_paragraphs(sent.text)) + sent.paragraphs_cut == len(split_paragraphs(SHOP))


@pytest.mark.parametrize(
    "paragraphs",
    [
        ["One.\nStill one.\n\n", "Two.\n"],
        ["# Title\n\nText.\n\n", "More.\n"],
        ["# Title\n\n", "## Section\nText.\n"],
        ["Text.\n", "# Title\n"],
        ["- a\n  b\n", "- c\n\n", "1. d\n", "2) e\n", "* f\n", "+ g\n"],
        ["## Rules\n\n- a\n", "- b\n"],
        ["- a\n  - b\n\n", "  c\n"],
        ["Run:\n```\n# not a heading\n\n- not an item\n```\nAfter.\n\n", "Next.\n"],
        ["~~~\n\nnever closed\n\n# x\n"],
        ["#hashtag\n-dash\n1.5 is a number\n"],
        ["\n\n", "Text."],
        [],
    ],
)
def test_paragraphs_end_at_empty_lines_headings_and_list_items(paragraphs: list[str]) -> None:
    assert split_paragraphs("".join(paragraphs)) == paragraphs


@pytest.mark.parametrize("text", ["xx", "#\n", "```\n", "- ", ". A", "\n\n", "é—", "a\n=\n", "漢字", "\u200b\u200c"])
@pytest.mark.parametrize("unit_tokens", [0, 5_000, 50_000])
def test_any_text_fits_its_budget(text: str, unit_tokens: int) -> None:
    for sent in texts(GuidanceFile("AGENTS.md", text * 8_000), unit_tokens=unit_tokens):
        assert tokens_of(sent.text) <= 1.01 * guidance_budget(unit_tokens)
        assert sent.text
        assert sent.paragraphs_cut > 0
