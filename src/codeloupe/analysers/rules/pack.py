"""Which files the rule pack speaks about, and the rules themselves as one document for ast-grep.

A folder may serve several languages that share a grammar: its rules are written for the first one and repeated
for the others, so that a rule for JavaScript is written once and holds for TypeScript too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

FOLDERS: dict[str, tuple[str, ...]] = {
    "bash": ("Bash",),
    "c": ("C",),
    "c-and-cpp": ("C", "Cpp"),
    "cpp": ("Cpp",),
    "go": ("Go",),
    "java": ("Java",),
    "javascript": ("JavaScript", "TypeScript", "Tsx"),
    "jsx": ("JavaScript", "Tsx"),
    "php": ("Php",),
    "python": ("Python",),
    "ruby": ("Ruby",),
    "rust": ("Rust",),
    "typescript": ("TypeScript", "Tsx"),
}
"""Each folder of rules and the languages, in ast-grep's spelling, that it is for."""

EXTENSIONS: dict[str, str] = {
    "Bash": "sh",
    "C": "c",
    "Cpp": "cpp",
    "Go": "go",
    "Java": "java",
    "JavaScript": "js",
    "Php": "php",
    "Python": "py",
    "Ruby": "rb",
    "Rust": "rs",
    "Tsx": "tsx",
    "TypeScript": "ts",
}
"""The extension by which ast-grep knows each language."""

_LANGUAGE_BY_SUFFIX = {
    **{f".{extension}": language for language, extension in EXTENSIONS.items()},
    **dict.fromkeys((".bash", ".bats", ".ksh"), "Bash"),
    **dict.fromkeys((".cc", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".h++", ".ipp", ".inl"), "Cpp"),
    **dict.fromkeys((".jsx", ".mjs", ".cjs"), "JavaScript"),
    **dict.fromkeys((".mts", ".cts"), "TypeScript"),
    **dict.fromkeys((".phtml", ".php5", ".php7", ".php8"), "Php"),
    **dict.fromkeys((".rake", ".gemspec", ".ru", ".jbuilder"), "Ruby"),
    ".pyw": "Python",
    # Read as C++: its grammar also takes what is only C, while C's would stumble over classes and templates.
    ".h": "Cpp",
}
_LANGUAGE_BY_NAME = {
    **dict.fromkeys(("rakefile", "gemfile", "vagrantfile", "podfile", "fastfile", "capfile"), "Ruby"),
    **dict.fromkeys((".bashrc", ".bash_profile", ".bash_aliases", ".profile", "pkgbuild"), "Bash"),
}
_ROOT = Path(__file__).parent


def language_of(path: str) -> str | None:
    """The language a file's name says it is written in, or None when the pack has no rules for it."""
    name = PurePosixPath(path).name.lower()
    return _LANGUAGE_BY_NAME.get(name) or _LANGUAGE_BY_SUFFIX.get(PurePosixPath(name).suffix)


def rule_files(folder: str) -> list[Path]:
    """The rule files of one folder, in order of name."""
    return sorted((_ROOT / folder).glob("*.yml"))


def rule_document(languages: Iterable[str]) -> str:
    """Every rule for these languages as one multi-document YAML text."""
    wanted = set(languages)
    rules: list[str] = []
    for folder, served in FOLDERS.items():
        chosen = [language for language in served if language in wanted]
        texts = [path.read_text(encoding="utf-8") for path in rule_files(folder)] if chosen else []
        rules += [_written_for(language, text, original=served[0]) for language in chosen for text in texts]
    return "---\n".join(rules)


def _written_for(language: str, text: str, *, original: str) -> str:
    return text.replace(f"\nlanguage: {original}\n", f"\nlanguage: {language}\n", 1)
