"""The options of ``pellucid serve``. Each is also an environment variable, which the service reads by itself."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from pellucid import model

_ENGINE_PANEL: Final = "Engine"
_FORMAT_PANEL: Final = "Output format"

Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="ENGINE_MODEL",
        help="Hugging Face id, folder, .gguf file, or `simulated`.",
        show_default=model.DEFAULT_MODEL_NAME,
    ),
]
Tokenizer: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="TOKENIZER_TOKENIZER",
        help="Tokenizer: Hugging Face id, folder or .gguf file.",
        show_default="the model's own",
    ),
]
ServedModelName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="GATEWAY_SERVED_MODEL_NAME",
        help="Model name in the API.",
        show_default="the id, or the name of the folder or file",
    ),
]
Host: TypeAlias = Annotated[str, typer.Option(envvar="GATEWAY_HOST", help="Address to listen on for HTTP.")]
Port: TypeAlias = Annotated[
    int, typer.Option(envvar="GATEWAY_PORT", min=0, max=65535, help="HTTP port; 0 picks a free one.")
]
HangSeconds: TypeAlias = Annotated[
    float,
    typer.Option(
        envvar="PELLUCID_HANG_SECONDS",
        min=0,
        help="Restart a service that has not responded to liveness probes for this many seconds; 0: never.",
    ),
]
ToolParser: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="GATEWAY_TOOL_PARSER",
        help="Tool call format of the model, or `none`.",
        show_default="detected from the chat template",
        rich_help_panel=_FORMAT_PANEL,
    ),
]
ReasoningParser: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="GATEWAY_REASONING_PARSER",
        help="Reasoning format of the model, or `none`.",
        show_default="detected from the chat template",
        rich_help_panel=_FORMAT_PANEL,
    ),
]
Dtype: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="ENGINE_DTYPE",
        help="Precision of weights and KV cache: `float32`, `bfloat16` or `auto`.",
        show_default="auto",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
Quantization: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="ENGINE_QUANTIZATION",
        help="Quantisation: `int8`, `int16`, `none` (floating point) or `auto`: `int8` for quantised GGUF files, "
        "such as the default model, on CPUs with fast int8 instructions and without --dtype; else `none`.",
        show_default="auto",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
Speculation: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="ENGINE_SPECULATION",
        help="Speculative decoding: `ngram` (prompt lookup), `off` or `auto`: `ngram` where the model is "
        "batch-invariant, as with `int8`, so that output cannot change.",
        show_default="auto",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
MaxModelLen: TypeAlias = Annotated[
    int | None,
    typer.Option(
        envvar="ENGINE_MAX_MODEL_LEN",
        help="Maximum tokens of prompt and output together.",
        show_default="the model's limit",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
MaxNumSeqs: TypeAlias = Annotated[
    int | None,
    typer.Option(envvar="ENGINE_MAX_NUM_SEQS", help="Maximum sequences per step.", rich_help_panel=_ENGINE_PANEL),
]
MaxNumBatchedTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(envvar="ENGINE_MAX_NUM_BATCHED_TOKENS", help="Token budget per step.", rich_help_panel=_ENGINE_PANEL),
]
MaxStepMs: TypeAlias = Annotated[
    float | None,
    typer.Option(
        envvar="ENGINE_MAX_STEP_MS",
        help="Maximum time of a step while outputs are generated: long prompts are computed in chunks that fit.",
        show_default="5 times a step without a prompt",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
KvCacheDtype: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="ENGINE_KV_CACHE_DTYPE",
        help="KV cache: `auto` (as --dtype) or `int8`, which holds 1.9 times as many tokens as bfloat16.",
        show_default="auto",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
KvCacheMemoryMb: TypeAlias = Annotated[
    int | None,
    typer.Option(
        envvar="ENGINE_KV_CACHE_MEMORY_MB", help="Memory of the KV cache, MiB.", rich_help_panel=_ENGINE_PANEL
    ),
]
Deterministic: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        envvar="ENGINE_DETERMINISTIC",
        help="Batch-invariant: a request has the same output whatever else runs; slower in plain torch.",
        show_default="no",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
