from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from modelfiles.tokenizer import load_tokenizer
from protos import simulated
from svclib.errors import TABLE, Overloaded, Unsupported
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.conversation import Conversation, Message
from tokenizer_svc.metrics import TokenizerMetrics
from tokenizer_svc.prompt_tokenizer import PromptTokenizer

TOKENIZER = PromptTokenizer(load_tokenizer(simulated.MODEL_NAME), compiled)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_prompts(registry: CollectorRegistry) -> None:
    metrics = TokenizerMetrics(registry)
    prompt = TOKENIZER.render(Conversation((Message("user", "hi"),)))
    metrics.observe(prompt)
    assert registry.get_sample_value("pellucid_tokenizer_prompt_tokens_total") == len(prompt.token_ids)
    for name in ("render", "encode"):
        assert registry.get_sample_value(f"pellucid_tokenizer_{name}_seconds_count") == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Unsupported("x", param="tools"), "unsupported"), (Overloaded("x"), "overloaded"), (KeyError("x"), "internal")],
)
def test_rejections_by_a_bounded_set_of_reasons(registry: CollectorRegistry, error: Exception, reason: str) -> None:
    metrics = TokenizerMetrics(registry)
    with pytest.raises(type(error)), metrics.counting_rejections():
        raise error
    assert registry.get_sample_value("pellucid_tokenizer_rejected_total", {"reason": reason}) == 1
    assert reason in {row.name for row in TABLE.values()}


def test_successful_calls_are_not_rejections(registry: CollectorRegistry) -> None:
    with TokenizerMetrics(registry).counting_rejections():
        pass
    assert not [s for m in registry.collect() for s in m.samples if s.name == "pellucid_tokenizer_rejected_total"]


def test_jobs_and_template(registry: CollectorRegistry) -> None:
    metrics = TokenizerMetrics(registry)
    metrics.watch_jobs(lambda: 3)
    metrics.describe(TOKENIZER)
    assert registry.get_sample_value("pellucid_tokenizer_jobs") == 3
    (info,) = [s for m in registry.collect() for s in m.samples if s.name == "pellucid_tokenizer_template_info"]
    assert info.labels["version"] == TOKENIZER.template_version
    assert (info.labels["tools"], info.labels["developer_role"]) == ("true", "false")
