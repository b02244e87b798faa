"""How many tokens a diff is, estimated without any tokenizer, which would have to be downloaded."""

from __future__ import annotations

from collections.abc import Iterable

from codeloupe.model.change import FileChange

# Source code and diffs come to between 3 and 4 bytes a token with the vendors' current tokenizers.
_BYTES_PER_TOKEN = 3.5
_TOKENS_PER_FILE = 12


def estimate_tokens(files: Iterable[FileChange]) -> int:
    """The size of the files' diffs in tokens, were they sent to a model."""
    total = 0.0
    for file in files:
        total += _TOKENS_PER_FILE + sum(len(hunk.body) for hunk in file.hunks) / _BYTES_PER_TOKEN
    return round(total)
