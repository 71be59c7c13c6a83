from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine_svc.attention.interface import PagedBatch
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.executors.transformers.attention import PAGED
from engine_svc.executors.transformers.model import TransformersModel
from engine_svc.executors.transformers.survey import SURVEY, survey_attention
from tests.engine_svc import foreign, tiny


@pytest.fixture(scope="module")
def model() -> TransformersModel:
    config = foreign.FAMILIES["granite"]
    theirs = tiny.random_model(config)
    theirs.set_attn_implementation(SURVEY)
    attention = survey_attention(theirs, config, 128)
    theirs.set_attn_implementation(PAGED)
    return TransformersModel(theirs, attention)


@torch.inference_mode()
def logits(model: TransformersModel, rows: list[int]) -> Tensor:
    """The logits of these rows of eight tokens."""
    positions = torch.arange(8)
    batch = PagedBatch(
        slot_mapping=positions,
        query_starts=torch.tensor([0, 8], dtype=torch.int32),
        context_lens=torch.tensor([8], dtype=torch.int32),
        block_tables=torch.tensor([[0]], dtype=torch.int32),
    )
    step = ReferenceAttention(model.attention_config, num_blocks=1, block_size=8).begin(batch)
    return model(positions * 5, positions, step, torch.tensor(rows, dtype=torch.int64))


@pytest.mark.parametrize("rows", [[7], [6, 1], [0, 1, 2, 3, 4, 5, 6, 7], []])
def test_logits_are_those_of_the_rows_in_their_order(model: TransformersModel, rows: list[int]) -> None:
    found = logits(model, rows)

    assert found.shape == (len(rows), 97)
    torch.testing.assert_close(found, logits(model, list(range(8)))[rows], rtol=0, atol=1e-5)


class Wholesale(nn.Module):
    """A model without ``logits_to_keep``."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.dtype = model.dtype

    def forward(self, input_ids: Tensor, position_ids: Tensor, use_cache: bool) -> Any:
        return self.model(input_ids=input_ids, position_ids=position_ids, use_cache=use_cache)


def test_a_model_that_cannot_leave_out_logits(model: TransformersModel) -> None:
    wholesale: Any = Wholesale(model.model)

    found = logits(TransformersModel(wholesale, model.attention_config), [6, 1])

    torch.testing.assert_close(found, logits(model, [6, 1]), rtol=0, atol=1e-5)
