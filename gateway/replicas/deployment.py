"""The replicas of one model, in groups that agree.

Replicas agree if their descriptions are equal: weights, dtype, vocabulary, template, formats. A request stays within
one group, so that a token id means the same to all its replicas. One group is the normal case; further groups, and
replicas that belong to none, are reported in ``warnings``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Generic, TypeAlias

from gateway.generation.model import Model
from gateway.generation.services import ServedModel
from gateway.replicas.balancer import Balancer
from gateway.replicas.clients.detokenizer import DetokenizerClient
from gateway.replicas.clients.engine import SessionEngine
from gateway.replicas.clients.tokenizer import TokenizerClient
from gateway.replicas.describe import ParserChoice, build_model
from gateway.replicas.info import DetokenizerInfo, EngineInfo, TokenizerInfo
from gateway.replicas.replica import Chosen, ClientT, InfoT
from svclib.errors import Unavailable

Tokenizers: TypeAlias = Balancer[TokenizerClient, TokenizerInfo]
Engines: TypeAlias = Balancer[SessionEngine, EngineInfo]
Detokenizers: TypeAlias = Balancer[DetokenizerClient, DetokenizerInfo]


@dataclass(frozen=True, slots=True)
class MatchingReplicas(Generic[ClientT, InfoT]):
    """The replicas of one service with the description ``info``."""

    balancer: Balancer[ClientT, InfoT]
    info: InfoT

    def choose(self, *, choices: int = 1, avoid: Set[str] = frozenset()) -> Chosen[ClientT, InfoT]:
        """See ``Balancer.choose``."""
        return self.balancer.choose(choices=choices, avoid=avoid, like=self.info)

    @property
    def in_flight(self) -> float:
        """Average number of choices in flight on a replica."""
        return self.balancer.in_flight(self.info)

    @property
    def addresses(self) -> list[str]:
        return self.balancer.infos.get(self.info, [])


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Replicas of all three services that agree on a model."""

    model: Model
    tokenizers: MatchingReplicas[TokenizerClient, TokenizerInfo]
    engines: MatchingReplicas[SessionEngine, EngineInfo]
    detokenizers: MatchingReplicas[DetokenizerClient, DetokenizerInfo]

    @property
    def served(self) -> ServedModel:
        return ServedModel(self.model, self.tokenizers, self.engines, self.detokenizers)


class Deployment:
    """All replicas that serve one model."""

    def __init__(
        self, tokenizers: Tokenizers, engines: Engines, detokenizers: Detokenizers, parsers: ParserChoice
    ) -> None:
        self.tokenizers = tokenizers
        self.engines = engines
        self.detokenizers = detokenizers
        self._parsers = parsers
        self._groups: list[ReplicaGroup] | None = None

    @property
    def groups(self) -> list[ReplicaGroup]:
        """The most common engines first. Raises ``Unavailable`` naming what is not ready, or why no replicas agree."""
        if self._groups is None:
            self._groups = self._find_groups()
        return self._groups

    @property
    def max_context_length(self) -> int | None:
        """None until an engine has described itself."""
        return next((info.max_context_length for info in self.engines.infos), None)

    def refresh(self) -> None:
        """Called when a replica has changed."""
        self._groups = None

    def find(self) -> ServedModel:
        """The group for a new request: the one whose engines have the fewest choices in flight."""
        groups = self.groups
        return (groups[0] if len(groups) == 1 else min(groups, key=lambda group: group.engines.in_flight)).served

    def warnings(self) -> tuple[str, ...]:
        """Warnings for operators, as sentences. Raises ``Unavailable``."""
        of_models = (warning for group in self.groups for warning in group.model.warnings)
        return tuple(dict.fromkeys((*of_models, *self._disagreements())))

    def _find_groups(self) -> list[ReplicaGroup]:
        """A group for each engine description, with the tokenizers and detokenizers that fit it best."""
        every = (self.tokenizers, self.engines, self.detokenizers)
        if absent := [balancer.name for balancer in every if not balancer.infos]:
            raise Unavailable(f"not ready: {', '.join(absent)}", retry_after=1.0)
        groups: list[ReplicaGroup] = []
        errors: list[Unavailable] = []
        for engine in self.engines.infos:
            try:
                groups.append(self._group_of(engine))
            except Unavailable as error:
                errors.append(error)
        if not groups:
            raise errors[0]
        return groups

    def _group_of(self, engine: EngineInfo) -> ReplicaGroup:
        """Raises ``Unavailable`` when no tokenizer and detokenizer fit."""
        errors: list[Unavailable] = []
        for tokenizer in _largest_first(self.tokenizers.infos):
            for detokenizer in self.detokenizers.infos:
                try:
                    model = build_model(tokenizer, engine, detokenizer, self._parsers)
                except Unavailable as error:
                    errors.append(error)
                    continue
                return ReplicaGroup(
                    model,
                    MatchingReplicas(self.tokenizers, tokenizer),
                    MatchingReplicas(self.engines, engine),
                    MatchingReplicas(self.detokenizers, detokenizer),
                )
        raise errors[0]

    def _disagreements(self) -> Iterator[str]:
        if len(self.groups) > 1:
            kinds = "; ".join(
                f"{', '.join(group.engines.addresses)} {group.engines.info.model_path} {group.engines.info.dtype}"
                for group in self.groups
            )
            yield f"engine replicas do not agree; each request stays within one group: {kinds}"
        yield from self._unused("tokenizer", self.tokenizers, {group.tokenizers.info for group in self.groups})
        yield from self._unused("engine", self.engines, {group.engines.info for group in self.groups})
        yield from self._unused("detokenizer", self.detokenizers, {group.detokenizers.info for group in self.groups})

    @staticmethod
    def _unused(name: str, balancer: Balancer[ClientT, InfoT], used: Set[InfoT]) -> Iterator[str]:
        for info, addresses in balancer.infos.items():
            if info not in used:
                yield f"not used, because it does not agree with the other services: {name} {', '.join(addresses)}"


def _largest_first(tokenizers: Iterable[TokenizerInfo]) -> list[TokenizerInfo]:
    """The engine's vocabulary is its tokenizer's or slightly larger, so the largest that fits is the right one."""
    return sorted(tokenizers, key=lambda info: -info.vocab_size)
