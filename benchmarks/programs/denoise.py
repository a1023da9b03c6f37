"""Training of a small diffusion model: noise prediction by a U-shaped network, and an average of its weights.

a: norms, optimizer and average go parameter by parameter. b: all parameters together (foreach, fused). One step: one
batch of 32 pictures; every 5th also draws a preview of 8 pictures in four denoising rounds with the averaged weights.
"""

import copy
import os
import sys

import torch
from clock import run
from torch import nn
from torch.nn import functional as F

together, dev = sys.argv[1] == "b", "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, SIDE = (16, 16) if os.environ.get("QUICK") else (64, 32)


class Block(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, 1, 1))
        self.time = nn.Linear(WIDTH, outside)
        self.second = nn.Sequential(nn.GroupNorm(8, outside), nn.SiLU(), nn.Conv2d(outside, outside, 3, 1, 1))
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        return self.skip(x) + self.second(self.first(x) + self.time(t)[:, :, None, None])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU())
        self.stem, self.out = nn.Conv2d(3, WIDTH, 3, 1, 1), nn.Conv2d(WIDTH, 3, 3, 1, 1)
        self.down, self.middle, self.up = Block(WIDTH, WIDTH), Block(WIDTH, 2 * WIDTH), Block(3 * WIDTH, WIDTH)
        self.scale = torch.exp(torch.linspace(0, -6, 16, device=dev))

    def forward(self, x, t):
        angle = t[:, None] * 1000 * self.scale
        t = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        high = self.down(self.stem(x), t)
        low = self.middle(F.avg_pool2d(high, 2), t)
        return self.out(self.up(torch.cat([high, F.interpolate(low, scale_factor=2)], 1), t))


torch.manual_seed(0)
net = Net().to(dev)
average = copy.deepcopy(net).requires_grad_(False)
old, new = list(average.parameters()), list(net.parameters())
optimizer = torch.optim.AdamW(new, 2e-4, foreach=False) if not together else torch.optim.AdamW(new, 2e-4, fused=True)
pictures = torch.randn(512, 3, SIDE, SIDE, device=dev)


def mix(x, noise, t):
    t = t.view(-1, 1, 1, 1)
    return torch.cos(t * 1.57) * x + torch.sin(t * 1.57) * noise


@torch.no_grad()
def preview():
    x = torch.randn(8, 3, SIDE, SIDE, device=dev)
    for level in (0.95, 0.7, 0.45, 0.2):
        t = torch.full((8,), level, device=dev)
        noise = average(x, t)
        clean = (x - torch.sin(t * 1.57).view(-1, 1, 1, 1) * noise) / torch.cos(t * 1.57).view(-1, 1, 1, 1)
        x = mix(clean.clamp(-1, 1), noise, t - 0.2)
    return x.cpu()


def step(i):
    x, t = pictures[torch.randint(0, 512, (32,), device=dev)], torch.rand(32, device=dev)
    noise = torch.randn_like(x)
    loss = F.mse_loss(net(mix(x, noise, t), t), noise)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(new, 1.0, foreach=together)
    optimizer.step()
    with torch.no_grad():
        if together:
            torch._foreach_lerp_(old, new, 0.001)
        else:
            for mine, other in zip(old, new, strict=True):
                mine.lerp_(other, 0.001)
    if i % 5 == 4:
        preview()


run(step, warm=10, timed=40, recorded=10)
