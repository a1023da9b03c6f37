"""Training of a small convolutional network with Lightning; a validation on 48 pictures after every 4th step.

a: validation runs with a batch of 1.
b: with a batch of 48.
One step is one training step on 128 pictures of 64 x 64; the validations fall between steps.
"""

import os
import statistics
import sys
import time

import lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warm, timed, recorded = (4, 4, 4) if os.environ.get("QUICK") else (4, 12, 16)
pl.seed_everything(0, verbose=False)


class Clock(pl.Callback):
    """Prints what clock.run prints, for steps that the Trainer drives."""

    def __init__(self):
        self.windows = {warm + timed: "timed", warm + timed + recorded: "recorded"}
        self.times = []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        window = self.windows.get(batch_idx)
        if (window or batch_idx == warm) and torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())
        if window:
            count = len(self.times) - 1
            mean = (self.times[-1] - self.times[0]) / count * 1e3
            median = statistics.median(b - a for a, b in zip(self.times, self.times[1:])) * 1e3
            print(f"TIME {window} steps {count} mean {mean:.3f} median_host {median:.3f} ms", flush=True)
            if os.environ.get("CAPTURE") != "whole" and torch.cuda.is_available():
                runtime = torch.cuda.cudart()
                (runtime.cudaProfilerStart if window == "timed" else runtime.cudaProfilerStop)()
        if window or batch_idx == warm:
            self.times = [time.perf_counter()]


class Classifier(pl.LightningModule):
    def __init__(self, widths=(64, 128, 256, 256)):
        super().__init__()
        layers = []
        for inputs, outputs in zip((3, *widths), widths):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3, fused=True)


def loader(count, batch):
    pictures = TensorDataset(torch.randn(count, 3, 64, 64), torch.randint(0, 10, (count,)))
    return DataLoader(pictures, batch, pin_memory=torch.cuda.is_available())


steps = warm + timed + recorded
trainer = pl.Trainer(
    max_steps=steps + 1,
    val_check_interval=4,
    num_sanity_val_steps=0,
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[Clock()],
)
trainer.fit(Classifier(), loader(128 * (steps + 1), 128), loader(48, {"a": 1, "b": 48}[sys.argv[1]]))
