"""Training of a message-passing potential on energies of boxes of atoms and on forces, their gradients.

a: every interaction finds the neighbours and expands the distances anew. b: once for all three. One step: one batch
of 6 boxes.
"""

import os
import sys

import torch
from clock import run
from torch import nn

mode, dev = sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu"
ATOMS, BOXES = (64, 2) if os.environ.get("QUICK") else (2500, 6)
NEAR, WIDTH, WAVES, CUT = 24, 32, 16, 2.0


def edges(where):
    """Neighbours of every atom (indices), radial functions of their distances, and weights that end at the cutoff."""
    with torch.no_grad():
        near = torch.cdist(where, where).topk(NEAR + 1, largest=False).indices[..., 1:]
    near = (near + torch.arange(BOXES, device=dev)[:, None, None] * ATOMS).flatten()
    other = where.flatten(0, 1).index_select(0, near).view(BOXES, ATOMS, NEAR, 3)
    far = ((where[:, :, None] - other).square().sum(-1, keepdim=True) + 1e-6).sqrt()
    waves = torch.exp(-8 * (far - torch.linspace(0, CUT, WAVES, device=dev)).square())
    weight = 0.5 * torch.cos(far.clamp(max=CUT) * (3.14159 / CUT)) + 0.5
    return near, waves, weight


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(WAVES, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.mix = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x, near, waves, weight):
        sent = x.flatten(0, 1).index_select(0, near).view(BOXES, ATOMS, NEAR, WIDTH)
        return x + self.mix((sent * self.filter(waves) * weight).sum(2))


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(5, WIDTH)
        self.interactions = nn.ModuleList(Interaction() for _ in range(3))
        self.energy = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))

    def forward(self, where, kinds):
        x, found = self.kinds(kinds), None
        for interaction in self.interactions:
            if mode == "a" or found is None:
                found = edges(where)
            x = interaction(x, *found)
        return self.energy(x).sum((1, 2))


torch.manual_seed(0)
model = Potential().to(dev)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
boxes = torch.rand(64, ATOMS, 3, device=dev) * ATOMS ** (1 / 3)
kinds = torch.randint(0, 5, (64, ATOMS), device=dev)
energies, forces = torch.randn(64, device=dev), torch.randn(64, ATOMS, 3, device=dev)


def step(i):
    pick = torch.arange(i * BOXES, (i + 1) * BOXES, device=dev) % 64
    where = boxes[pick].requires_grad_()
    energy = model(where, kinds[pick])
    (slope,) = torch.autograd.grad(energy.sum(), where, create_graph=True)
    loss = (energy - energies[pick]).square().mean() / ATOMS + 10 * (slope + forces[pick]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


run(step, warm=8, timed=40, recorded=10)
