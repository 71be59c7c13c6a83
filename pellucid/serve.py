"""``pellucid serve``: runs all four services on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import typer
from rich.console import Console

from pellucid import model, options
from pellucid.stack import DEFAULT_HANG_SECONDS, DEFAULT_PORT, LOOPBACK, NAMES, Stack, StackOptions, build
from pellucid.supervisor import Supervisor
from pellucid.terminal import Terminal


def serve(
    model_name: options.Model = None,
    tokenizer: options.Tokenizer = None,
    served_model_name: options.ServedModelName = None,
    host: options.Host = LOOPBACK,
    port: options.Port = DEFAULT_PORT,
    hang_seconds: options.HangSeconds = DEFAULT_HANG_SECONDS,
    tool_parser: options.ToolParser = None,
    reasoning_parser: options.ReasoningParser = None,
    dtype: options.Dtype = None,
    quantization: options.Quantization = None,
    speculation: options.Speculation = None,
    max_model_len: options.MaxModelLen = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    max_step_ms: options.MaxStepMs = None,
    kv_cache_dtype: options.KvCacheDtype = None,
    kv_cache_memory_mb: options.KvCacheMemoryMb = None,
    deterministic: options.Deterministic = None,
) -> None:
    """Start all four services on this machine and restart those that fail. Ctrl-C stops them.

    All other settings are environment variables (ENGINE_..., GATEWAY_..., TOKENIZER_..., DETOKENIZER_...);
    `python -m engine_svc --help` lists the engine's.
    """
    found = model.find(model_name, _notice)
    chosen = StackOptions(
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
            "max_step_ms": max_step_ms,
            "kv_cache_dtype": kv_cache_dtype,
            "kv_cache_memory_mb": kv_cache_memory_mb,
            "deterministic": deterministic,
        },
    )
    stack = build(chosen, os.environ)
    try:
        code = asyncio.run(_run(stack, chosen.served_model_name))
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
