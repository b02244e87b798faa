"""The examples of the documentation are typed as their readers' programs are: strict mypy takes them all."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation_pages import PAGES, blocks, name_of


@pytest.mark.defect("L4", "L7")
def test_every_example_in_python_passes_a_strict_type_checker(tmp_path: Path) -> None:
    examples = [block for page in PAGES for block in blocks(page) if block.language == "python"]
    assert len(examples) >= 10
    for block in examples:
        name = name_of(block.page).removesuffix(".md").replace("/", "_").replace("-", "_").lower()
        (tmp_path / f"{name}_line_{block.line}.py").write_text(block.text, encoding="utf-8")
    words = (
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        str(tmp_path / "cache"),
        ".",
    )
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)
