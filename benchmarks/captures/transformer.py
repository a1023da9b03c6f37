"""Trains a small GPT on one GPU, or on several with DistributedDataParallel, with one planted cause of lost time.

`python transformer.py NAME CAUSE` is the one rank of the set NAME, unless RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT say more. The causes:

    none          nothing is planted
    late          rank 1 does about 8 ms of additional matrix products in `extra work`
    host          rank 0 computes 10 ms in Python in `data loading`
    pageable      each step copies 200 MB from pageable memory in `data movement`, and waits for it
    fp32          neither autocast nor TF32
    launch        a tiny model and an optimizer that launches kernels for each parameter: the host sets the pace
    launch-graph  the same as `launch`, but the whole step is one CUDA graph that is replayed
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import torch
import torch.distributed as dist
from capture_loop import DEVICE, compute_on_host, nvtx_range, run_and_capture
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

CAUSES = ("none", "late", "host", "pageable", "fp32", "launch", "launch-graph")


@dataclass
class Sizes:
    """Sizes of the model, of a batch and of what is planted."""

    width: int = 1024
    layers: int = 6
    heads: int = 16
    tokens: int = 512
    batch: int = 24
    words: int = 8192
    extra_matrix: int = 8192
    extra_products: int = 5
    pageable_mb: int = 200
    host_ms: float = 10


USUAL = Sizes()
TINY = Sizes(width=128, layers=10, heads=4, tokens=64, batch=8, words=512)


class Block(nn.Module):
    """A layer of the transformer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attention = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Predicts the next token; each layer is a range."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.words, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.width, sizes.words)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for number, block in enumerate(self.blocks):
            with nvtx_range(f"layer{number}"):
                x = block(x)
        return self.head(x)


class Ranks:
    """The ranks of this job, which meet through a store on the host."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", 0))
        self.size = int(os.environ.get("WORLD_SIZE", 1))
        self._meetings = count()
        if self.size > 1:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self._store = dist.TCPStore(address, port, self.size, is_master=self.rank == 0)
            dist.init_process_group("nccl", store=self._store, rank=self.rank, world_size=self.size)

    def meet(self, what: str) -> None:
        """Return when all ranks have called this."""
        meeting = f"{what} {next(self._meetings)}"
        if self.size > 1:
            self._store.set(f"{meeting} of {self.rank}", "here")
            self._store.wait([f"{meeting} of {rank}" for rank in range(self.size)])

    def leave(self) -> None:
        """End the job, rank 0, which holds the store, last."""
        if self.size > 1:
            dist.destroy_process_group()
            self._store.set(f"left {self.rank}", "")
            if self.rank == 0:
                self._store.wait([f"left {rank}" for rank in range(self.size)])


class Training:
    """The model, its data, and the step that run_and_capture repeats."""

    def __init__(self, cause: str, ranks: Ranks, sizes: Sizes) -> None:
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = cause != "fp32"
        self.cause, self.rank, self.sizes = cause, ranks.rank, sizes
        is_tiny = cause.startswith("launch")
        self.autocast = not is_tiny and cause != "fp32"
        self.model: nn.Module = Gpt(sizes).to(DEVICE)
        if ranks.size > 1:
            self.model = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        unfused = {"foreach": False, "capturable": True} if is_tiny else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, **unfused)
        shape = (sizes.batch, sizes.tokens + 1)
        self.batches = [torch.randint(0, sizes.words, shape).pin_memory() for _ in range(4)]
        if cause == "pageable":
            self.features = [torch.rand(sizes.pageable_mb, 250_000) for _ in range(2)]
        if cause == "late":
            side = sizes.extra_matrix
            self.matrix = torch.randn(side, side, device=DEVICE, dtype=torch.bfloat16)

    def load(self, number: int) -> Tensor:
        """Return a batch in pinned memory."""
        with nvtx_range("data loading"):
            if self.cause == "host" and self.rank == 0:
                compute_on_host(self.sizes.host_ms)
            return self.batches[number % len(self.batches)]

    def move(self, number: int, batch: Tensor) -> Tensor:
        """Copy a batch to the GPU."""
        with nvtx_range("data movement"):
            if self.cause == "pageable":
                self.features[number % len(self.features)].to(DEVICE)
            return batch.to(DEVICE, non_blocking=True)

    def train(self, batch: Tensor) -> None:
        """Do the GPU's part of a step. Gradients are left, so that this can be a graph."""
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.autocast):
            with nvtx_range("forward"):
                output = self.model(batch[:, :-1])
                loss = nn.functional.cross_entropy(output.flatten(0, 1).float(), batch[:, 1:].flatten())
            if self.cause == "late" and self.rank == 1:
                with nvtx_range("extra work"):
                    for _ in range(self.sizes.extra_products):
                        self.matrix @ self.matrix
        with nvtx_range("backward"):
            loss.backward()
        with nvtx_range("optimizer"):
            self.optimizer.step()

    def step(self, number: int) -> None:
        """Train with one batch."""
        batch = self.move(number, self.load(number))
        self.train(batch)
        with nvtx_range("zero gradients"):
            self.optimizer.zero_grad()

    def make_graph(self) -> Callable[[int], None]:
        """Return a step that replays a CUDA graph of `train`."""
        batch = self.batches[0].to(DEVICE)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.train(batch)
                self.optimizer.zero_grad()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.train(batch)

        def step(number: int) -> None:
            pinned = self.load(number)
            with nvtx_range("data movement"):
                batch.copy_(pinned, non_blocking=True)
            with nvtx_range("replay"):
                graph.replay()

        return step


def main() -> None:
    """Train with the cause that is named."""
    name, cause = sys.argv[1:]
    if cause not in CAUSES:
        sys.exit(f"no such cause: {cause}; there are {', '.join(CAUSES)}")
    ranks = Ranks()
    training = Training(cause, ranks, TINY if cause.startswith("launch") else USUAL)
    step = training.make_graph() if cause == "launch-graph" else training.step
    run_and_capture(name, ranks.rank, step, ranks.meet)
    ranks.leave()


if __name__ == "__main__":
    main()
