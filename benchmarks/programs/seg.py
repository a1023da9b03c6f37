"""Training of a U-Net for segmentation, 16 pictures of 256 x 256 a step.

a: as PyTorch starts: fp32, NCHW, cuDNN's first choice of algorithm.
b: channels_last, bf16 autocast, cudnn.benchmark.
One step is one iteration of training, in a range `iteration`.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
fast = sys.argv[1] == "b"
torch.manual_seed(0)
torch.backends.cudnn.benchmark = fast
layout = torch.channels_last if fast else torch.contiguous_format


def double_conv(inputs, outputs):
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512), classes=5):
        super().__init__()
        self.down = nn.ModuleList(double_conv(i, o) for i, o in zip((3, *widths), widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, 2) for i, o in zip(widths, widths[1:]))
        self.up = nn.ModuleList(double_conv(2 * i, i) for i in widths[:-1])
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        skips = []
        for depth, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if depth else x)
            skips.append(x)
        for depth in (2, 1, 0):
            x = self.up[depth](torch.cat([skips[depth], self.grow[depth](x)], 1))
        return self.head(x)


model = UNet().to(dev, memory_format=layout)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
pictures = [torch.randn(16, 3, 256, 256).pin_memory() for _ in range(4)]
masks = [torch.randint(0, 5, (16, 256, 256)).pin_memory() for _ in range(4)]


def step(i):
    with nvtx.range("iteration"):
        x = pictures[i % 4].to(dev, non_blocking=True, memory_format=layout)
        y = masks[i % 4].to(dev, non_blocking=True)
        with torch.autocast(dev, dtype=torch.bfloat16, enabled=fast):
            loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


run(step, 5, 15, 20)
