"""Training of a masked model of DNA, on pieces of 2048 letters.

a: attention is written as two products and a softmax.
b: attention is F.scaled_dot_product_attention.
One step is one training batch of 8 pieces, in a range `batch 7`; the whole process is captured.
"""

import os
import sys

import torch
from clock import run
from torch import nn
from torch.cuda import nvtx
from torch.nn import functional as F

mode, dev = sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu"
BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS = 8, 2048, 512, 8, 4, 4101
if os.environ.get("QUICK") and dev == "cpu":
    BATCH, LENGTH, WIDTH = 2, 128, 64
HIDDEN = LENGTH * 3 // 20
torch.manual_seed(0)


def attend(q, k, v):
    if mode == "b":
        return F.scaled_dot_product_attention(q, k, v)
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    return scores.softmax(3) @ v


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Genome(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.where = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))

    def forward(self, pieces, hidden):
        x = self.layers(self.words(pieces) + self.where)
        return self.head(x.gather(1, hidden[..., None].expand(-1, -1, WIDTH)))


model = Genome().to(dev)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
texts = torch.randint(5, WORDS, (8, BATCH, LENGTH))
places = torch.rand(8, BATCH, LENGTH).topk(HIDDEN).indices
if dev == "cuda":
    texts, places = texts.pin_memory(), places.pin_memory()


def step(i):
    with nvtx.range(f"batch {i}"):
        text, hidden = texts[i % 8].to(dev, non_blocking=True), places[i % 8].to(dev, non_blocking=True)
        pieces = text.scatter(1, hidden, 4)
        with torch.autocast(dev, torch.bfloat16):
            scores = model(pieces, hidden)
        loss = F.cross_entropy(scores.flatten(0, 1).float(), text.gather(1, hidden).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


run(step, 3, 6, 16)
