"""What the program prints for reviews, a sweep and a pipeline stays as it is, and what 0.1.0 stored can be read.

A change of the output is made on purpose: `python -m tests.golden_cases` renews the files, and the diff shows it.
"""

import difflib
from pathlib import Path

from tests.golden_cases import CASES, GOLDEN, Case, documents, pipeline_documents, sweep_documents
from tests.rows import each
from tests.warm_program import codeloupe


def differences(folder: str, made: dict[str, str]) -> str:
    kept = {file.name: file.read_text(encoding="utf-8") for file in (GOLDEN / folder).iterdir()}
    return "".join(
        line
        for name in sorted(kept.keys() | made.keys())
        for line in difflib.unified_diff(
            kept.get(name, "").splitlines(keepends=True),
            made.get(name, "").splitlines(keepends=True),
            f"golden/{folder}/{name}",
            f"now/{folder}/{name}",
        )
    )


@each("case", CASES)
def test_a_review_prints_what_it_printed(case: Case, tmp_path: Path) -> None:
    assert differences(case.name, dict(documents(case, tmp_path / "case", codeloupe))) == ""


def test_a_sweep_and_a_pipeline_print_what_they_printed(tmp_path: Path) -> None:
    assert differences("sweep", dict(sweep_documents(tmp_path / "sweep", codeloupe))) == ""
    assert differences("pipeline", dict(pipeline_documents(tmp_path / "pipeline", codeloupe))) == ""
