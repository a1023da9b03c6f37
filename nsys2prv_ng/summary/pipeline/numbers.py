"""Numbers on a pipeline of stages: how long each stage waits for its neighbours in a step. Times are ns, integers."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsys2prv_ng.summary.links.numbers import LinkEnd
from nsys2prv_ng.value_class import ValueClass


@dataclass(eq=False, repr=False, kw_only=True)
class PipelineStage(ValueClass):
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


@dataclass(eq=False, repr=False, kw_only=True)
class PipelineNumbers(ValueClass):
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
