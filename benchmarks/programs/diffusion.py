"""Sampling of pictures from a small diffusion model with guidance, 30 denoising steps a picture.

a: the network runs twice in a denoising step, with the condition and without it.
b: it runs once, on a batch of the two.
One step is one picture of 64 x 64, in a range `sample`; the denoising steps are nested in it.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
together = sys.argv[1] == "b"
denoising, guidance = 30, 4.0
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.norm = nn.GroupNorm(8, inputs)
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)

    def forward(self, x):
        return self.conv(F.silu(self.norm(x)))


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Linear(128, width)
        self.first = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.down = Block(width, 2 * width, 2)
        self.up = Block(2 * width, width)
        self.last = Block(width, 3)

    def forward(self, x, condition):
        x = self.first(x) + self.embed(condition)[:, :, None, None]
        return self.last(x + F.interpolate(self.up(self.down(x)), scale_factor=2))


model = Denoiser().to(dev).eval()
times = torch.randn(denoising, 128, device=dev)
prompts = torch.randn(8, 128, device=dev)
alpha = torch.cos(torch.linspace(0.02, 1.55, denoising + 1)).square().tolist()
gallery = {}


@torch.no_grad()
def sample(i):
    with nvtx.range("sample"):
        x = torch.randn(1, 3, 64, 64, device=dev)
        conditions = times + prompts[i % 8]
        for t in reversed(range(denoising)):
            without, condition = times[t : t + 1], conditions[t : t + 1]
            if together:
                plain, guided = model(torch.cat([x, x]), torch.cat([without, condition])).chunk(2)
            else:
                plain, guided = model(x, without), model(x, condition)
            noise = torch.lerp(plain, guided, guidance)
            clean = torch.sub(x, noise, alpha=(1 - alpha[t + 1]) ** 0.5) / max(alpha[t + 1], 1e-3) ** 0.5
            x = torch.add(alpha[t] ** 0.5 * clean.clamp(-1, 1), noise, alpha=(1 - alpha[t]) ** 0.5)
        gallery[i % 8] = x.cpu()


run(sample, 3, 40, 9)
