"""Simulated chains of nodes that exchange only messages, as stages of a pipeline do, with clocks that are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys2prv_ng.clock.alignment_table import Alignment
from nsys2prv_ng.clock.matches import Delays, Matches, make_empty, match_reports

US, MS, PPM = 1e3, 1e6, 1e-6


@dataclass(frozen=True)
class Pipeline:
    """A chain of nodes. Each direction of each link has `messages` messages; times are in ns, shares relative."""

    nodes: int
    messages: int
    seconds: float
    bursts: int
    """Number of iterations; the messages of one are sent within a third of its time. 0: at any time."""
    delay: float = 600 * US
    """Usual delay of a message."""
    asymmetry: float = 0.03
    """Standard deviation of half the difference between both directions, as a share of the delay, for each link."""
    common_asymmetry: float = 0.0
    """Half the difference that all links share, as a share of the delay."""
    jitter: float = 30 * US
    """Scale of what a message takes longer than the shortest."""
    late: tuple[float, float] = (0.0, 0.0)
    """Share of the messages in each direction whose receiver is late."""
    lateness: float = 3 * MS
    """How late such a receiver is on average."""
    offset: float = 50 * MS
    drift: float = 20 * PPM
    seed: int = 0

    @property
    def names(self) -> list[str]:
        return [f"node{i:02}" for i in range(self.nodes)]


@dataclass(frozen=True)
class PipelineRun:
    """What the clocks of a pipeline showed at the time u (ns): u + offset + drift * u."""

    pipeline: Pipeline
    matches: Matches
    offset: np.ndarray
    drift: np.ndarray

    def measure_errors(self, alignment: Alignment) -> np.ndarray:
        """Return the largest error (ns) of each node against its reference at any time of the program."""
        times = np.linspace(0, self.pipeline.seconds * 1e9, 33)
        shown = times + self.offset[:, None] + self.drift[:, None] * times
        corrections = [node.correction for node in alignment.nodes]
        wrong = np.array(
            [t + c.offset + c.drift * (t - c.since) - times for t, c in zip(shown, corrections, strict=True)]
        )
        names = [node.name for node in alignment.nodes]
        reference = [names.index(node.reference or node.name) for node in alignment.nodes]
        return np.abs(wrong - wrong[reference]).max(axis=1)


def run_pipeline(pipeline: Pipeline) -> PipelineRun:
    """Send the messages of a pipeline at random times, and show each time by the clock of its node."""
    random = np.random.default_rng(pipeline.seed)
    nodes, count = pipeline.nodes, pipeline.messages
    shape = nodes - 1, 2, count
    offset = random.uniform(-pipeline.offset, pipeline.offset, nodes)
    drift = random.uniform(-pipeline.drift, pipeline.drift, nodes)
    sent = np.sort(random.uniform(0, 1, shape), axis=2)
    if pipeline.bursts:
        iteration = np.arange(count) * pipeline.bursts // count
        within = np.sort(random.uniform(0, 1 / 3, shape), axis=2)
        sent = np.sort((iteration + within) / pipeline.bursts, axis=2)
    sent = sent * pipeline.seconds * 1e9
    usual = pipeline.delay * np.exp(random.normal(0, 0.1, (nodes - 1, 1, 1)))
    half = usual * (pipeline.common_asymmetry + random.normal(0, pipeline.asymmetry, (nodes - 1, 1, 1)))
    delay = np.maximum(usual + half * np.array([1, -1])[:, None], 0) + random.exponential(pipeline.jitter, shape)
    is_late = random.random(shape) < np.array(pipeline.late)[:, None]
    received = sent + delay + is_late * random.exponential(pipeline.lateness, shape)

    link, back, _ = np.indices(shape)
    sender, receiver = link + back, link + 1 - back
    at_sender, at_receiver = (
        np.rint(time + offset[node] + drift[node] * time).astype(np.int64).ravel()
        for time, node in ((sent, sender), (received, receiver))
    )
    delays = Delays(
        link.ravel().astype(np.int64),
        back.ravel() == 0,
        sender.ravel().astype(np.int32),
        receiver.ravel().astype(np.int32),
        at_sender,
        at_receiver,
    )
    none = match_reports(make_empty())
    matches = Matches(none.first, none.fits, none.group, none.domain, none.enter, none.leave, delays)
    return PipelineRun(pipeline, matches, offset, drift)


def random_pipeline(seed: int) -> Pipeline:
    """Return a chain of 2 to 64 nodes, with 8 to 500 messages a direction, of which up to 95 % come late.

    Links measured so far take 0.3 to 7.5 % longer in one direction than on average. Here they take 3 % (standard
    deviation), and in half of the chains all of them take as much again longer in the same direction.
    """
    random = np.random.default_rng([seed, 11])

    def draw(low: float, high: float) -> float:
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    messages = int(draw(8, 500))
    return Pipeline(
        nodes=int(draw(2, 65)),
        messages=messages,
        seconds=draw(0.2, 60),
        bursts=int(random.integers(0, 2)) * int(random.integers(2, messages)),
        delay=draw(50 * US, 1 * MS),
        common_asymmetry=float(random.integers(0, 2) * random.normal(0, 0.03)),
        jitter=draw(2 * US, 60 * US),
        late=(float(random.uniform(0, 0.95)), float(random.uniform(0, 0.95))),
        lateness=float(random.uniform(1, 7)) * MS,
        drift=draw(0.5, 20) * PPM,
        seed=seed,
    )
