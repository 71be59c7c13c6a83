from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from svclib.config import SettingsError
from tests.tokenizer_svc import real, templates, tiny
from tokenizer_svc.loading import load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Hugging Face folder with a tiny tokenizer."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tiny.byte_level(), bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = templates.CHATML
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_a_folder(folder: Path) -> None:
    loaded = load(str(folder))
    reference = AutoTokenizer.from_pretrained(folder)
    assert loaded.special_tokens == reference.special_tokens_map == {"bos_token": "<s>", "eos_token": "</s>"}
    assert loaded.chat_templates == {"default": templates.CHATML}
    assert loaded.eos_token_ids == (reference.eos_token_id,)
    assert loaded.bos_token_id == reference.bos_token_id
    assert not loaded.knows_turn_ends


@pytest.mark.parametrize(("given", "expected"), [([1, 2], (1, 2)), (3, (3,))])
def test_end_tokens_of_the_generation_config(folder: Path, given: object, expected: tuple[int, ...]) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": given}))
    loaded = load(str(folder))
    assert loaded.eos_token_ids == (*expected, loaded.tokenizer.token_to_id("</s>"))
    assert loaded.knows_turn_ends


def test_a_generation_config_that_says_nothing(folder: Path) -> None:
    (folder / "generation_config.json").write_text("{}")
    assert not load(str(folder)).knows_turn_ends


def test_another_chat_template(folder: Path) -> None:
    template = folder / "other.jinja"
    template.write_text(templates.TRIMS)
    assert load(str(folder), template).chat_templates == {"default": templates.TRIMS}
    assert load("simulated", template).chat_templates == {"default": templates.TRIMS}


def test_several_chat_templates(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = {"default": templates.CHATML, "tool_use": templates.WITH_TOOLS}
    config["chat_template"] = [{"name": name, "template": text} for name, text in named.items()]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert load(str(folder)).chat_templates == named


def test_no_chat_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    assert load(str(folder)).chat_templates == {}


def test_a_gguf_file() -> None:
    loaded = load(str(real.gguf_file()))
    reference = real.theirs(real.SMOLLM2)
    assert loaded.special_tokens == reference.special_tokens_map
    assert loaded.chat_templates == {"default": reference.chat_template}
    assert loaded.tokenizer.get_vocab() == reference.get_vocab()
    assert loaded.eos_token_ids == (2,)


def test_a_gguf_file_is_loaded_without_torch() -> None:
    """The service's image has none."""
    code = "import sys; from tokenizer_svc.loading import load; load(sys.argv[1]); print('torch' in sys.modules)"
    command = [sys.executable, "-c", code, str(real.gguf_file())]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


@pytest.mark.parametrize("content", [b"", b"GGUF", b"nothing of the kind" * 10])
def test_a_file_that_is_no_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"cannot load a tokenizer from .*model\.gguf"):
        load(str(path))


@pytest.mark.parametrize("source", ["/does/not/exist.gguf", "no-such-organisation/no-such-model", ""])
def test_what_is_not_there(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match="cannot load a tokenizer"):
        load(source)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot load a tokenizer"):
        load(str(tmp_path))


def test_a_broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(SettingsError, match="cannot load a tokenizer"):
        load(str(folder))


def test_a_chat_template_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing", tmp_path / "binary", tmp_path):
        with pytest.raises(SettingsError, match="cannot read the chat template"):
            load("simulated", path)
