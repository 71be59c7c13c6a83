from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from modelfiles.errors import ModelFileError
from modelfiles.tokenizer import load_tokenizer as load
from tests.modelfiles.given import POINTER, control, write_gguf
from tests.tokenizer_svc import real, templates, tiny


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


@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
@pytest.mark.parametrize(
    ("given", "expected"), [([1, 2], (1, 2)), (3, (3,)), (0, (0,)), ([0], (0,)), (None, ()), ([], ())]
)
def test_end_tokens_of_a_configuration(folder: Path, name: str, given: object, expected: tuple[int, ...]) -> None:
    (folder / name).write_text(json.dumps({"eos_token_id": given}))
    loaded = load(str(folder))
    assert loaded.eos_token_ids == (*expected, loaded.tokenizer.token_to_id("</s>"))


def test_end_tokens_of_both_configurations(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [0]}')
    (folder / "config.json").write_text('{"eos_token_id": 1}')
    assert load(str(folder)).eos_token_ids[:2] == (0, 1)


def test_invalid_end_tokens(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(ModelFileError, match="eos_token_id must be a token id or a list of them"):
        load(str(folder))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"])
def test_a_git_lfs_pointer_in_a_folder(folder: Path, name: str) -> None:
    (folder / name).write_bytes(POINTER)
    with pytest.raises(ModelFileError, match=f"{name} is a Git LFS pointer, not the file itself; run git lfs pull"):
        load(str(folder))


def test_a_git_lfs_pointer_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(POINTER)
    for source, template in ((str(path), None), ("simulated", path)):
        with pytest.raises(ModelFileError, match="is a Git LFS pointer"):
            load(source, template)


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


def test_a_gguf_file_is_loaded_without_torch_and_transformers() -> None:
    """The service's image has no torch, and transformers takes a second."""
    load_it = "import sys; from modelfiles.tokenizer import load_tokenizer; load_tokenizer(sys.argv[1])"
    code = f"{load_it}; print({{'torch', 'transformers'}} & {{*sys.modules}})"
    command = [sys.executable, "-c", code, str(real.gguf_file())]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "set()"


@pytest.mark.parametrize("content", [b"", b"GGUF", b"nothing of the kind" * 10])
def test_a_file_that_is_not_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"cannot load a tokenizer from .*model\.gguf"):
        load(str(path))


@pytest.mark.parametrize("source", ["/does/not/exist.gguf", "no-such-organisation/no-such-model", ""])
def test_missing_sources(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelFileError, match="cannot load a tokenizer"):
        load(source)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot load a tokenizer"):
        load(str(tmp_path))


def test_a_broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFileError, match="cannot load a tokenizer"):
        load(str(folder))


def test_a_chat_template_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing", tmp_path / "binary", tmp_path):
        with pytest.raises(ModelFileError, match="cannot read the chat template"):
            load("simulated", path)


def test_an_unsupported_pre_tokenizer(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", "gpt2", control("<s>"), add_tokenizer_pre="strange")
    with pytest.raises(ModelFileError, match=r"cannot load a tokenizer from .*: unsupported pre-tokenizer 'strange'"):
        load(str(path))
