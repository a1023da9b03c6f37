"""Training of an autoencoder with a checkpoint of model and optimizer after every 5th step.

a: torch.save writes the state at once.
b: the state is copied to pinned memory, and a thread writes it.
One step is one training step on 16384 rows, in a range like `step=3, loss=0.97` (the loss is the last one known).
"""

import sys
import tempfile
import threading

import torch
import torch.nn.functional as F
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
later = sys.argv[1] == "b"
rows, width = 16384, 1024
torch.manual_seed(0)
sizes = [(width, 1536), (1536, 256), (256, 1536), (1536, width)]
layers = [layer for size in sizes for layer in (nn.Linear(*size), nn.GELU())]
model = nn.Sequential(*layers[:-1]).to(dev)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
data = [(torch.randn(rows, 32) @ torch.randn(32, width)).tanh().pin_memory() for _ in range(4)]
last = 1.0
host, writer = {}, threading.Thread()


def state():
    """Flatten the state of model and optimizer to named tensors."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for k, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{k}.{name}": tensor for name, tensor in moments.items()}
    return tensors


def write(copied):
    copied.synchronize()
    torch.save(host, path)


def save():
    global writer
    if not later:
        torch.save(state(), path)
        return
    if writer.ident:
        writer.join()
    for name, tensor in state().items():
        if name not in host:
            host[name] = torch.empty_like(tensor, device="cpu").pin_memory()
        host[name].copy_(tensor, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()
    writer = threading.Thread(target=write, args=(copied,))
    writer.start()


def step(i):
    global last
    with nvtx.range(f"step={i}, loss={last:.2f}"):
        x = data[i % 4].to(dev, non_blocking=True)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last = loss.item()
        if i % 5 == 4:
            save()


with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/checkpoint.pt"
    run(step, 5, 40, 20)
    if writer.ident:
        writer.join()
