"""Registry of the supported encoder families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine_svc.models import bert
from engine_svc.models.config import RawConfig
from engine_svc.models.encoder import EncoderConfig

_HEADS: Final = ("cls.", "lm_head.")
"""Name prefixes of the weights of masked-LM heads."""


@dataclass(frozen=True, slots=True)
class EncoderFamily:
    """What differs between families. ``model_type`` is the name in transformers.

    ``prefix`` is the prefix of weight names in checkpoints of models with a head.
    """

    model_type: str
    prefix: str
    read_config: Callable[[RawConfig], EncoderConfig]

    def weight_name(self, stored: str) -> str | None:
        """The name of a stored tensor in the encoder; None for the weights of a head."""
        return None if stored.startswith(_HEADS) else stored.removeprefix(self.prefix)


_BERT: Final = EncoderFamily("bert", "bert.", bert.read_bert)
_ROBERTA: Final = EncoderFamily("roberta", "roberta.", bert.read_roberta)
_XLM_ROBERTA: Final = EncoderFamily("xlm-roberta", "roberta.", bert.read_roberta)

ENCODERS: Final = {
    "BertModel": _BERT,
    "BertForMaskedLM": _BERT,
    "RobertaModel": _ROBERTA,
    "RobertaForMaskedLM": _ROBERTA,
    "XLMRobertaModel": _XLM_ROBERTA,
    "XLMRobertaForMaskedLM": _XLM_ROBERTA,
}
"""By name in ``architectures`` of config.json."""


def find_encoder(config: Mapping[str, Any]) -> EncoderFamily | None:
    """The encoder family of a config.json; None if it names no supported encoder."""
    return next((ENCODERS[name] for name in config.get("architectures") or [] if name in ENCODERS), None)
