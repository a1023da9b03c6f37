"""Training of a transformer that forecasts the load of 64 meters, four micro-batches for each optimizer step.

a: loss and errors are read on the host after each micro-batch, for a log line.
b: they are summed on the device, and read for a log line after every 10th step.
One step is one optimizer step of 4 micro-batches of 96 windows of 336 hours; no ranges.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from clock import run
from torch import nn
from torch.nn import functional as F

mode, dev = sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu"
BATCH, METERS, PAST, NEXT, PATCH, WIDTH, MICRO = 96, 64, 336, 96, 16, 128, 4
HOURS = [0, 5, 11, 23, 47, 95]
if os.environ.get("QUICK"):
    BATCH = 2
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
log = Path(os.devnull).open("w")  # noqa: SIM115


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(PATCH, WIDTH)
        self.where = nn.Parameter(torch.randn(PAST // PATCH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(PAST // PATCH * WIDTH, NEXT)

    def forward(self, past):
        center, spread = past.mean(-1, keepdim=True), past.std(-1, keepdim=True) + 1e-3
        x = ((past - center) / spread).view(-1, PAST // PATCH, PATCH)
        x = self.layers(self.embed(x) + self.where)
        return self.head(x.flatten(1)).view(-1, METERS, NEXT) * spread + center


model = Forecaster().to(dev)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
hours = torch.arange(6000, device=dev)[None] + torch.randint(24, (METERS, 1), device=dev)
loads = 2 + torch.sin(hours * 6.2832 / 24) + 0.5 * torch.sin(hours * 6.2832 / 168)
loads = loads + 0.2 * torch.randn(METERS, 6000, device=dev)
sums, ahead = torch.zeros(2 + len(HOURS), device=dev), torch.tensor(HOURS, device=dev)


def windows(i):
    """Return past and future of a micro-batch, (batch, meters, hours) each."""
    first = (torch.arange(i * BATCH, (i + 1) * BATCH, device=dev) * 37) % (6000 - PAST - NEXT)
    both = loads.unfold(1, PAST + NEXT, 1)[:, first].transpose(0, 1)
    return both[..., :PAST].contiguous(), both[..., PAST:].contiguous()


def report(i, micro, loss, forecast, truth):
    """Write a line with the loss, the relative error and the errors some hours ahead, of a micro-batch."""
    errors = [(forecast[..., h] - truth[..., h]).abs().mean().item() for h in HOURS]
    forecast, truth = forecast.detach().cpu().numpy(), truth.cpu().numpy()
    relative = (np.abs(forecast - truth) / np.maximum(np.abs(truth), 0.1)).mean()
    log.write(f"{i}.{micro}: {loss.item():.4f} {relative:.4f} {errors}\n")


@torch.no_grad()
def count(loss, forecast, truth):
    """Add the same to the sums on the device."""
    error = (forecast - truth).abs()
    relative = (error / truth.abs().clamp_min(0.1)).mean()
    sums.add_(torch.cat([loss[None], relative[None], error.mean((0, 1))[ahead]]))


def step(i):
    for micro in range(MICRO):
        past, truth = windows(i * MICRO + micro)
        forecast = model(past)
        loss = F.mse_loss(forecast, truth)
        (loss / MICRO).backward()
        if mode == "a":
            report(i, micro, loss, forecast, truth)
        else:
            count(loss, forecast, truth)
    optimizer.step()
    optimizer.zero_grad()
    if mode == "b" and i % 10 == 9:
        log.write(f"{i}: {[f'{x / 10 / MICRO:.4f}' for x in sums.tolist()]}\n")
        sums.zero_()


run(step, 10, 30, 20)
