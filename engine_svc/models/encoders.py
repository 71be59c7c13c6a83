"""Which families of encoders there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine_svc.models import bert
from engine_svc.models.config import RawConfig
from engine_svc.models.encoder import EncoderConfig

_HEADS: Final = ("cls.", "lm_head.")
"""How the names of weights begin that only guess masked words."""


@dataclass(frozen=True, slots=True)
class EncoderFamily:
    """What differs between families; ``model_type`` is transformers' name for it.

    ``prefix`` begins the names of weights where something stands on top of the encoder.
    """

    model_type: str
    prefix: str
    read_config: Callable[[RawConfig], EncoderConfig]

    def name(self, stored: str) -> str | None:
        """The encoder's name for a stored tensor; None for one that is not the encoder's."""
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
"""By the name in ``architectures`` of config.json."""


def find_encoder(config: Mapping[str, Any]) -> EncoderFamily | None:
    """None if it is no encoder that is known here."""
    return next((ENCODERS[name] for name in config.get("architectures") or [] if name in ENCODERS), None)
