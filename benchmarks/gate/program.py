"""A training step that one thing limits, with a planted slowdown: program.py host|gpu|mixed|ddp WHERE NANOSECONDS.

`host` launches hundreds of small kernels, `gpu` a few large products, `mixed` both in turn with a read-back between,
`ddp` sums gradients over two GPUs (RANK, MASTER_PORT). WHERE: `host` (a busy loop on the main thread) or `kernel` (a
kernel that spins), in each step. GATE: a folder in which capture.py lets one program after the other record, so that
none starts up while another is measured; without it, the program runs at once.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.cuda import nvtx

kind, where, planted_ns = sys.argv[1], sys.argv[2], int(sys.argv[3])
WARM, RECORDED = 8, int(os.environ.get("STEPS", "24"))
gate, name = os.environ.get("GATE"), os.environ.get("NAME", "")
local = int(os.environ.get("RANK", "0")) if kind == "ddp" else int(os.environ.get("GPU", "0"))
dev = torch.device("cuda", local)
torch.cuda.set_device(dev)
torch.manual_seed(0)


def make_network(layers, width, dtype=torch.float32):
    rows = [module for _ in range(layers) for module in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    return nn.Sequential(*rows).to(dev, dtype)


small = make_network(12, 256) if kind in ("host", "mixed") else None
large = make_network(8, 4096, torch.bfloat16) if kind in ("gpu", "mixed", "ddp") else None
if kind == "ddp":
    torch.distributed.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}", rank=local, world_size=2
    )
    large = nn.parallel.DistributedDataParallel(large, device_ids=[local])
networks = [net for net in (large, small) if net is not None]
adam = [torch.optim.Adam(net.parameters(), 1e-5, foreach=net is large) for net in networks]
batches = {large: {"gpu": 8192, "mixed": 4096, "ddp": 512}.get(kind, 0), small: 64}
inputs = [
    torch.randn(batches[net], 4096 if net is large else 256, device=dev, dtype=next(net.parameters()).dtype)
    for net in networks
]


def count_cycles(ns):
    """Return the cycles for which a kernel spins in a time (ns)."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(10**7)
    begin.record()
    torch.cuda._sleep(10**8)
    end.record()
    end.synchronize()
    return int(10**8 / (begin.elapsed_time(end) * 1e6) * ns)


def slow_down():
    if planted_ns and where == "kernel":
        torch.cuda._sleep(cycles)
    until = time.perf_counter_ns() + (planted_ns if where == "host" else 0)
    while time.perf_counter_ns() < until:
        pass


def step(number):
    nvtx.range_push(f"step {number}")
    for net, batch, optimizer in zip(networks, inputs, adam, strict=True):
        optimizer.zero_grad()
        loss = net(batch).float().square().mean()
        loss.backward()
        if net is networks[-1]:
            slow_down()
        optimizer.step()
        if kind == "mixed":
            loss.item()
    nvtx.range_pop()


def wait_for(word):
    while gate and not Path(gate, f"{name}.{word}").exists():
        time.sleep(0.02)


def tell(word):
    if gate:
        Path(gate, f"{name}.{word}").touch()


cycles = count_cycles(planted_ns)
for number in range(WARM):
    step(number)
torch.cuda.synchronize()
tell("ready")
wait_for("go")
for number in range(WARM):
    step(number)
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStart()
begin = time.perf_counter_ns()
for number in range(RECORDED):
    step(number)
torch.cuda.synchronize()
print(f"STEP {(time.perf_counter_ns() - begin) // RECORDED}", flush=True)
torch.cuda.cudart().cudaProfilerStop()
tell("done")
wait_for("end")
