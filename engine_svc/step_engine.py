"""The interface of an engine that the step loop runs, and the containment of faults in its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

import structlog

from engine_svc.metrics import EngineMetrics
from engine_svc.output import Loads
from engine_svc.runners.interface import DeviceLost
from svclib.errors import ServiceError

MAX_STEP_FAULTS: Final = 5
"""After this many failed steps in a row the device counts as lost."""

ResultT = TypeVar("ResultT")

log = structlog.get_logger(__name__)


class EngineRequest(Protocol):
    """What the step loop needs of a request."""

    @property
    def num_seqs(self) -> int:
        """The number of sequences, for loads and group ids."""

    @property
    def num_slots(self) -> int:
        """The number of slots it takes until it ends."""


class EngineOutput(Protocol):
    """What the step loop needs of an output."""

    @property
    def group_id(self) -> int:
        """The group id of its request."""

    @property
    def is_last(self) -> bool:
        """Whether it is the last output of its request."""


RequestT_contra = TypeVar("RequestT_contra", bound=EngineRequest, contravariant=True)
OutputT = TypeVar("OutputT", bound=EngineOutput)


class StepEngine(Protocol[RequestT_contra, OutputT]):
    """Called by the step loop's thread alone, except ``loads`` and ``failed``.

    Every method may be called in any state of the request that it names, or after its end.
    """

    @property
    def loads(self) -> Loads:
        """The load of the last step; from any thread."""

    def add(self, group_id: int, request: RequestT_contra) -> None:
        """Add a request; it owns the ``num_seqs`` sequence ids from ``group_id`` on."""

    def abort(self, group_id: int) -> None:
        """End a request without an output."""

    def step(self) -> bool:
        """Compute one step. False if nothing was due. Raises ``DeviceLost`` when no further step is possible."""

    def take_outputs(self) -> list[OutputT]:
        """All outputs since the last call."""

    def seconds_until_due(self) -> float | None:
        """Time until something is due, after a step that found nothing; None: not before a new request."""

    def failed(self, group_id: int, error: ServiceError) -> OutputT:
        """The last output of a request that ends with an error. Changes nothing; from any thread."""


class StepFaults:
    """Contains the fault of a step in that step, unless too many fail in a row. Logs each as ``event``."""

    def __init__(self, metrics: EngineMetrics, event: str) -> None:
        self._metrics = metrics
        self._event = event
        self._in_a_row = 0

    def guard(
        self, compute: Callable[[], list[ResultT]], count: int, request_ids: Iterable[str]
    ) -> list[ResultT | Exception]:
        """What ``compute`` returns, or ``count`` times the same exception if it raises.

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
