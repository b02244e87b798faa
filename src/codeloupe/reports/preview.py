"""A preview as JSON: every file, its hunks, whether a review would look at it and why not."""

from __future__ import annotations

import json
from typing import Any

from codeloupe.model.preview import Preview, PreviewFile
from codeloupe.model.review import SkipReason
from codeloupe.system.untrusted import json_document


def render_preview_json(preview: Preview) -> str:
    """The preview as a JSON document: valid and encodable as UTF-8 whatever the paths hold, a newline at the end."""
    data = {
        "files": [_file_data(file) for file in preview.files],
        "out_of_reach": [
            {"file": skip.file, "reason": skip.reason.value, "detail": skip.detail} for skip in preview.out_of_reach
        ],
        "units": preview.units,
        "prompt_tokens_estimate": preview.prompt_tokens_estimate,
    }
    return json_document(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _file_data(file: PreviewFile) -> dict[str, Any]:
    change, skipped = file.change, file.skipped
    # git counts no lines of a binary file; those of the patch are only there to find code that hides behind a NUL.
    opaque = skipped is not None and skipped.reason is SkipReason.BINARY
    return {
        "old_path": change.old_path,
        "new_path": change.new_path,
        "status": change.status.value,
        "binary": change.binary,
        "added": 0 if opaque else change.added,
        "deleted": 0 if opaque else change.deleted,
        "hunks": [
            {
                "old_start": hunk.old_start,
                "old_lines": hunk.old_lines,
                "new_start": hunk.new_start,
                "new_lines": hunk.new_lines,
            }
            for hunk in (() if opaque else change.hunks)
        ],
        "reviewed": file.reviewed,
        "reason": skipped.reason.value if skipped else None,
        "detail": skipped.detail if skipped else "",
    }
