"""The room table names every room, in pyproject.toml and in CONTRIBUTING.md, so that none stands outside of it."""

from __future__ import annotations

import re
import tomllib

from tests.architecture.sources import PROJECT, sources

# The package itself, `python -m` and the composition roots may import what they need.
WITHOUT_A_CONTRACT = {"__init__", "__main__", "app", "runtime"}


def contracts() -> list[dict[str, object]]:
    document = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    found = document["tool"]["importlinter"]["contracts"]
    assert isinstance(found, list)
    return found


def test_every_room_has_a_contract_that_closes_all_others() -> None:
    closed = {
        str(module).removeprefix("codeloupe.")
        for contract in contracts()
        if contract["type"] == "forbidden" and contract["forbidden_modules"] == ["codeloupe.*"]
        for module in contract["source_modules"]  # type: ignore[attr-defined]  # a list, by import-linter's rules
    }
    rooms = {source.room for source in sources("src")}
    assert rooms - WITHOUT_A_CONTRACT == closed


def test_a_contract_allows_what_its_name_says() -> None:
    for contract in contracts():
        room, says, allowed = str(contract["name"]).partition(" may import ")
        if says:
            imports = [str(line).split(" -> ")[1] for line in contract.get("ignore_imports", [])]  # type: ignore[attr-defined]  # as above
            named = [] if allowed == "no other room" else allowed.split(", ")
            assert [name.removeprefix("codeloupe.").removesuffix(".**") for name in imports] == named, room


def test_the_map_for_contributors_is_the_table_that_is_enforced() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = {row[1]: row[2] for row in re.finditer(r"^\| `(\w+)` \|[^|]+\| ([^|]+) \|$", text, re.MULTILINE)}
    enforced = dict(
        str(contract["name"]).split(" may import ") for contract in contracts() if "may" in str(contract["name"])
    )
    assert drawn.pop("runtime") == drawn.pop("app") == "every room but cli"
    assert {room: "no other room" if allowed == "–" else allowed for room, allowed in drawn.items()} == enforced
