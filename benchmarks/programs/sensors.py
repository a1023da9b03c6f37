"""Training on tables of sensors: a batch is 96 small columns, each an array of its own.

a: each column is copied to the GPU by itself.
b: the columns are packed into one pinned buffer, which is copied at once, and split there.
One step is one batch of 2,048 rows.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn

dev = "cuda" if torch.cuda.is_available() else "cpu"
fast = sys.argv[1] == "b"
torch.manual_seed(0)
C, N = 96, 2048
net = nn.Sequential(nn.Linear(C, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)).to(dev)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=dev == "cuda")
batches = [[torch.randn(N) for _ in range(C)] for _ in range(8)]
labels = [torch.randn(N, device=dev) for _ in range(8)]
buffer = torch.empty(C, N, pin_memory=dev == "cuda")


def load(columns):
    if not fast:
        return torch.stack([each.to(dev) for each in columns], 1)
    torch.stack(columns, out=buffer)
    return buffer.to(dev, non_blocking=True).T.contiguous()


def step(i):
    loss = F.mse_loss(net(load(batches[i % 8])).squeeze(1), labels[i % 8])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


run(step, 10, 30, 20)
