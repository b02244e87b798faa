"""Names that tell what kind of file this is: lock files, copies of others, generated, minified, source."""

from __future__ import annotations

import re

# fmt: off
LOCK_FILES = frozenset((
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb", "deno.lock",
    "poetry.lock", "uv.lock", "pdm.lock", "pipfile.lock", "conda-lock.yml", "pixi.lock", "cargo.lock",
    "gemfile.lock", "composer.lock", "go.sum", "go.work.sum", "mix.lock", "pubspec.lock", "podfile.lock",
    "package.resolved", "flake.lock", "gradle.lockfile", "packages.lock.json",
))
# Those that the lock-file analyser reads.
READABLE_LOCK_FILES = frozenset((
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "pdm.lock",
    "pipfile.lock", "cargo.lock", "gemfile.lock", "composer.lock", "go.sum", "go.work.sum",
))
VENDOR_FOLDERS = frozenset((
    "vendor", "vendored", "third_party", "third-party", "thirdparty", "node_modules", "bower_components",
    "site-packages",
))
# Languages whose readers ignore or tolerate a NUL byte, behind which code could hide from a diff.
SOURCE_SUFFIXES = frozenset((
    ".py", ".pyi", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".go", ".java", ".kt", ".kts", ".scala", ".rs",
    ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".rb", ".php", ".sh", ".bash", ".zsh", ".ps1", ".pl", ".lua",
    ".swift", ".m", ".cs", ".fs", ".sql", ".html", ".htm", ".css", ".scss", ".xml", ".json", ".yaml", ".yml",
    ".toml", ".ini", ".cfg", ".md", ".rst", ".txt", ".tf", ".gradle", ".groovy", ".cmake", ".mk", ".vue", ".svelte",
    ".ex", ".exs", ".erl", ".hs", ".clj", ".dart", ".r", ".jl", ".bat", ".cmd", ".psm1", ".ksh", ".fish", ".awk",
    ".pm", ".tcl", ".vb", ".mm", ".cu", ".zig", ".nim", ".ml", ".mli", ".sol", ".proto", ".graphql", ".hcl", ".nix",
    ".bzl", ".ipynb", ".less", ".sass", ".erb", ".jsp", ".aspx", ".cshtml", ".conf", ".properties", ".env",
))
SOURCE_NAMES = frozenset((
    "makefile", "gnumakefile", "dockerfile", "containerfile", "jenkinsfile", "vagrantfile", "procfile", "gemfile",
    "rakefile", "build", "workspace", ".env", ".bashrc", ".profile", ".zshrc", ".npmrc", ".gitattributes",
    ".gitmodules", ".htaccess",
))
# fmt: on
MINIFIABLE_SUFFIXES = frozenset((".js", ".mjs", ".cjs", ".css"))
GENERATED_NAME = re.compile(
    r"(_pb2(_grpc)?\.pyi?|\.pb(\.gw)?\.go|_grpc\.pb\.go|\.pb\.(cc|h)|\.g\.dart|\.freezed\.dart|\.designer\.cs|\.g\.cs"
    r"|[._-]generated\.[a-z]+|\.snap|\.map)$",
    re.IGNORECASE,
)
GENERATED_MARK = re.compile(
    rb"@generated\b|\bcode generated\b.{0,80}\bdo not edit\b|\bauto-?generated\b.{0,80}\bdo not (edit|modify)\b",
    re.IGNORECASE,
)
MINIFIED_NAME = re.compile(r"[.-]min\.(m?js|css|cjs)$", re.IGNORECASE)
