"""Fields of this and other servers' APIs that are known and not supported: asking for what they do is an error.

Each stands with the one value that asks for nothing, which is accepted as if the field were absent; null always is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from svclib.errors import Unsupported

ASKS_FOR_NOTHING: Final[Mapping[str, Any]] = {
    # OpenAI
    "audio": None,
    "function_call": None,
    "functions": None,
    "modalities": ["text"],
    "moderation": None,
    "prediction": None,
    "reasoning_effort": None,
    "store": False,
    "verbosity": None,
    "web_search_options": None,
    # Thinking, in the dialects of several servers
    "enable_thinking": None,
    "include_reasoning": True,
    "preserve_thinking": None,
    "reasoning": None,
    "separate_reasoning": True,
    "thinking": None,
    "thinking_budget": None,
    "thinking_token_budget": None,
    # Constrained output
    "ebnf": None,
    "grammar": None,
    "guided_choice": None,
    "guided_decoding_backend": None,
    "guided_grammar": None,
    "guided_json": None,
    "guided_regex": None,
    "guided_whitespace_pattern": None,
    "json_schema": None,
    "regex": None,
    "structural_tag": None,
    "structured_outputs": None,
    # Prompt
    "add_special_tokens": False,
    "cache_salt": None,
    "chat_template": None,
    "documents": None,
    "echo": False,
    "lora_path": None,
    "media_io_kwargs": None,
    "mm_processor_kwargs": None,
    "prompt": None,
    "suffix": None,
    "truncate_prompt_tokens": None,
    # Sampling
    "allowed_token_ids": None,
    "bad_words": [],
    "best_of": 1,
    "length_penalty": 1.0,
    "logits_processors": None,
    "mirostat": 0,
    "priority": 0,
    "typical_p": 1.0,
    "use_beam_search": False,
    "vllm_xargs": None,
    # Shape of the answer
    "include_stop_str_in_output": False,
    "kv_transfer_params": None,
    "no_stop_trim": False,
    "prompt_logprobs": None,
    "return_hidden_states": False,
    "return_token_ids": False,
    "return_tokens_as_token_ids": False,
    "spaces_between_special_tokens": True,
}


def refuse_unsupported(fields: Mapping[str, Any]) -> None:
    """Raises ``Unsupported`` for the first field that asks for something which is not done here."""
    for name, value in fields.items():
        if value is not None and name in ASKS_FOR_NOTHING and not _equal(value, ASKS_FOR_NOTHING[name]):
            raise Unsupported(f"{name} is not supported{_hint(name)}", param=name)


def is_known(name: str) -> bool:
    return name in ASKS_FOR_NOTHING


def _equal(value: Any, neutral: Any) -> bool:
    """Equal, and not a truth value that Python takes for a number."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)


def _hint(name: str) -> str:
    neutral = ASKS_FOR_NOTHING[name]
    return "" if neutral is None else f" other than as {neutral!r}".replace("True", "true").replace("False", "false")
