"""Known fields of this and other servers' APIs that are not supported.

Using one is an error. Each is listed with the one value that has no effect and is accepted; null is always accepted.
Fields without an effect on the output are accepted with any value.
Sources: the OpenAPI document of OpenAI; the request models of vLLM and SGLang; the READMEs of llama.cpp's server, TGI
and Ollama; the API references of OpenRouter, Together, Fireworks, Groq, Mistral, DashScope and DeepSeek. Fields about
thinking are in ``thinking.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from svclib.errors import Unsupported

UNSUPPORTED: Final[Mapping[str, Any]] = {
    # OpenAI
    "audio": None,
    "background": False,
    "conversation": None,
    "function_call": None,
    "functions": None,
    "include": [],
    "input": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "modalities": ["text"],
    "moderation": None,
    "prediction": None,
    "previous_response_id": None,
    "store": False,
    "text": None,
    "truncation": "disabled",
    "verbosity": "medium",
    "web_search_options": None,
    # Thinking, other than a switch
    "prompt_mode": None,
    "reasoning_control": None,
    "reasoning_history": None,
    # Constrained output
    "ebnf": None,
    "format": None,
    "grammar": None,
    "guided_choice": None,
    "guided_decoding_backend": None,
    "guided_grammar": None,
    "guided_json": None,
    "guided_regex": None,
    "guided_whitespace_pattern": None,
    "json_schema": None,
    "output_config": None,
    "output_format": None,
    "parse_tool_calls": True,
    "regex": None,
    "response_schema": None,
    "structural_tag": None,
    "structured_outputs": None,
    "tool_prompt": None,
    # Prompt
    "adapter_id": None,
    "adapter_name": None,
    "add_special_tokens": False,
    "cache_salt": None,
    "chat_template": None,
    "citation_options": None,
    "context": None,
    "context_length_exceeded_behavior": "error",
    "data_sources": None,
    "documents": None,
    "echo": False,
    "enable_search": False,
    "extra_body": {},
    "guideline": None,
    "images": None,
    "images_config": None,
    "input_ids": None,
    "inputs": None,
    "lora": [],
    "lora_path": None,
    "max_dynamic_patch": None,
    "media_io_kwargs": None,
    "min_dynamic_patch": None,
    "mm_processor_kwargs": None,
    "multimodal_data": None,
    "num_ctx": None,
    "nvext": None,
    "options": {},
    "plugins": [],
    "prompt": None,
    "prompt_token_ids": None,
    "prompt_truncate_len": None,
    "prompt_truncate_length": None,
    "raw": False,
    "safe_prompt": False,
    "safety_model": None,
    "search_options": None,
    "search_parameters": None,
    "search_settings": None,
    "suffix": None,
    "system": None,
    "task": None,
    "template": None,
    "transforms": [],
    "truncate": None,
    "truncate_prompt_tokens": None,
    "truncation_side": None,
    "use_audio_in_video": False,
    # Sampling
    "adaptive_target": -1,
    "allowed_token_ids": None,
    "bad_words": [],
    "best_of": 1,
    "custom_logit_processor": None,
    "custom_params": None,
    "do_sample": True,
    "dry_multiplier": 0,
    "dynatemp_range": 0,
    "early_stopping": False,
    "length_penalty": 1.0,
    "logits_processors": None,
    "max_new_tokens": None,
    "min_keep": 0,
    "min_new_tokens": None,
    "mirostat": 0,
    "mirostat_target": None,
    "n_cmpl": 1,
    "n_indent": 0,
    "n_keep": 0,
    "n_predict": -1,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_predict": -1,
    "priority": 0,
    "random_seed": None,
    "repeat_last_n": -1,
    "repeat_penalty": 1.0,
    "repetition_detection": None,
    "samplers": None,
    "session_params": None,
    "stop_regex": None,
    "stop_sequences": [],
    "t_max_predict_ms": 0,
    "tfs": 1.0,
    "tfs_z": 1.0,
    "top_a": 0,
    "top_n_sigma": -1,
    "typical": 1.0,
    "typical_p": 1.0,
    "use_beam_search": False,
    "vllm_xargs": None,
    "xtc_probability": 0,
    # Shape of the answer
    "bootstrap_host": None,
    "bootstrap_port": None,
    "bootstrap_room": None,
    "decoder_input_details": False,
    "deferred": False,
    "details": False,
    "ec_transfer_params": None,
    "include_stop_str_in_output": False,
    "incremental_output": True,
    "kv_transfer_params": None,
    "logprob_token_ids": None,
    "n_probs": 0,
    "no_stop_trim": False,
    "perf_metrics_in_response": False,
    "post_sampling_probs": False,
    "prompt_logprobs": None,
    "raw_output": False,
    "response_fields": [],
    "result_format": "message",
    "return_cached_tokens_details": False,
    "return_full_text": False,
    "return_hidden_states": False,
    "return_meta_info": False,
    "return_progress": False,
    "return_prompt_text": False,
    "return_prompt_token_ids": False,
    "return_routed_experts": False,
    "return_token_ids": False,
    "return_token_offsets": False,
    "return_tokens": False,
    "return_tokens_as_token_ids": False,
    "routed_experts_prompt_start": 0,
    "routed_experts_start_len": 0,
    "sampling_mask": None,
    "spaces_between_special_tokens": True,
    "timings_per_token": False,
    "top_n_tokens": 0,
    "usage": {"include": False},
    "verbose": False,
    "watermark": False,
    "watermarking": False,
}

NO_EFFECT_ON_OUTPUT: Final = frozenset(
    {
        # Names, caches and routes
        "cache_control", "cache_prompt", "data_parallel_rank", "disagg_prefill_dp_rank", "extra_key", "id_slot",
        "keep_alive", "models", "n_cache_reuse", "ngram_corpus_id", "prompt_cache_isolation_key",
        "prompt_cache_max_len", "prompt_cache_options", "provider", "request_id", "rid", "route", "routed_dp_rank",
        "session_id", "trace", "ttl", "user_id",
        # Speed, and the size of chunks
        "draft_model", "return_mm_kwargs", "speculation", "stream_interval", "tool_stream",
        # Parameters of methods that are refused above, without an effect on their own
        "adaptive_decay", "dry_allowed_length", "dry_base", "dry_penalty_last_n", "dry_sequence_breakers",
        "dynatemp_exponent", "mirostat_eta", "mirostat_lr", "mirostat_tau", "xtc_threshold",
    }
)  # fmt: skip

_SUPPORTED_EQUIVALENT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("max_new_tokens", "max_output_tokens", "n_predict", "num_predict"), "max_tokens"),
    **dict.fromkeys(("functions", "tool_prompt"), "tools"),
    **dict.fromkeys(("format", "guided_json", "json_schema", "output_format", "response_schema"), "response_format"),
    **dict.fromkeys(("n_probs", "top_n_tokens"), "top_logprobs"),
    **dict.fromkeys(("input", "inputs", "instructions", "prompt", "system"), "messages"),
    "function_call": "tool_choice",
    "min_new_tokens": "min_tokens",
    "n_cmpl": "n",
    "random_seed": "seed",
    "repeat_penalty": "repetition_penalty",
    "stop_sequences": "stop",
    "usage": "stream_options",
}
"""Supported fields with the same or nearly the same meaning."""


def refuse_unsupported(fields: Mapping[str, Any]) -> None:
    """Raises ``Unsupported`` for the first unsupported field whose value has an effect."""
    for name, value in fields.items():
        if value is not None and name in UNSUPPORTED and not _equal(value, UNSUPPORTED[name]):
            raise Unsupported(f"{name} is not supported{_hint(name)}", param=name)


def is_known(name: str) -> bool:
    return name in UNSUPPORTED or name in NO_EFFECT_ON_OUTPUT


def _equal(value: Any, neutral: Any) -> bool:
    """Equal, where a boolean does not equal a number."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)


def _hint(name: str) -> str:
    if name == "extra_body":
        return ": put its members at the top level"
    if name in _SUPPORTED_EQUIVALENT:
        return f": use {_SUPPORTED_EQUIVALENT[name]}"
    neutral = UNSUPPORTED[name]
    return "" if neutral is None else f" with a value other than {orjson.dumps(neutral).decode()}"
