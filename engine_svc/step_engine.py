"""What the step loop runs: an engine that is stepped by one thread, and where the faults of its steps stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

import structlog

from engine_svc.metrics import EngineMetrics
from engine_svc.output import Loads
from engine_svc.runners.interface import DeviceLost
from svclib.errors import ServiceError

MAX_STEP_FAULTS: Final = 5
"""So many steps in a row that failed as a whole mean that the device is lost."""

ResultT = TypeVar("ResultT")

log = structlog.get_logger(__name__)


class EngineRequest(Protocol):
    """What the loop must know of a request."""

    @property
    def num_seqs(self) -> int:
        """How many sequences it counts as, in the loads and in the numbering of groups."""

    @property
    def num_slots(self) -> int:
        """How many slots of the engine it takes until it ends."""


class EngineOutput(Protocol):
    """What the loop must know of an output."""

    @property
    def group_id(self) -> int:
        """The request that it belongs to."""

    @property
    def is_last(self) -> bool:
        """Whether the request has ended with it."""


RequestT_contra = TypeVar("RequestT_contra", bound=EngineRequest, contravariant=True)
OutputT = TypeVar("OutputT", bound=EngineOutput)


class StepEngine(Protocol[RequestT_contra, OutputT]):
    """Owned and called by the step loop's thread alone, but for ``loads`` and ``failed``.

    Every method may be called in any state of the request that it names, or after its end.
    """

    @property
    def loads(self) -> Loads:
        """The load of the last step; from any thread."""

    def add(self, group_id: int, request: RequestT_contra) -> None:
        """Take a request; it owns the ``num_seqs`` numbers from ``group_id`` on."""

    def abort(self, group_id: int) -> None:
        """End a request without an output."""

    def step(self) -> bool:
        """Compute one step. False if nothing was due. Raises ``DeviceLost`` when there will never be another."""

    def take_outputs(self) -> list[OutputT]:
        """All outputs since the last call."""

    def seconds_until_due(self) -> float | None:
        """When a step that found nothing due is worth another try; None: not before a request comes."""

    def failed(self, group_id: int, error: ServiceError) -> OutputT:
        """The last output of a request that ends with an error. Changes nothing; from any thread."""


class StepFaults:
    """Keeps the fault of a step in that step, until too many come in a row. Logs each as ``event``."""

    def __init__(self, metrics: EngineMetrics, event: str) -> None:
        self._metrics = metrics
        self._event = event
        self._in_a_row = 0

    def guard(
        self, compute: Callable[[], list[ResultT]], count: int, request_ids: Iterable[str]
    ) -> list[ResultT | Exception]:
        """What ``compute`` returns, or ``count`` times the same exception when the step fails as a whole.

        Raises ``DeviceLost``.
        """
        try:
            results = compute()
        except DeviceLost:
            raise
        except Exception as error:
            self._note(error, request_ids)
            return [error] * count
        self._in_a_row = 0
        return [*results]

    def _note(self, error: Exception, request_ids: Iterable[str]) -> None:
        self._metrics.count_step_fault()
        self._in_a_row += 1
        log.error(self._event, request_ids=sorted(set(request_ids)), faults_in_a_row=self._in_a_row, exc_info=error)
        if self._in_a_row >= MAX_STEP_FAULTS:
            raise DeviceLost(f"{self._in_a_row} steps in a row failed") from error
