"""All numba kernels: what each takes to compile, and what it saves against the same function in Python.

usage: python benchmarks/kernels.py REPORT...

Compile every kernel once, without a cache. Then summarize and translate the reports. Each call of a kernel that no
other kernel calls is timed, and its Python function on copies of the same arguments, for at most LONGEST s in all.
Kernels that are part of others have no times of their own. Prints a Markdown table; all times are CPU time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

LONGEST = 60.0
_HEAD = "| kernel | compile ms | calls | run ms | Python ms | saved ms |\n|---|---|---|---|---|---|"


def compile_each() -> dict[Any, float]:
    """Return the seconds that each kernel takes to compile, those that it calls not included."""
    from numba.core import event

    from nsys2prv_ng.runtime.precompile import ALL, list_kernels, list_modules

    kernels = [pair for module in list_modules(ALL) for pair in list_kernels(import_module(module))]
    taken: dict[Any, float] = defaultdict(float)
    stack: list[list[float]] = []

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            stack.append([time.process_time(), 0.0])

        def on_end(self, event: Any) -> None:
            begin, inner = stack.pop()
            whole = time.process_time() - begin
            taken[event.data["dispatcher"].py_func] += whole - inner
            if stack:
                stack[-1][1] += whole

    with event.install_listener("numba:compile", Listener()):
        for kernel, kinds in kernels:
            kernel.compile(kinds)
    return {kernel: taken[kernel.py_func] for kernel, _ in kernels}


class Timed:
    """A kernel that is timed, and its Python function with it."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.calls, self.run, self.python = kernel, 0, 0.0, 0.0

    def __call__(self, *arguments: Any) -> Any:
        copies = _copy(arguments)
        begin = time.process_time()
        answer = self.kernel(*arguments)
        done = time.process_time()
        if self.python < LONGEST:
            self.kernel.py_func(*copies)
            self.python += time.process_time() - done
        self.calls, self.run = self.calls + 1, self.run + done - begin
        return answer


def _copy(value: Any) -> Any:
    if isinstance(value, tuple):
        parts = [_copy(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.copy() if hasattr(value, "copy") else value


def time_calls(kernels: list[Any], reports: list[str]) -> dict[Any, Timed]:
    """Return the times of kernels that no other kernel calls, in a summary and a translation."""
    import nsys2prv_ng

    called = {name for kernel in kernels for name in kernel.py_func.__code__.co_names}
    timed = {kernel: Timed(kernel) for kernel in kernels if kernel.py_func.__name__ not in called}
    for module in [module for name, module in sys.modules.items() if name.startswith("nsys2prv_ng")]:
        for name, value in list(vars(module).items()):
            if getattr(value, "py_func", None) and value in timed:
                setattr(module, name, timed[value])
    with tempfile.TemporaryDirectory() as folder:
        nsys2prv_ng.summarize(reports, jobs=1)
        nsys2prv_ng.translate(reports, Path(folder) / "out.prv", jobs=1)
    return timed


def main() -> None:
    """Print the table."""
    os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    compiled = compile_each()
    timed = time_calls(list(compiled), sys.argv[1:])
    print(f"{len(compiled)} kernels compile in {sum(compiled.values()):.1f} s\n\n{_HEAD}")
    for kernel, taken in sorted(compiled.items(), key=lambda pair: -pair[1]):
        name = f"{kernel.py_func.__module__.removeprefix('nsys2prv_ng.')}.{kernel.py_func.__name__}"
        of = timed.get(kernel)
        times = (
            f"{of.calls} | {1e3 * of.run:.1f} | {1e3 * of.python:.0f} | {1e3 * (of.python - of.run):.0f}"
            if of is not None and of.calls
            else "- | - | - | -"
        )
        print(f"| `{name}` | {1e3 * taken:.0f} | {times} |")


if __name__ == "__main__":
    main()
