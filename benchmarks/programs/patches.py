"""A vision transformer that learns from a data loader with four workers, in epochs of eight batches.

a: the workers zoom, turn, flip, colour and normalise every picture on the CPU. b: they hand over the bytes, and the
GPU does it for the batch. One step: one training batch of 64 pictures; after every 8th, two validation batches.
"""

import math
import os
import sys

import torch
from clock import run
from torch import nn
from torch.cuda import nvtx
from torch.nn import functional as F

mode, dev = sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu"
BATCH, LENGTH, WIDTH = (4, 2, 48) if os.environ.get("QUICK") else (64, 8, 384)
SIDE = 160


def augment(pictures, dice):
    """Zoom, turn, flip, brightness and normalisation of (n, 3, 192, 192) bytes by (n, 4) numbers from 0 to 1."""
    zoom, turn, bright = 0.6 + 0.4 * dice[:, 0], (dice[:, 1] - 0.5) * 0.5, 0.7 + 0.6 * dice[:, 3]
    flip = (dice[:, 2] > 0.5).float() * 2 - 1
    cos, sin, none = zoom * torch.cos(turn), zoom * torch.sin(turn), torch.zeros_like(zoom)
    theta = torch.stack([cos * flip, -sin, none, sin * flip, cos, none], 1).view(-1, 2, 3)
    grid = F.affine_grid(theta, [len(pictures), 3, SIDE, SIDE], align_corners=False)
    x = F.grid_sample(pictures.float() / 255, grid, padding_mode="reflection", align_corners=False)
    x = (x * bright.view(-1, 1, 1, 1)).clamp(0, 1)
    return (x - 0.45) / 0.25


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count, raw):
        make = torch.Generator().manual_seed(count)
        self.bytes = torch.randint(0, 256, (256, 3, 192, 192), generator=make, dtype=torch.uint8)
        self.labels = torch.randint(0, 100, (count,), generator=make)
        self.dice = torch.rand(count, 4, generator=make)
        self.raw = raw

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        picture, dice = self.bytes[i % 256], self.dice[i]
        if not self.raw:
            picture = augment(picture[None], dice[None])[0]
        return picture, dice, self.labels[i]


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 16, 16)
        self.where = nn.Parameter(torch.randn(1, (SIDE // 16) ** 2, WIDTH) / math.sqrt(WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 6, WIDTH * 4, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 100)

    def forward(self, x):
        return self.head(self.layers(self.patch(x).flatten(2).transpose(1, 2) + self.where).mean(1))


def loss_of(batch):
    pictures, dice, labels = (t.to(dev, non_blocking=True) for t in batch)
    if mode == "b":
        pictures = augment(pictures, dice)
    with torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda"):
        return F.cross_entropy(net(pictures), labels)


torch.manual_seed(0)
net = Transformer().to(dev)
optimizer = torch.optim.AdamW(net.parameters(), 3e-4, fused=True)
options = {"batch_size": BATCH, "num_workers": 4, "persistent_workers": True, "pin_memory": dev == "cuda"}
training = torch.utils.data.DataLoader(Pictures(BATCH * LENGTH, mode == "b"), shuffle=True, **options)
validation = torch.utils.data.DataLoader(Pictures(BATCH * 2, mode == "b"), **options | {"num_workers": 2})
batches = iter(training)


def step(i):
    global batches
    epoch, number = divmod(i, LENGTH)
    nvtx.range_push(f"epoch {epoch} batch {number} train")
    loss = loss_of(next(batches))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    nvtx.range_pop()
    if number == LENGTH - 1:
        nvtx.range_push("validate")
        with torch.no_grad():
            sum(loss_of(batch) for batch in validation).item()
        nvtx.range_pop()
        batches = iter(training)


run(step, warm=8, timed=16, recorded=16)
