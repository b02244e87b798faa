"""Prints the section of the changelog for a version tag: `python3 ci/release_notes.py v0.2.0`.

Ends with 1 and a message if the tag does not name the version of the source tree, or if the changelog has no section
with a date for it. The release workflow stops then.
"""

import re
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def release_notes(tag: str, project: Path = PROJECT) -> str:
    """Return the section of the changelog for a tag, without its heading. Raises ValueError."""
    source = (project / "src" / "codeloupe" / "__init__.py").read_text(encoding="utf-8")
    [version] = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, but the version in src/codeloupe/__init__.py is {version}")
    changelog = (project / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.compile(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n", re.MULTILINE)
    found = heading.search(changelog)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)`")
    section = changelog[found.end() :].split("\n## ", 1)[0].strip()
    if not section:
        raise ValueError(f"the section for {version} in CHANGELOG.md is empty")
    return section + "\n"


def main() -> int:
    """Print the notes, or what is wrong."""
    if len(sys.argv) != 2:
        print("usage: python3 ci/release_notes.py TAG", file=sys.stderr)
        return 2
    try:
        print(release_notes(sys.argv[1]), end="")
    except ValueError as error:
        print(f"release_notes: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
