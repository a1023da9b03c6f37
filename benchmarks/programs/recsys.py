"""Training of a click predictor: embedding bags of 48 categorical features, then an MLP.

a: 48 tables, each looked up alone.
b: one merged table with an offset for each feature, looked up once.
One step is one batch of 8192 examples.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn

dev = "cuda" if torch.cuda.is_available() else "cpu"
merged = sys.argv[1] == "b"
features, rows, width, batch, bag = 48, 5000, 32, 8192, 8
torch.manual_seed(0)


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        tables, size = (1, features * rows) if merged else (features, rows)
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum") for _ in range(tables))
        self.register_buffer("offset", torch.arange(features)[:, None, None] * rows)
        layers = [nn.Linear(features * width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)]
        self.mlp = nn.Sequential(*layers)

    def forward(self, ids):
        """Take ids of features x batch x bag."""
        if merged:
            bags = self.tables[0]((ids + self.offset).view(-1, bag))
            bags = bags.view(features, batch, width).transpose(0, 1).reshape(batch, -1)
        else:
            bags = torch.cat([table(x) for table, x in zip(self.tables, ids)], 1)
        return self.mlp(bags)[:, 0]


model = Clicks().to(dev)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)
ids = [torch.randint(0, rows, (features, batch, bag)).pin_memory() for _ in range(3)]
clicks = [torch.randint(0, 2, (batch,)).float().pin_memory() for _ in range(3)]


def step(i):
    x = ids[i % 3].to(dev, non_blocking=True)
    y = clicks[i % 3].to(dev, non_blocking=True)
    loss = F.binary_cross_entropy_with_logits(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


run(step, 5, 60, 10)
