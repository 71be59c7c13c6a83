"""A progress bar of finished prompts, with tokens per second."""

from __future__ import annotations

import time
from typing import Any, Self


class Progress:
    """Writes to standard error, if ``shown``."""

    def __init__(self, total: int, *, shown: bool) -> None:
        self._bar: Any = None
        self._num_tokens = 0
        self._started = time.perf_counter()
        if shown:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc="Generating", unit="prompt", dynamic_ncols=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, num_tokens: int, num_finished: int) -> None:
        """Add generated tokens and finished prompts."""
        if self._bar is None:
            return
        self._num_tokens += num_tokens
        rate = self._num_tokens / (time.perf_counter() - self._started)
        self._bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
        self._bar.update(num_finished)
