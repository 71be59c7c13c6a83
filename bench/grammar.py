"""Cost of a grammar constraint: reading a vocabulary, compiling a schema, computing and applying a token mask.

    python -m bench.grammar --tokenizer .models/tokenizers/qwen3

Times are CPU time of the thread, to reduce noise from other programs; compilation runs in a child process and is wall
time. Masks are computed for each token of a complete output of a nested schema, as the tokenizer encodes it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from engine_svc.constraint import Constraint
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.grammar.token_bytes import read_token_bytes
from engine_svc.grammar.vocabulary import vocabulary_of

_ADDRESS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
    "required": ["street", "zip"],
}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["new", "old", "blue"]}, "maxItems": 5},
        "addresses": {"type": "array", "items": {"$ref": "#/$defs/address"}},
    },
    "required": ["name", "age", "tags", "addresses"],
    "$defs": {"address": _ADDRESS},
}
_VALUE: Final = {
    "name": "Ada Lovelace, Countess of Größe",
    "age": 36,
    "tags": ["new", "blue"],
    "addresses": [{"street": f"{number} St James's Square, London", "zip": "12345"} for number in range(12)],
}
_COMPILATIONS: Final = 50


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with tokenizer.json")
    return parser.parse_args()


def _timed(action: Any) -> tuple[Any, float]:
    started = time.thread_time()
    result = action()
    return result, time.thread_time() - started


def main() -> None:
    folder = _arguments().tokenizer
    tokens, reading = _timed(lambda: read_token_bytes(folder))
    vocabulary, building = _timed(lambda: vocabulary_of(tokens, len(tokens.spelled)))
    print(f"{len(tokens.spelled)} tokens: read in {reading:.2f} s, vocabulary built in {building:.2f} s")
    compiler, constraint = GrammarCompiler(vocabulary), Constraint("json_schema", json.dumps(_SCHEMA))
    compiler.compile(Constraint("json_object"))  # warm-up: starts the child processes
    _compilations("open objects", compiler, _opened(_SCHEMA))
    _compilations("closed objects", compiler, _SCHEMA)
    output = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(json.dumps(_VALUE, ensure_ascii=False)).ids
    _masks(compiler.compile(constraint).matcher((), ()), output, vocabulary.size)


def _opened(value: Any) -> Any:
    """The schema with additional properties allowed in all objects."""
    if not isinstance(value, dict):
        return value
    opened = {key: _opened(item) for key, item in value.items()}
    return opened | {"additionalProperties": True} if "required" in value else opened


def _compilations(name: str, compiler: GrammarCompiler, schema: dict[str, Any]) -> None:
    """Wall time in the child process and here; each schema is different, so none is cached."""
    milliseconds = []
    for number in range(_COMPILATIONS):
        constraint = Constraint("json_schema", json.dumps(schema | {"description": str(number)}))
        started = time.perf_counter()
        compiler.compile(constraint)
        milliseconds.append((time.perf_counter() - started) * 1e3)
    print(f"compile, {name}: median {statistics.median(milliseconds):.1f} ms, max {max(milliseconds):.1f} ms")


def _masks(matcher: Any, output: list[int], size: int) -> None:
    logits = np.zeros(size, np.float32)
    making, applying = [], []
    for count in range(len(output)):
        mask, seconds = _timed(lambda: matcher.allowed(output[:count], may_end=True))  # noqa: B023  # called at once
        making.append(seconds * 1e6)
        assert mask[output[count]], "the mask forbids a token of the valid output"
        applying.append(_timed(lambda: np.where(mask, logits, -np.inf))[1] * 1e6)  # noqa: B023
    print(
        f"mask: mean {statistics.mean(making):.0f} us, median {statistics.median(making):.0f}, "
        f"max {max(making):.0f}; apply: median {statistics.median(applying):.0f} us; {len(output)} tokens"
    )


if __name__ == "__main__":
    main()
