"""Fits the joint angles of a skinned body to the markers of a film, frame after frame (L-BFGS).

a: the loss and its gradient run operation by operation. b: they are one CUDA graph, replayed. One step: one frame,
three L-BFGS iterations with a line search, several losses and gradients in each.
"""

import sys

import torch
from clock import run
from torch.cuda import nvtx

mode, dev = sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu"
LEVELS = [[0], [0, 0, 0], [1, 2, 3, 3, 3], [4, 5, 6, 7, 8], [9, 10]]  # the parents of the joints, level after level
JOINTS, SKIN, MARKS, FRAMES = sum(map(len, LEVELS)), 6890, 120, 64

torch.manual_seed(0)
bones = torch.randn(JOINTS, 3, device=dev) * 0.2
weights = torch.softmax(torch.randn(SKIN, JOINTS, device=dev) * 4, 1)
skin = torch.randn(SKIN, 3, device=dev) * 0.3
marks = torch.randperm(SKIN, device=dev)[:MARKS]
parents = [torch.tensor(level, device=dev) for level in LEVELS]
cross = torch.zeros(3, 3, 3, device=dev)
for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    cross[a, c, b], cross[a, b, c] = 1, -1
eye = torch.eye(3, device=dev)


def pose_skin(angles):
    """The skin's points for axis-angle rotations of the joints, down the tree of bones."""
    size = (angles.square().sum(-1) + 1e-12).sqrt()[:, None, None]
    k = torch.einsum("ja,abc->jbc", angles, cross) / size
    turns = eye + size.sin() * k + (1 - size.cos()) * (k @ k)
    world, place, first = turns[:1], bones[:1], 1
    for parent in parents[1:]:
        last = first + len(parent)
        above = world.index_select(0, parent)
        place = torch.cat([place, place.index_select(0, parent) + (above @ bones[first:last, :, None])[..., 0]])
        world = torch.cat([world, above @ turns[first:last]])
        first = last
    moved = torch.einsum("vj,jab->vab", weights, world) @ skin[..., None]
    return moved[..., 0] + weights @ place


def loss_of(angles, goal, before):
    points = pose_skin(angles).index_select(0, marks)
    seen = points[:, :2] / (points[:, 2:] + 4)
    miss = (seen - goal).square().sum(-1)
    return (miss / (miss + 0.01)).mean() + 0.01 * (angles - before).square().mean() + 1e-4 * angles.square().mean()


film = []
for frame in range(FRAMES):
    wave = torch.sin(torch.arange(JOINTS * 3, device=dev).view(JOINTS, 3) * 1.7 + frame * 0.1) * 0.4
    points = pose_skin(wave).index_select(0, marks)
    film.append(points[:, :2] / (points[:, 2:] + 4) + 0.002 * torch.randn(MARKS, 2, device=dev))
angles = torch.zeros(JOINTS, 3, device=dev, requires_grad=True)
before, goal = torch.zeros(JOINTS, 3, device=dev), film[0].clone()
angles.grad = torch.zeros_like(angles)


def evaluate():
    angles.grad.zero_()
    loss = loss_of(angles, goal, before)
    loss.backward()
    return loss.detach()


if mode == "b" and dev == "cuda":
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            evaluate()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = evaluate()


def closure():
    if mode == "b" and dev == "cuda":
        graph.replay()
        return result.clone()
    return evaluate()


def step(i):
    mark = nvtx.range_start(f"fit frame {i} (lbfgs)")
    goal.copy_(film[i % FRAMES])
    before.copy_(angles.detach())
    optimizer = torch.optim.LBFGS([angles], lr=1, max_iter=3, history_size=5, line_search_fn="strong_wolfe")
    optimizer.step(closure)
    nvtx.range_end(mark)


run(step, warm=8, timed=40, recorded=10)
