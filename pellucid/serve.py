"""``pellucid serve``: a whole stack on this machine, from the options to the exit code."""

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
_FORMAT_PANEL: Final = "Format"


def serve(
    model_name: Annotated[
        str | None,
        typer.Option(
            "--model",
            envvar="ENGINE_MODEL",
            help="A Hugging Face id, a folder, a .gguf file, or `simulated`.",
            show_default=model.DEFAULT_MODEL_NAME,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            envvar="TOKENIZER_TOKENIZER",
            help="Another tokenizer than the model's own: an id, a folder or a .gguf file.",
        ),
    ] = None,
    served_model_name: Annotated[
        str | None,
        typer.Option(
            envvar="GATEWAY_SERVED_MODEL_NAME",
            help="The name that clients use.",
            show_default="the id, or the name of the folder or file",
        ),
    ] = None,
    host: Annotated[str, typer.Option(envvar="GATEWAY_HOST", help="Address of the HTTP side.")] = LOOPBACK,
    port: Annotated[
        int, typer.Option(envvar="GATEWAY_PORT", min=0, max=65535, help="Port of the HTTP side; 0 takes a free one.")
    ] = DEFAULT_PORT,
    hang_seconds: Annotated[
        float,
        typer.Option(
            envvar="PELLUCID_HANG_SECONDS",
            min=0,
            help="End and restart a service that was ready and answers nothing for so long; 0: never.",
        ),
    ] = DEFAULT_HANG_SECONDS,
    tool_parser: Annotated[
        str | None,
        typer.Option(
            envvar="GATEWAY_TOOL_PARSER",
            help="Format of the model's tool calls, or `none`.",
            show_default="found from the template",
            rich_help_panel=_FORMAT_PANEL,
        ),
    ] = None,
    reasoning_parser: Annotated[
        str | None,
        typer.Option(
            envvar="GATEWAY_REASONING_PARSER",
            help="Format of the model's thinking, or `none`.",
            show_default="found from the template",
            rich_help_panel=_FORMAT_PANEL,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(envvar="ENGINE_DTYPE", help="Number format of weights and cache.", rich_help_panel=_ENGINE_PANEL),
    ] = None,
    quantization: Annotated[
        str | None,
        typer.Option(
            envvar="ENGINE_QUANTIZATION",
            help="What the engine multiplies: floats (`none`), or integers (`int8`, `int16`). `auto` is `int8` for "
            "quantised GGUF files, such as the default model, where the processor is fast at it; else `none`.",
            show_default="auto",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None,
    speculation: Annotated[
        str | None,
        typer.Option(
            envvar="ENGINE_SPECULATION",
            help="N-gram speculative decoding (`ngram`) or `off`. It changes no choice of tokens; `auto` is `ngram` "
            "where it cannot change a bit of the numbers either, as with `int8`.",
            show_default="auto",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            envvar="ENGINE_MAX_MODEL_LEN", help="Most tokens of prompt and answer.", rich_help_panel=_ENGINE_PANEL
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(
            envvar="ENGINE_MAX_NUM_SEQS", help="Most choices generated at a time.", rich_help_panel=_ENGINE_PANEL
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            envvar="ENGINE_MAX_NUM_BATCHED_TOKENS", help="Most tokens of one step.", rich_help_panel=_ENGINE_PANEL
        ),
    ] = None,
    kv_cache_memory_mb: Annotated[
        int | None,
        typer.Option(
            envvar="ENGINE_KV_CACHE_MEMORY_MB", help="Memory for keys and values, MiB.", rich_help_panel=_ENGINE_PANEL
        ),
    ] = None,
    deterministic: Annotated[
        bool | None,
        typer.Option(
            envvar="ENGINE_DETERMINISTIC",
            help="The same answer to a request, whatever else runs; slower.",
            show_default="no",
            rich_help_panel=_ENGINE_PANEL,
        ),
    ] = None,
) -> None:
    """Start all four services on this machine, watch them, and stop them with Ctrl-C.

    Every other setting of a service is an environment variable (ENGINE_..., GATEWAY_..., TOKENIZER_...,
    DETOKENIZER_...); `python -m engine_svc --help` lists them.
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
    # `nohup` has the hang-up ignored, and means it.
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])]


def banner(url: str, model_name: str) -> str:
    """Where the stack is, and a line that asks it something."""
    question = {"model": model_name, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    body = json.dumps(question | {"temperature": 0}, ensure_ascii=False).replace("'", "'\\''")
    return (
        f"\n{model_name} is ready at {url}/v1\n\n"
        f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'\n\n"
        f"  {_own_command()} chat --url {url}\n"
    )


def _own_command() -> str:
    """How to call this program from where the person is, whether its environment is activated or not."""
    if shutil.which("pellucid"):
        return "pellucid"
    program = Path(sys.executable).with_name("pellucid")
    return str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)


def _notice(text: str) -> None:
    typer.echo(f"pellucid: {text}", err=True)
