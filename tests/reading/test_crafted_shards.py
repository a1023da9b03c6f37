"""No shard crashes the process, whatever numbers another person wrote into it, with a hash that is right."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.reading import kept_objects
from tests.conftest import SAMPLES
from tests.tiers import cases

pytestmark = pytest.mark.slow

SECONDS = 120
NUMBERS = (0, 1, -1, 7, 2**31 - 1, -(2**31), 2**40, -(2**62), 2**63 - 1)


@pytest.fixture(scope="module", params=cases(["mpi-4", "ddp-2x2"], push=1))
def shards(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    nsys2prv_ng.shard(sorted(SAMPLES.glob(f"{request.param}*.sqlite"))[:2], folder)
    nsys2prv_ng.translate(folder, folder.with_suffix(".prv"))  # what compiles here is shared with the forked processes
    return folder


def list_leaves(tree: Any) -> Iterator[tuple[list[Any], int]]:
    """Yield each value in a tree of lists that is no list, as a list and an index."""
    for index, value in enumerate(tree):
        if isinstance(value, list):
            yield from list_leaves(value)
        else:
            yield tree, index


def craft_manifest(path: Path, generator: random.Random) -> None:
    """Change numbers, flags or texts of a manifest, in its text or in its arrays."""
    _, header, rest = path.read_bytes().split(b"\n", 2)
    length = int(header.split()[0])
    tree, arrays = json.loads(rest[:length]), bytearray(rest[length:])
    leaves = list(list_leaves(tree))
    for _ in range(generator.choice((1, 2, 4))):
        at = generator.randrange(len(arrays) // 8) * 8
        if generator.random() < 0.5:
            arrays[at : at + 8] = generator.choice(NUMBERS).to_bytes(8, "little", signed=True)
        else:
            parent, index = generator.choice(leaves)
            value = parent[index]
            changed = {int: generator.choice(NUMBERS), bool: not value, str: str(value)[:-1], float: 1e300}
            parent[index] = changed.get(type(value), value)
    text = json.dumps(tree).encode()
    content = text + bytes(arrays)
    path.write_bytes(kept_objects._MAGIC + b"%d %s\n" % (len(text), kept_objects._hash(content)) + content)


def craft_columns(path: Path, generator: random.Random) -> None:
    """Change numbers of records."""
    columns = bytearray(path.read_bytes())
    for _ in range(generator.choice((1, 4, 30))):
        at = generator.randrange(len(columns) // 4) * 4
        columns[at : at + 4] = generator.choice(NUMBERS[:6]).to_bytes(4, "little", signed=True)
    path.write_bytes(columns)


@pytest.mark.parametrize("seed", cases(range(24), push=2))
def test_crafted_shards_never_crash(shards, tmp_path, seed):
    generator = random.Random(seed)
    folder = tmp_path / "crafted"
    shutil.copytree(shards, folder)
    craft, ending = generator.choice(((craft_manifest, ".shard"), (craft_columns, ".columns")))
    craft(generator.choice(sorted(folder.glob(f"*{ending}"))), generator)
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)  # an endless loop ends with a signal, too
        for use in (lambda: nsys2prv_ng.translate(folder, tmp_path / "a.prv"), lambda: nsys2prv_ng.summarize([folder])):
            with suppress(Exception):  # an error is fine, a signal is not
                use()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
