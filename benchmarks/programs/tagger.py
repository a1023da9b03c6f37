"""Training of a tagger of words: each word is a row of a table of 120,000 words.

a: words become one-hot vectors, which are multiplied by the table.
b: rows of the table are looked up.
One step is one batch of 256 sentences of 64 words, in a range `train_batch`.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
fast = sys.argv[1] == "b"
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
V = 120_000 if torch.cuda.is_available() else 300
table = nn.Parameter(torch.randn(V, 256, device=dev) * 0.02)
net = nn.Sequential(
    nn.Conv1d(256, 512, 5, padding=2), nn.ReLU(), nn.Conv1d(512, 256, 5, padding=2), nn.ReLU(), nn.Conv1d(256, 50, 1)
).to(dev)
optimizer = torch.optim.SGD([table, *net.parameters()], lr=1e-2)
batches = [(torch.randint(V, (256, 64), device=dev), torch.randint(50, (256, 64), device=dev)) for _ in range(4)]


def step(i):
    words, tags = batches[i % 4]
    with nvtx.range("train_batch"):
        x = F.embedding(words, table) if fast else F.one_hot(words, V).float() @ table
        loss = F.cross_entropy(net(x.transpose(1, 2)), tags)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


run(step, 5, 15, 15)
