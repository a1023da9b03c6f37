"""Training of a DCGAN on 64 x 64 pictures, batches of 64.

a: losses and mean scores are read on the host as they arise; Adam goes through the parameters one by one.
b: nothing is read; Adam is fused.
One step is one iteration: the discriminator is trained once, then the generator once.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn

dev = "cuda" if torch.cuda.is_available() else "cpu"
watch = sys.argv[1] == "a"
adam = {"lr": 2e-4, "betas": (0.5, 0.999), "foreach": False, "fused": not watch}
batch, noise = 64, 100
torch.manual_seed(0)


def up(inputs, outputs, stride=2, padding=1):
    conv = nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU(True)]


def down(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True)]


generator = nn.Sequential(
    *up(noise, 512, 1, 0), *up(512, 256), *up(256, 128), *up(128, 64), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()
).to(dev)
discriminator = nn.Sequential(
    *down(3, 64), *down(64, 128), *down(128, 256), *down(256, 512), nn.Conv2d(512, 1, 4), nn.Flatten(0)
).to(dev)
optimizer_d = torch.optim.Adam(discriminator.parameters(), **adam)
optimizer_g = torch.optim.Adam(generator.parameters(), **adam)
pictures = [torch.randn(batch, 3, 64, 64).pin_memory() for _ in range(4)]
ones, zeros = torch.ones(batch, device=dev), torch.zeros(batch, device=dev)
history = []


def note(*values):
    if watch:
        history.append([v.item() for v in values])


def iteration(i):
    real = pictures[i % 4].to(dev, non_blocking=True)
    fake = generator(torch.randn(batch, noise, 1, 1, device=dev))

    optimizer_d.zero_grad()
    score_real = discriminator(real)
    loss_real = F.binary_cross_entropy_with_logits(score_real, ones)
    loss_real.backward()
    note(loss_real, score_real.sigmoid().mean())
    score_fake = discriminator(fake.detach())
    loss_fake = F.binary_cross_entropy_with_logits(score_fake, zeros)
    loss_fake.backward()
    note(loss_fake, score_fake.sigmoid().mean())
    optimizer_d.step()

    optimizer_g.zero_grad()
    score = discriminator(fake)
    loss = F.binary_cross_entropy_with_logits(score, ones)
    loss.backward()
    note(loss, score.sigmoid().mean())
    optimizer_g.step()


run(iteration, 5, 60, 16)
