"""A server that rates texts: 4 threads take requests from a queue, each with a small model and a stream of its own.

a: a thread serves one request at a time.
b: a thread serves up to 8 requests at a time.
The unit of work is a batch, in a range `batch` of the thread that serves it: one range of b does the work of 8 of a.
What is timed as a step is the queueing of 32 requests (32 batches in a, 4 in b); the queue is bounded and never empty.
"""

import queue
import sys
import threading

import numpy as np
import torch
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
size = {"a": 1, "b": 8}[sys.argv[1]]
burst, threads, words = 32, 4, 4096
torch.manual_seed(0)
rng = np.random.default_rng(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x):
        return x + self.net(x)


def count_words(text):
    """Hash the pairs of bytes of a text into a histogram."""
    codes = np.frombuffer(text, np.uint8).astype(np.int64)
    return np.bincount((codes[:-1] * 31 + codes[1:]) % words, minlength=words).astype(np.float32)


@torch.inference_mode()
def serve(model):
    stream = torch.cuda.Stream() if dev == "cuda" else None
    ready.wait()
    with torch.cuda.stream(stream):
        while True:
            with take:
                batch = [requests.get() for _ in range(size)]
            with nvtx.range("batch"):
                x = torch.from_numpy(np.stack([count_words(text) for text in batch])).to(dev)
                scores = model(x).softmax(1).cpu()
            for score in scores:
                answers.append(score.argmax().item())
                requests.task_done()


def step(i):
    for k in range(burst):
        requests.put(texts[(i * burst + k) % len(texts)])


texts = [rng.integers(32, 127, 8192).astype(np.uint8).tobytes() for _ in range(256)]
requests, answers, take = queue.Queue(2 * burst), [], threading.Lock()
ready = threading.Barrier(threads + 1)
for _ in range(threads):
    model = nn.Sequential(nn.Linear(words, 512), *(Block(512) for _ in range(5)), nn.Linear(512, 16)).to(dev)
    threading.Thread(target=serve, args=(model,), daemon=True).start()
ready.wait()
start = stop = None
if dev == "cuda":
    start, stop = torch.cuda.cudart().cudaProfilerStart, torch.cuda.cudart().cudaProfilerStop
run(step, 4, 40, 12, requests.join, start, stop)
