"""An engine that serves a language model with continuous batching: at most 8 requests run, at most 3 begin at a time.

a: the layers of a decode are launched one by one.
b: decodes are captured in CUDA graphs, one for each number of requests, and replayed.
One step is one iteration, in a range like `[Executor] _forward_step 12: 3 ctx reqs, 5 gen reqs`; it prefills the
prompts of new (ctx) requests, or decodes a token for each running (gen) one, or both.
"""

import random
import sys
from collections import deque
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
replay = sys.argv[1] == "b" and dev == "cuda"
layers, width, heads, words, limit, slots, most_new = 10, 2048, 16, 8000, 256, 8, 3
random.seed(0)
torch.manual_seed(0)
torch.set_grad_enabled(False)


@dataclass
class Request:
    prompt: list
    wanted: int
    slot: int = -1
    tokens: list = field(default_factory=list)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.grow, self.shrink = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.cache = [torch.zeros(slots, limit, heads, width // heads, device=dev) for _ in "kv"]

    def forward(self, x, slot, place, mask):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, heads, -1)).unbind(2)
        for cache, new in zip(self.cache, (k, v)):
            cache[slot[:, None], place] = new
        if mask is not None:
            k, v = (cache[slot] for cache in self.cache)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.shrink(F.silu(self.grow(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(words, width), nn.Embedding(limit, width)
        self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, place, slot, last, mask=None):
        """Return the next token of each row: `last` is where its last token is."""
        x = self.embed(tokens) + self.places(place)
        for layer in self.layers:
            x = layer(x, slot, place, mask)
        return self.head(self.norm(x[torch.arange(len(x), device=dev), last])).argmax(1)


class Executor:
    def __init__(self):
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(dev):
            self.model = Model().eval()
            self.inputs = torch.zeros(3, slots, dtype=torch.long)
            self.range = torch.arange(limit)
            self.masks = torch.full((limit, limit), -torch.inf).triu(1)
        self.waiting, self.running, self.free, self.graphs = deque(), [], list(range(slots)), {}
        for n in range(1, slots + 1):
            self.decode(n)
            if replay:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    output = self.decode(n)
                self.graphs[n] = graph, output

    def decode(self, n):
        """Decode the first n columns of the inputs: tokens, their places, and the slots of their requests."""
        tokens, place, slot = self.inputs[:, :n]
        mask = self.masks[place][:, None, None]
        return self.model(tokens[:, None], place[:, None], slot, torch.zeros_like(slot), mask)

    def prefill(self, new):
        longest = max(len(r.prompt) for r in new)
        tokens = torch.tensor([r.prompt + [0] * (longest - len(r.prompt)) for r in new]).to(dev)
        slot, last = torch.tensor([(r.slot, len(r.prompt) - 1) for r in new]).to(dev).T
        return self.model(tokens, self.range[:longest].expand(len(new), -1), slot, last)

    def forward_step(self, i):
        if i % 12 == 0 or not (self.waiting or self.running):
            sizes = [(random.randint(32, 160), random.randint(5, 14)) for _ in range(random.randint(2, 7))]
            self.waiting += [Request([random.randrange(words) for _ in range(size)], wanted) for size, wanted in sizes]
        new = [self.waiting.popleft() for _ in range(min(most_new, len(self.free), len(self.waiting)))]
        for request in new:
            request.slot = self.free.pop()
        old = list(self.running)
        with nvtx.range(f"[Executor] _forward_step {i}: {len(new)} ctx reqs, {len(old)} gen reqs"):
            outputs = [self.prefill(new)] if new else []
            if old:
                rows = [(r.tokens[-1], len(r.prompt) + len(r.tokens) - 1, r.slot) for r in old]
                self.inputs[:, : len(old)] = torch.tensor(rows).T
                if replay:
                    graph, output = self.graphs[len(old)]
                    graph.replay()
                else:
                    output = self.decode(len(old))
                outputs.append(output)
            tokens = torch.cat(outputs).tolist()
        for request, token in zip(new + old, tokens):
            request.tokens.append(token)
        self.running = [r for r in old + new if len(r.tokens) < r.wanted]
        self.free += [r.slot for r in old + new if len(r.tokens) == r.wanted]


executor = Executor()
run(executor.forward_step, 12, 96, 36)
