"""Training of a two-layer graph network on sampled neighbourhoods; messages are added up with index_add.

a: the neighbours are sampled on the CPU, and the sampled graph is copied to the GPU.
b: they are sampled on the GPU.
One step is one batch of 4096 seed nodes.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn

dev = "cuda" if torch.cuda.is_available() else "cpu"
where = {"a": "cpu", "b": dev}[sys.argv[1]]
nodes, degree, fanout, seeds, classes = 100_000, 32, 10, 4096, 40
torch.manual_seed(0)
neighbours = torch.randint(0, nodes, (nodes, degree)).to(where)
inputs = torch.randn(nodes, 128, device=dev)
labels = torch.randint(0, classes, (nodes,), device=dev)


def grow(targets):
    """Sample neighbours of the targets; return the nodes, where the targets are among them, and the edges."""
    columns = torch.randint(0, degree, (len(targets), fanout), device=where)
    sources = neighbours[targets[:, None], columns]
    seen = torch.zeros(nodes, dtype=torch.bool, device=where)
    seen[sources.flatten()] = True
    seen[targets] = True
    sampled = seen.nonzero()[:, 0]
    place = torch.empty(nodes, dtype=torch.long, device=where)
    place[sampled] = torch.arange(len(sampled), device=where)
    edges = torch.stack([place[sources].flatten(), torch.arange(len(targets), device=where).repeat_interleave(fanout)])
    return sampled, place[targets], edges


class Layer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.message, self.own = nn.Linear(inputs, outputs, bias=False), nn.Linear(inputs, outputs)

    def forward(self, x, own, edges):
        messages = self.message(x)[edges[0]]
        summed = torch.zeros(len(own), messages.shape[1], device=dev).index_add(0, edges[1], messages)
        return self.own(x[own]) + summed / fanout


first, last = Layer(128, 256).to(dev), Layer(256, classes).to(dev)
optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=1e-3, fused=True)


def step(i):
    batch = torch.randint(0, nodes, (seeds,), device=where)
    middle, own_last, edges_last = grow(batch)
    outer, own_first, edges_first = grow(middle)
    batch, outer, own_first, edges_first, own_last, edges_last = (
        t.to(dev) for t in (batch, outer, own_first, edges_first, own_last, edges_last)
    )
    hidden = F.relu(first(inputs[outer], own_first, edges_first))
    loss = F.cross_entropy(last(hidden, own_last, edges_last), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


run(step, 5, 40, 20)
