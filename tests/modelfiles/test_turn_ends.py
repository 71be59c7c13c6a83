from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelfiles.errors import ModelFileError
from modelfiles.turn_ends import turn_ends_in


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        (None, None, ()),
        ({}, {}, ()),
        ({"eos_token_id": 0}, None, (0,)),
        ({"eos_token_id": [0]}, {"eos_token_id": 2}, (0, 2)),
        (None, {"eos_token_id": [3, 2]}, (3, 2)),
        ({"eos_token_id": None}, {"eos_token_id": 2}, (2,)),
        ({"eos_token_id": [2, 1]}, {"eos_token_id": [1, 2]}, (2, 1)),
        (None, {"text_config": {"eos_token_id": 7}}, (7,)),
    ],
)
def test_both_configurations_count(generation: Any, config: Any, expected: tuple[int, ...], tmp_path: Path) -> None:
    for name, content in (("generation_config.json", generation), ("config.json", config)):
        if content is not None:
            (tmp_path / name).write_text(json.dumps(content))
    assert turn_ends_in(tmp_path) == expected


@pytest.mark.parametrize("given", ["</s>", 1.5, True, -1, [None], {"a": 1}])
def test_invalid_eos_token_ids_are_named(given: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": given}))
    with pytest.raises(ModelFileError, match=r"config\.json: eos_token_id must be a token id or a list of them"):
        turn_ends_in(tmp_path)
