"""`python -m fuzz TARGET SECONDS [SEED]`: search, tell what fell, keep the corpus. Exit 1 when something fell."""

from __future__ import annotations

import sys
from time import time_ns

from fuzz.engine import Search, save
from fuzz.targets import TARGETS


def main(arguments: list[str]) -> int:
    """Fuzz one target for some seconds."""
    if len(arguments) not in (2, 3) or arguments[0] not in TARGETS:
        sys.stderr.write(f"usage: python -m fuzz {'|'.join(TARGETS)} SECONDS [SEED]\n")
        return 2
    seed = int(arguments[2]) if len(arguments) == 3 else time_ns()
    search = Search(TARGETS[arguments[0]], seed=seed)
    search.run(float(arguments[1]))
    save(search)
    sys.stdout.write(f"{search}, seed {seed}\n")
    return 1 if search.fell else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
