"""Review lock files: compare the set of (package, version, artifact, source, hash) before and after a change.

`reading` chooses a reader by the file's name; the readers are in `javascript`, `python` and `go_rust_ruby_php`.
`comparison` has the rules, `places` the meaning of an address, and `findings` the claims.
"""

from codeloupe.analysers.lock_files.findings import review_lock_file, review_lock_files

__all__ = ["review_lock_file", "review_lock_files"]
