"""Training of a small transformer with Accelerate, gradients accumulated over 4 micro-batches.

a: as Accelerate starts, in fp32.
b: mixed precision in bf16.
One step is one optimizer step of 4 micro-batches: 4 ranges `forward`, 4 `backward`, 1 `optimizer`.
"""

import sys

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from clock import run
from torch import nn
from torch.cuda import nvtx
from torch.utils.data import DataLoader, TensorDataset

micro_batches, width, words = 4, 768, 4000
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layers = (nn.TransformerEncoderLayer(width, 12, 4 * width, 0.0, "gelu", batch_first=True) for _ in range(3))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids)))


accelerator = Accelerator(
    mixed_precision={"a": "no", "b": "bf16"}[sys.argv[1]], gradient_accumulation_steps=micro_batches
)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids = TensorDataset(torch.randint(0, words, (16 * 128, 256)))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(ids, 16))


def forever():
    while True:
        yield from loader


batches = forever()


def step(i):
    for _ in range(micro_batches):
        (x,) = next(batches)
        with accelerator.accumulate(model):
            with nvtx.range("forward"):
                loss = F.cross_entropy(model(x).float().flatten(0, 1), x.flatten())
            with nvtx.range("backward"):
                accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                with nvtx.range("optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()


run(step, 3, 10, 10)
