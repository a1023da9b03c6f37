"""Masked language modelling of sentences of changing length with the Hugging Face Trainer, evaluated as it goes.

a: the Trainer's defaults: every product in full float32. b: bf16=True. One step: one optimizer step of two
accumulated batches of 32 sentences; after every 5th, an evaluation of two batches.
"""

import itertools
import os
import statistics
import sys
import tempfile
import time

import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments

VOCAB, MASK, BATCH = (500, 4, 4) if os.environ.get("QUICK") else (8192, 4, 32)
WARM, TIMED, RECORDED = (1, 1, 1) if os.environ.get("QUICK") else (5, 10, 10)
small = bool(os.environ.get("QUICK"))


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        make = torch.Generator().manual_seed(seed)
        lengths = torch.randint(40, 90 if small else 220, (count,), generator=make)
        self.rows = [torch.randint(10, VOCAB, (n,), generator=make) for n in lengths.tolist()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    attention = (ids > 0).long()
    hidden = (torch.rand(ids.shape) < 0.15) & (ids > 0)
    return {
        "input_ids": ids.masked_fill(hidden, MASK),
        "attention_mask": attention,
        "labels": ids.masked_fill(~hidden, -100),
    }


class Clock(TrainerCallback):
    """Stamps every optimizer step; times the middle ones, and the last ones within the profiler's window."""

    def __init__(self):
        self.stamps, self.on = [], torch.cuda.is_available()

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == WARM:
            self.stamps = [self.now()]
        elif state.global_step == WARM + TIMED:
            self.close("timed")
            if self.on and os.environ.get("CAPTURE") != "whole":
                torch.cuda.cudart().cudaProfilerStart()
            self.stamps = [self.now()]
        elif self.stamps:
            self.stamps.append(time.perf_counter())

    def on_train_end(self, *_, **__):
        self.close("recorded")
        if self.on and os.environ.get("CAPTURE") != "whole":
            torch.cuda.cudart().cudaProfilerStop()

    def now(self):
        if self.on:
            torch.cuda.synchronize()
        return time.perf_counter()

    def close(self, what):
        host = [*self.stamps, time.perf_counter()]
        count = len(host) - 1
        mean = (self.now() - host[0]) / count * 1e3
        median = statistics.median(b - a for a, b in itertools.pairwise(host)) * 1e3
        print(f"TIME {what} steps {count} mean {mean:.3f} median_host {median:.3f} ms", flush=True)


torch.manual_seed(0)
torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan anew for every length of sentences
width = 64 if small else 768
model = BertForMaskedLM(
    BertConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        num_hidden_layers=4,
        num_attention_heads=width // 64,
        intermediate_size=width * 4,
    )
)
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=WARM + TIMED + RECORDED,
    per_device_train_batch_size=BATCH,
    per_device_eval_batch_size=BATCH,
    gradient_accumulation_steps=2,
    bf16=sys.argv[1] == "b",
    use_cpu=not torch.cuda.is_available(),
    eval_strategy="steps",
    eval_steps=5,
    save_strategy="no",
    logging_strategy="no",
    report_to=[],
    disable_tqdm=True,
    seed=3,
    remove_unused_columns=False,
)
Trainer(
    model=model,
    args=args,
    data_collator=collate,
    train_dataset=Sentences(2048, 1),
    eval_dataset=Sentences(64, 2),
    callbacks=[Clock()],
).train()
