"""Numbers on the links between GPUs, ranks and nodes, and on the stages of a pipeline.

Times are ns, sizes bytes, rates bytes/s, all integers. Only messages (sends and receives) are attributed to pairs:
reports do not record which ranks exchange the data of a collective.
"""

from __future__ import annotations

from dataclasses import field

from nsys2prv_ng.value_class import ValueClass

NCCL, MPI = "NCCL", "MPI"


class LinkEnd(ValueClass, kw_only=True):
    """What sends or receives: a GPU for NCCL, a rank for MPI."""

    node: str
    gpu: int | None
    """Number of the GPU on its node; None for MPI."""
    rank: int | None
    task: str


class MessageRate(ValueClass, kw_only=True):
    """Messages of one size whose transfer time is known, over all pairs."""

    library: str
    between_nodes: bool
    bytes: int
    """Size of each message."""
    together: int
    """The number of messages that their kernel or call carries."""
    pairs: int
    count: int
    ns: int
    """The sum of their transfer times."""
    algorithm_bytes_per_s: int


class SlowLink(ValueClass, kw_only=True):
    """A pair with a far lower rate than its peers: the other pairs with messages of the same size."""

    library: str
    are_nodes: bool
    """Whether `sender` and `receiver` are indices into `LinkNumbers.nodes`, and not into `ends`."""
    sender: int
    receiver: int
    bytes: int
    count: int
    bytes_per_s: int
    """Size divided by the median transfer time."""
    peers: int
    peers_low_bytes_per_s: int
    """The lowest and the highest rate of the peers, by their medians."""
    peers_high_bytes_per_s: int


class LinkNumbers(ValueClass, kw_only=True):
    """Messages by size, and slow pairs."""

    ends: list[LinkEnd]
    nodes: list[str]
    sizes: list[MessageRate]
    """By size, most bytes first."""
    messages: int
    """Messages with a known sender and receiver."""
    rated: int
    """Messages whose transfer time is known."""
    slow: list[SlowLink] = field(default_factory=list)


class PipelineStage(ValueClass, kw_only=True):
    """A stage: time of all its GPUs in all steps, as parts that add up to the steps times the GPUs.

    The bubble is `receive_wait_ns` + `idle_ns`: the neighbour had not sent yet.
    """

    ends: list[LinkEnd]
    """The GPUs of the stage, one for each parallel pipeline."""
    compute_ns: int
    receive_wait_ns: int
    """Waits in NCCL kernels for a message of a neighbour, while the GPU computes nothing and moves no data."""
    idle_ns: int
    """The GPU was idle right before such a wait: an earlier launch would only have waited longer."""
    send_wait_ns: int
    """Waits in NCCL kernels until a neighbour receives. Preset pipeline_bubble shows these waits too."""
    collective_wait_ns: int
    """Waits in collectives for a rank of another stage."""
    transfer_ns: int
    """NCCL kernels move data and nothing computes."""
    other_ns: int
    """The rest: idle, copies, other waits, and communication that is not split."""
    unclaimed: int
    """Messages of the stage whose wait is within the clock error, or unknown. Their waits are no part of the bubble."""
    unclaimed_ns: int
    """How long all these waits may be at most."""
    bubble_by_step: list[int] = field(default_factory=list)
    """The bubble in each step, of all GPUs of the stage; as long as `PipelineNumbers.steps`."""

    @property
    def bubble_ns(self) -> int:
        """Time without work, because the neighbour had not sent yet."""
        return self.receive_wait_ns + self.idle_ns


class PipelineNumbers(ValueClass, kw_only=True):
    """Stages that pass micro-batches to each other in NCCL messages, from the first stage to the last."""

    stages: list[PipelineStage]
    pipelines: int
    """The number of parallel chains of GPUs with the same number of stages."""
    micro_batches: int | None
    """Messages from each stage to the next in a step; None if this number differs between steps, sizes or pairs."""
    backward: bool
    """Whether messages go back too, as in training."""
    pace: int | None
    """The stage that sets the pace: it waits less for other stages than any other stage. None if stages are even."""
    lead_ns: int
    """How much longer this stage works in a step than any other, on average; 0 without one."""
    clock_error_ns: int
    """How far the clocks of two neighbours may differ; shorter waits between them are not claimed."""
    steps: list[int]
    """Numbers of the steps."""
    step_ns: list[int]
    """Their lengths."""

    @property
    def ideal_share(self) -> float | None:
        """Bubble of even stages, one after the other and without transfer, as a share of the step.

        It is (stages - 1) / (micro-batches + stages - 1); None without a number of micro-batches.
        """
        stages = len(self.stages)
        return None if self.micro_batches is None else (stages - 1) / (self.micro_batches + stages - 1)

    def measure_whole(self, stage: PipelineStage) -> int:
        """Return the time (ns) of all GPUs of a stage in all steps."""
        return len(stage.ends) * sum(self.step_ns)
