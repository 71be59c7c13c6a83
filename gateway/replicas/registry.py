"""The served models, by name."""

from __future__ import annotations

from gateway.generation.services import ServedModel
from gateway.replicas.deployment import Deployment
from svclib.errors import ModelNotFound


class Registry:
    """The deployment of each model, by each of its names. The first name is the main one."""

    def __init__(self, deployments: dict[str, Deployment]) -> None:
        self._deployments = deployments

    @property
    def names(self) -> list[str]:
        return list(self._deployments)

    def deployment(self, name: str, *, param: str | None = "model") -> Deployment:
        """Raises ``ModelNotFound`` unless a model is served under this name."""
        found = self._deployments.get(name)
        if found is None:
            served = ", ".join(repr(known) for known in self.names[:1])
            raise ModelNotFound(f"the model {name[:100]!r} does not exist; served: {served}", param=param)
        return found

    def find(self, name: str) -> ServedModel:
        """The model and its replicas, for a new request. Raises ``ModelNotFound`` or ``Unavailable``."""
        return self.deployment(name).find()
