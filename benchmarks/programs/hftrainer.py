"""Training of a small GPT-2, built from a config, with the Trainer of transformers; one evaluation after the last step.

a: gradient checkpointing is on.
b: it is off.
One step is one training step of the Trainer on 32 sequences of 256 tokens.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

warm, timed, recorded = (2, 2, 2) if os.environ.get("QUICK") else (4, 7, 12)
torch.manual_seed(0)


class Clock(TrainerCallback):
    """Prints what clock.run prints, for steps that the Trainer drives."""

    def __init__(self):
        self.windows = {warm + timed: "timed", warm + timed + recorded: "recorded"}
        self.times = []

    def mark(self, step):
        """Note that step number `step` begins (or would)."""
        window = self.windows.get(step)
        if (window or step == warm) and torch.cuda.is_available():
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
        if window or step == warm:
            self.times = [time.perf_counter()]

    def on_step_begin(self, args, state, control, **kwargs):
        self.mark(state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == args.max_steps:
            self.mark(state.global_step)


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count):
        self.ids = torch.randint(0, 4000, (count, 256))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, k):
        return {"input_ids": self.ids[k], "labels": self.ids[k]}


config = GPT2Config(vocab_size=4000, n_positions=256, n_embd=512, n_layer=4, n_head=8, use_cache=False)
args = TrainingArguments(
    output_dir=Path(tempfile.gettempdir()) / "hftrainer",
    max_steps=warm + timed + recorded,
    per_device_train_batch_size=32,
    per_device_eval_batch_size=32,
    optim="adamw_torch_fused",
    gradient_checkpointing=sys.argv[1] == "a",
    gradient_checkpointing_kwargs={"use_reentrant": False},
    eval_strategy="steps",
    eval_steps=warm + timed + recorded,
    save_strategy="no",
    logging_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=not torch.cuda.is_available(),
)
model = GPT2LMHeadModel(config)
Trainer(model, args, train_dataset=Tokens(1024), eval_dataset=Tokens(256), callbacks=[Clock()]).train()
