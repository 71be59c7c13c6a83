"""The vocabulary of the simulated model, part of the contract because three services must agree on it.

Ids 0 to 255 are the bytes of that value; the control tokens follow.
"""

from __future__ import annotations

from typing import Final

MODEL_NAME: Final = "simulated"
NUM_BYTES: Final = 256
CONTROL_TOKENS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Spelling of the control tokens, in the order of their ids from ``NUM_BYTES``."""

VOCAB_SIZE: Final = NUM_BYTES + len(CONTROL_TOKENS)
EOS_TOKEN: Final = "<|im_end|>"
EOS_TOKEN_ID: Final = NUM_BYTES + CONTROL_TOKENS.index(EOS_TOKEN)
