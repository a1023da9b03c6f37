"""Trains a small convolutional net on one GPU, which reads its loss after each step.

`python conv_net.py NAME CAUSE`, with a cause of:

    none     nothing is planted
    augment  the host augments images for 12 ms in `augment` before each step
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from capture_loop import DEVICE, nvtx_range, run_and_capture
from torch import Tensor, nn

CAUSES = ("none", "augment")


@dataclass
class Sizes:
    """Sizes of the net and of a batch."""

    images: int = 128
    side: int = 128
    width: int = 128
    layers: int = 8
    classes: int = 100
    augment_ms: float = 12


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.convolutions(x))


class Net(nn.Module):
    """Tells the class of an image; each layer is a range."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, sizes.width, 7, stride=4, padding=3)
        self.blocks = nn.ModuleList(Block(sizes.width) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.width, sizes.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for number, block in enumerate(self.blocks):
            with nvtx_range(f"layer{number}"):
                x = block(x)
        return self.head(x.mean((2, 3)))


class Training:
    """The net, its data, and the step that run_and_capture repeats."""

    def __init__(self, cause: str, sizes: Sizes) -> None:
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        self.cause, self.sizes = cause, sizes
        self.net = Net(sizes).to(DEVICE, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        shape = (sizes.images, 3, sizes.side, sizes.side)
        self.images = [torch.rand(shape).pin_memory() for _ in range(2)]
        self.classes = [torch.randint(0, sizes.classes, (sizes.images,)).pin_memory() for _ in range(2)]
        self.random = np.random.default_rng(1)
        self.losses: list[float] = []

    def augment(self, images: Tensor) -> None:
        """Flip and brighten one image after the other, on this thread, until the time is over."""
        end = time.perf_counter() + self.sizes.augment_ms / 1000
        number = 0
        while time.perf_counter() < end:
            image = images[number % len(images)].numpy()
            image[:] = np.clip(image[:, :, ::-1] * self.random.uniform(0.9, 1.1), 0, 1)
            number += 1

    def step(self, number: int) -> None:
        """Train with one batch."""
        images, classes = self.images[number % 2], self.classes[number % 2]
        if self.cause == "augment":
            with nvtx_range("augment"):
                self.augment(images)
        with nvtx_range("data movement"):
            images = images.to(DEVICE, non_blocking=True).contiguous(memory_format=torch.channels_last)
            classes = classes.to(DEVICE, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16), nvtx_range("forward"):
            loss = nn.functional.cross_entropy(self.net(images), classes)
        with nvtx_range("backward"):
            loss.backward()
        with nvtx_range("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        with nvtx_range("log"):
            self.losses.append(loss.item())


def main() -> None:
    """Train with the cause that is named."""
    name, cause = sys.argv[1:]
    if cause not in CAUSES:
        sys.exit(f"no such cause: {cause}; there are {', '.join(CAUSES)}")
    run_and_capture(name, 0, Training(cause, Sizes()).step, lambda _: None)


if __name__ == "__main__":
    main()
