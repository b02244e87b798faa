from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from codeloupe.errors import WorkspaceError
from codeloupe.model.pipeline_definition import PipelineDefinition, StageDefinition
from codeloupe.model.ports import KeptTree
from codeloupe.pipeline.descent import Descent


class CountingStore:
    """Trees are the names of what is in them; a merge is the names of all."""

    def __init__(self) -> None:
        self.merges = 0

    async def merged(self, base: str, trees: Sequence[str]) -> str:
        self.merges += 1
        return "".join(sorted(set("".join((base, *trees)))))

    async def beginning(self) -> str:
        raise NotImplementedError

    async def put(self, tree: str, directory: Path) -> None:
        raise NotImplementedError

    async def keep(self, directory: Path) -> KeptTree:
        raise NotImplementedError

    async def changed(self, before: str, after: str) -> tuple[str, ...]:
        raise NotImplementedError

    async def without(self, tree: str, paths: Sequence[str]) -> str:
        raise NotImplementedError

    async def diff(self, before: str, after: str, *, without: Sequence[str] = ()) -> str:
        raise NotImplementedError


def layered(layers: int, *, wide: int) -> PipelineDefinition:
    """Layers of stages, each of which needs the whole layer before."""
    stages = [
        StageDefinition(
            name=f"s{layer}-{place}",
            step=Path("s.md"),
            needs=tuple(f"s{layer - 1}-{other}" for other in range(wide)) if layer else (),
        )
        for layer in range(layers)
        for place in range(wide)
    ]
    return PipelineDefinition(name="p", file=Path("/p.yaml"), stages=tuple(stages))


def test_layers_that_need_the_whole_layer_before_are_joined_in_linear_time() -> None:
    definition, store = layered(33, wide=3), CountingStore()
    descent = Descent(definition, store, base="", run_id="r")
    trees = {stage.name: chr(0x100 + number) for number, stage in enumerate(definition.stages)}
    for layer in range(1, 33):
        asyncio.run(descent.together(definition.stages[layer * 3].needs, trees))
    assert store.merges == 2 * 32


def test_what_is_known_of_a_tree_is_not_taken_for_another_one() -> None:
    definition, store = layered(1, wide=2), CountingStore()
    descent = Descent(definition, store, base="", run_id="r")
    names = ("s0-0", "s0-1")
    assert asyncio.run(descent.together(names, {"s0-0": "a", "s0-1": "b"})) == "ab"
    assert asyncio.run(descent.together(names, {"s0-0": "a", "s0-1": "c"})) == "ac"
    assert asyncio.run(descent.together(("s0-1",), {"s0-1": "c"})) == "c"


def test_work_that_cannot_be_joined_is_refused_every_time() -> None:
    class Refusing(CountingStore):
        async def merged(self, base: str, trees: Sequence[str]) -> str:
            await super().merged(base, trees)
            raise WorkspaceError("they do not go together")

    store = Refusing()
    descent = Descent(layered(1, wide=2), store, base="", run_id="r")
    for _ in range(2):
        try:
            asyncio.run(descent.together(("s0-0", "s0-1"), {"s0-0": "a", "s0-1": "b"}))
        except WorkspaceError:
            continue
        raise AssertionError("it was joined")
    assert store.merges == 2
