"""Training of a ResNet-18 on 64 pictures a step, with an evaluation on 384 pictures after every 5th step.

a: the evaluation fills the confusion matrix picture by picture on the host.
b: it fills it on the device, a batch at a time.
One step is one training step, in a range like `train 3`; the evaluations, `eval 1`, have a counter of their own.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch.cuda import nvtx
from torchvision.models import resnet18

dev = "cuda" if torch.cuda.is_available() else "cpu"
single = sys.argv[1] == "a"
batch, classes, eval_batches = 64, 10, 3
torch.manual_seed(0)
model = resnet18(num_classes=classes).to(dev)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
pictures = [torch.randn(batch, 3, 128, 128).pin_memory() for _ in range(4)]
labels = [torch.randint(0, classes, (batch,)).pin_memory() for _ in range(4)]
held_out = torch.randn(eval_batches, 2 * batch, 3, 64, 64, device=dev)
truth = torch.randint(0, classes, (eval_batches, 2 * batch), device=dev)
reports = []


@torch.no_grad()
def evaluate():
    model.eval()
    confusion = torch.zeros(classes, classes, dtype=torch.long, device="cpu" if single else dev)
    for x, y in zip(held_out, truth):
        scores = model(x)
        if single:
            for score, target in zip(scores, y):
                confusion[target.item(), score.argmax().item()] += 1
        else:
            cells = y * classes + scores.argmax(1)
            confusion += torch.bincount(cells, minlength=classes**2).view(classes, classes)
    reports.append(confusion.cpu())
    model.train()


def step(i):
    with nvtx.range(f"train {i}"):
        x = pictures[i % 4].to(dev, non_blocking=True)
        y = labels[i % 4].to(dev, non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if i % 5 == 4:
        with nvtx.range(f"eval {len(reports) + 1}"):
            evaluate()


run(step, 5, 40, 15)
