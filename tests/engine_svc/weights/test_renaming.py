from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from engine_svc.weights.renaming import renamed
from engine_svc.weights.safetensors_folder import SafetensorsFolder


def test_renamed_tensors_keep_their_values(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"old.a": torch.ones(2, 3), "old.b": torch.zeros(1)}, tmp_path / "model.safetensors")
    found = torch.empty(2, 3)

    names = []
    for tensor in renamed(SafetensorsFolder(tmp_path).tensors(), {"old.a": "new.a", "old.b": None}.get):
        names.append((tensor.name, tensor.shape))
        tensor.copy_to(found)

    assert names == [("new.a", (2, 3))]
    assert found.tolist() == [[1.0] * 3] * 2
