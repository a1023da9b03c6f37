"""A language model writes 24 tokens for 4 texts: fp32 weights, and autocast around each token.

a: autocast's cache of weights in bf16 ends with the context, so that each token casts all weights again.
b: the weights are bf16.
One step is 24 tokens, in a range `write`.
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
W, D, V = (8192, 2, 16384) if torch.cuda.is_available() else (64, 2, 128)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(W), nn.RMSNorm(W)
        self.qkv, self.out = nn.Linear(W, 3 * W, bias=False), nn.Linear(W, W, bias=False)
        self.up, self.down = nn.Linear(W, 4 * W, bias=False), nn.Linear(4 * W, W, bias=False)

    def forward(self, x, keys, values, at):
        q, k, v = self.qkv(self.norm1(x)).view(4, 1, 3, W // 64 or 1, -1).permute(2, 0, 3, 1, 4)
        keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
        a = F.scaled_dot_product_attention(q, keys[:, :, : at + 1].to(q.dtype), values[:, :, : at + 1].to(q.dtype))
        x = x + self.out(a.transpose(1, 2).reshape(4, 1, W))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


table, head = nn.Embedding(V, W).to(dev), nn.Linear(W, V, bias=False).to(dev)
blocks = nn.ModuleList(Block() for _ in range(D)).to(dev)
kind = torch.bfloat16
if fast:
    for each in (table, head, blocks):
        each.to(kind)
heads = W // 64 or 1
cache = [[torch.zeros(4, heads, 24, W // heads, device=dev, dtype=kind) for _ in range(2)] for _ in range(D)]


@torch.no_grad()
def step(i):
    with nvtx.range("write"):
        token = torch.full((4, 1), i % V, device=dev)
        for at in range(24):
            with torch.autocast(dev, dtype=kind, enabled=not fast):
                x = table(token)
                for each, (keys, values) in zip(blocks, cache):
                    x = each(x, keys, values, at)
                token = head(x).argmax(-1)


run(step, 3, 8, 8)
