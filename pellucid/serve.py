"""``pellucid serve``: runs all four services on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from pellucid import model
from pellucid.stack import DEFAULT_HANG_SECONDS, DEFAULT_PORT, LOOPBACK, NAMES, Stack, StackOptions, build
from pellucid.supervisor import Supervisor
from pellucid.terminal import Terminal

_ENGINE_PANEL: Final = "Engine"
_FORMAT_PANEL: Final = "Output format"


def serve(
    model_name: Annotated[
        str | None,
        typer.Option(
            "--model",
            envvar="ENGINE_MODEL",
            help="Hugging Face id, folder, .gguf file, or `simulated`.",
            show_default=model.DEFAULT_MODEL_NAME,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            envvar="TOKENIZER_TOKENIZER",
            help="Tokenizer: Hugging Face id, folder or .gguf file.",
            show_default="the model's own",
        ),
    ] = None,
    served_model_name: Annotated[
        str | None,
        typer.Option(
            envvar="GATEWAY_SERVED_MODEL_NAME",
            help="Model name in the API.",
            show_default="the id, or the name of the folder or file",
        ),
    ] = None,
    host: Annotated[str, typer.Option(envvar="GATEWAY_HOST", help="Address to listen on for HTTP.")] = LOOPBACK,
    port: Annotated[
        int, typer.Option(envvar="GATEWAY_PORT", min=0, max=65535, help="HTTP port; 0 picks a free one.")
    ] = DEFAULT_PORT,
    hang_seconds: Annotated[
        float,
        typer.Option(
            envvar="PELLUCID_HANG_SECONDS",
            min=0,
            help="Restart a service that has not responded to liveness probes for this many seconds; 0: never.",
        ),
    ] = DEFAULT_HANG_SECONDS,
    tool_parser: Annotated[
        str | None,
        typer.Option(
            envvar="GATEWAY_TOOL_PARSER",
            help="Tool call format of the model, or `none`.",
            show_default="detected from the chat template",
            rich_help_panel=_FORMAT_PANEL,
        ),
    ] = None,
    reasoning_parser: Annotated[
        str | None,
        typer.Option(
            envvar="GATEWAY_REASONING_PARSER",
            help="Reasoning format of the model, or `none`.",
            show_default="detected from the chat template",
            rich_help_panel=_FORMAT_PANEL,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            envvar="ENGINE_DTYPE",
            help="Precision of weights and KV cache: `float32`, `bfloat16` or `auto`.",
            show_default="auto",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None,
    quantization: Annotated[
        str | None,
        typer.Option(
            envvar="ENGINE_QUANTIZATION",
            help="Quantisation: `int8`, `int16`, `none` (floating point) or `auto`: `int8` for quantised GGUF files, "
            "such as the default model, on CPUs with fast int8 instructions and without --dtype; else `none`.",
            show_default="auto",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None,
    speculation: Annotated[
        str | None,
        typer.Option(
            envvar="ENGINE_SPECULATION",
            help="Speculative decoding: `ngram` (prompt lookup), `off` or `auto`: `ngram` where the model is "
            "batch-invariant, as with `int8`, so that output cannot change.",
            show_default="auto",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            envvar="ENGINE_MAX_MODEL_LEN",
            help="Maximum tokens of prompt and output together.",
            show_default="the model's limit",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(envvar="ENGINE_MAX_NUM_SEQS", help="Maximum sequences per step.", rich_help_panel=_ENGINE_PANEL),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            envvar="ENGINE_MAX_NUM_BATCHED_TOKENS", help="Token budget per step.", rich_help_panel=_ENGINE_PANEL
        ),
    ] = None,
    kv_cache_memory_mb: Annotated[
        int | None,
        typer.Option(
            envvar="ENGINE_KV_CACHE_MEMORY_MB", help="Memory of the KV cache, MiB.", rich_help_panel=_ENGINE_PANEL
        ),
    ] = None,
    deterministic: Annotated[
        bool | None,
        typer.Option(
            envvar="ENGINE_DETERMINISTIC",
            help="Batch-invariant: a request has the same output whatever else runs; slower in plain torch.",
            show_default="no",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None,
) -> None:
    """Start all four services on this machine and restart those that fail. Ctrl-C stops them.

    All other settings are environment variables (ENGINE_..., GATEWAY_..., TOKENIZER_..., DETOKENIZER_...);
    `python -m engine_svc --help` lists the engine's.
    """
    found = model.find(model_name, _notice)
    options = StackOptions(
        model=found.location,
        served_model_name=served_model_name or found.name,
        tokenizer=model.find_tokenizer(tokenizer, _notice) if tokenizer else None,
        host=host,
        port=port,
        hang_seconds=hang_seconds,
        gateway={"tool_parser": tool_parser, "reasoning_parser": reasoning_parser},
        engine={
            "dtype": dtype,
            "quantization": quantization,
            "speculation": speculation,
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "kv_cache_memory_mb": kv_cache_memory_mb,
            "deterministic": deterministic,
        },
    )
    stack = build(options, os.environ)
    try:
        code = asyncio.run(_run(stack, options.served_model_name))
    finally:
        stack.release()
    raise typer.Exit(code)


async def _run(stack: Stack, model_name: str) -> int:
    with Terminal(Console(file=sys.stdout), NAMES, banner(stack.url, model_name)) as terminal:
        supervisor = Supervisor(stack.services, terminal)
        for number in _stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
        terminal.notice(f"starting {model_name}")
        return await supervisor.run()


def _stop_signals() -> list[signal.Signals]:
    # Under `nohup` SIGHUP is ignored and must stay so.
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])]


def banner(url: str, model_name: str) -> str:
    """The URL of the stack, with an example request."""
    question = {"model": model_name, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    body = json.dumps(question | {"temperature": 0}, ensure_ascii=False).replace("'", "'\\''")
    return (
        f"\n{model_name} is ready at {url}/v1\n\n"
        f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'\n\n"
        f"  {_own_command()} chat --url {url}\n"
    )


def _own_command() -> str:
    """The command that runs this program from the current folder, with or without an activated environment."""
    if shutil.which("pellucid"):
        return "pellucid"
    program = Path(sys.executable).with_name("pellucid")
    return str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)


def _notice(text: str) -> None:
    typer.echo(f"pellucid: {text}", err=True)
