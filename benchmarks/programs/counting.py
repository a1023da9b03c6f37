"""Training of a network that counts people: pictures are cropped to a height and a width that change in each step.

a: cudnn.benchmark tries all algorithms for each new size.
b: cudnn.benchmark is off.
One step is one iteration of training on 8 pictures, in a range `iter {n}`.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.benchmark = sys.argv[1] == "a"
torch.manual_seed(0)
sizes = torch.randint(20, 36, (400, 2)).tolist()
widths = (3, 32, 64, 96, 128)
layers = []
for inputs, outputs in zip(widths, widths[1:]):
    layers += [
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(),
    ]
    layers += [nn.MaxPool2d(2)] if outputs < 128 else []
net = nn.Sequential(*layers, nn.Conv2d(128, 1, 1)).to(dev)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-5, foreach=True)
pictures = torch.randn(8, 3, 300, 300, device=dev)


def step(i):
    height, width = (8 * each for each in sizes[i])
    with nvtx.range(f"iter {i}"):
        x = pictures[:, :, :height, :width].contiguous()
        loss = F.mse_loss(net(x), torch.zeros(8, 1, height // 8, width // 8, device=dev))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


run(step, 5, 15, 15)
