"""Damaged files of this program that it reads again: saved numbers of a job (JSON), and labels of a trace (.pcf)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.damage import NAMES, NUMBERS, damage_bytes

HUGE = "@a number of many digits@"
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**63,
    -(2**64),
    10**30,
    0.5,
    -1e300,
    float("nan"),
    float("inf"),
    "",
    "x",
    [],
    {},
    [[]],
    [None],
    {"version": 1},
    HUGE,
)
"""Values of any type, most of which are not the type of the value that they replace."""


def damage_summary(sound: Path, damaged: Path, rng: random.Random) -> str:
    """Write a damaged copy of a JSON file; return what was done."""
    numbers = json.loads(sound.read_text(encoding="utf-8"))
    done = [_damage_value(numbers, rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 5)))]
    text = json.dumps(numbers).replace(f'"{HUGE}"', "9" * 5000)
    damaged.write_text(rng.choice((*(text,) * 40, f"[{text}]", text + "\n{}", "\ufeff" + text)), encoding="utf-8")
    if not done or rng.random() < 0.05:
        done.append(damage_bytes(damaged, rng))
    return "; ".join(done)


def _damage_value(numbers: Any, rng: random.Random) -> str:
    """Change a value anywhere in a tree of lists and dicts, or all that have its key."""
    nodes = list(_walk(numbers, ""))
    if not nodes:
        return "nothing"
    # By their key, since most values are in the same few lists.
    key = rng.choice(sorted({str(key) for _, key, _ in nodes if isinstance(key, str)} or {""}))
    parent, at, where = rng.choice([node for node in nodes if node[1] == key] or nodes)
    value = parent[at]
    way = rng.choice(("other", "same type", "same type", "same type", "delete", "all", "list", "list"))
    if way == "delete":
        del parent[at]
        return f"without {where}"
    if way == "list" and isinstance(value, list):
        parent[at] = rng.choice(([], value[:1], value[::-1], value * 3, [*value, None]))
        return f"{where}: another list"
    new = rng.choice(VALUES) if way == "other" else _choose_alike(value, rng)
    for one, key, _ in nodes if way == "all" else [(parent, at, where)]:
        if key == at:
            one[key] = new
    return f"{where} = {str(new)[:60]!r}, {way}"


def _choose_alike(value: Any, rng: random.Random) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return rng.choice((*NUMBERS, 0, 0, -value, value * 1000, value + 1, 2**63, 10**30, -(10**30)))
    if isinstance(value, float):
        return rng.choice((0.0, -value, 1e300, 1e-300, value * 1000, -0.0, float("nan"), float("-inf")))
    if isinstance(value, str):
        return rng.choice((*NAMES, "\ud800"))
    return type(value)()


def _walk(value: Any, where: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield each container, key and path of the values in a tree; the parts of long lists are few."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))[:50]
    for key, item in items:
        yield value, key, f"{where}.{key}"
        if isinstance(item, dict | list):
            yield from _walk(item, f"{where}.{key}")


def damage_labels(labels: bytes, path: Path, rng: random.Random) -> str:
    """Write damaged labels of a trace; return what was done."""
    lines = labels.split(b"\n")
    way = rng.choice(("bytes", "bytes", "cut lines", "twice", "numbers", "texts", "order"))
    for _ in range(rng.choice((1, 5, 50))):
        i = rng.randrange(len(lines))
        if way == "cut lines":
            lines[i] = lines[i][: rng.randrange(len(lines[i]) + 1)]
        elif way == "twice":
            lines[i:i] = lines[i : i + rng.choice((1, 20))]
        elif way == "numbers":
            number = str(rng.choice((*NUMBERS, "", "x", 10**30))).encode()
            lines[i] = b" ".join(
                number if word.isdigit() and rng.random() < 0.5 else word for word in lines[i].split(b" ")
            )
        elif way == "texts":
            lines[i] += rng.choice(NAMES).encode("utf-8", "surrogatepass")
        elif way == "order":
            j = rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
    path.write_bytes(b"\n".join(lines))
    return damage_bytes(path, rng) if way == "bytes" else f"{way} of {path.name}"
