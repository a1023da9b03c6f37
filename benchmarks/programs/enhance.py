"""Training of a network that removes noise from pictures, wholly in bf16: few channels, batch norm after each layer.

a: NCHW, where PyTorch's own batch norm for bf16 gives each channel to one block of threads.
b: channels_last.
One step is one iteration of training on 8 pictures of 512 x 512.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn

dev = "cuda" if torch.cuda.is_available() else "cpu"
fast = sys.argv[1] == "b"
torch.manual_seed(0)


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True))


size = 512 if torch.cuda.is_available() else 32
net = nn.Sequential(block(3, 32), *(block(32, 32) for _ in range(10)), nn.Conv2d(32, 3, 3, padding=1)).to(
    dev, torch.bfloat16
)
if fast:
    net = net.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, foreach=True)
layout = torch.channels_last if fast else torch.contiguous_format
clean = [torch.rand(8, 3, size, size, device=dev, dtype=torch.bfloat16).to(memory_format=layout) for _ in range(4)]


def step(i):
    x = clean[i % 4]
    loss = F.mse_loss(net(x + 0.1 * torch.randn_like(x)), x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


run(step, 5, 15, 15)
