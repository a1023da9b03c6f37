"""Training of a small transformer with torch.compile.

a: each block notes the mean of what its two halves return in a Python list, in a function that is not compiled.
b: it does not.
One step is one training step on 8 sequences of 256 vectors, in a range like `train_step_3`.
"""

import logging
import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
watch = sys.argv[1] == "a"
width, heads = 512, 8
torch.manual_seed(0)
torch._logging.set_logs(dynamo=logging.ERROR, inductor=logging.ERROR)
means = []


@torch.compiler.disable
def note(x):
    means.append(x.mean().item())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        if watch:
            note(x)
        x = x + self.mlp(self.norm2(x))
        if watch:
            note(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(5))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = Model().to(dev)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
compiled = torch.compile(model)
inputs = [torch.randn(8, 256, width).pin_memory() for _ in range(4)]


def step(i):
    with nvtx.range(f"train_step_{i}"):
        x = inputs[i % 4].to(dev, non_blocking=True)
        loss = F.mse_loss(compiled(x), x.mean(2, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


run(step, 5, 60, 20)
