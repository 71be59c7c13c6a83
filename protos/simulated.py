"""The vocabulary of the simulated model. It is part of the contract, because three services must agree on it.

Token ids 0 to 255 are the bytes of that value; the control tokens follow.
"""

from __future__ import annotations

from typing import Final

MODEL_NAME: Final = "simulated"
NUM_BYTES: Final = 256
CONTROL_TOKENS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Spellings of the control tokens, in order of their ids, which start at ``NUM_BYTES``."""

VOCAB_SIZE: Final = NUM_BYTES + len(CONTROL_TOKENS)
EOS_TOKEN: Final = "<|im_end|>"
EOS_TOKEN_ID: Final = NUM_BYTES + CONTROL_TOKENS.index(EOS_TOKEN)
