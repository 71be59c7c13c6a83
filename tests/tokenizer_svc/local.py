"""Templates that run in the test process, for tests that do not depend on child processes."""

from __future__ import annotations

from tokenizer_svc.sandbox import SandboxedTemplate


def compiled(source: str, max_chars: int = 10_000_000) -> SandboxedTemplate:
    """See ``prompt_tokenizer.Compile``."""
    return SandboxedTemplate(source, max_chars)
