"""The checked-in stubs match the protos, and the protos follow our conventions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from protos import simulated
from protos.v1 import common_pb2, detokenizer_pb2, engine_pb2, tokenizer_pb2

ROOT = Path(__file__).parents[2]
PROTOS = sorted((ROOT / "protos/v1").glob("*.proto"))
MODULES = (common_pb2, tokenizer_pb2, engine_pb2, detokenizer_pb2)


def protoc(*outputs: str) -> None:
    names = [str(path.relative_to(ROOT)) for path in PROTOS]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, *names],
        cwd=ROOT, check=True, env={**os.environ, "PATH": path}, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_the_stubs_are_generated_from_the_protos(tmp_path: Path) -> None:
    protoc(*(f"--{kind}_out={tmp_path}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")))
    generated = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py*"))
    assert len(generated) == 4 * len(PROTOS)
    for path in generated:
        assert (tmp_path / path).read_text() == (ROOT / path).read_text(), f"{path} is stale: run `make protos`"


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorSet:
    target = tmp_path_factory.mktemp("descriptors") / "set.bin"
    protoc(f"--descriptor_set_out={target}", "--include_source_info")
    return FileDescriptorSet.FromString(target.read_bytes())


def test_everything_in_the_protos_has_a_comment(descriptors: FileDescriptorSet) -> None:
    bare = [
        (file.name, list(location.path))
        for file in descriptors.file
        for location in file.source_code_info.location
        if is_a_definition(list(location.path)) and not (location.leading_comments or location.trailing_comments)
    ]
    assert bare == []


def is_a_definition(path: list[int]) -> bool:
    """Whether a path in the descriptor names a message, field, enum, enum value, service or method."""
    in_message = len(path) in (2, 4) and path[0] == 4 and (len(path) == 2 or path[2] == 2)
    in_enum = len(path) in (2, 4) and path[0] == 5 and (len(path) == 2 or path[2] == 2)
    in_service = len(path) in (2, 4) and path[0] == 6 and (len(path) == 2 or path[2] == 2)
    return in_message or in_enum or in_service


def enums() -> list[EnumDescriptor]:
    return [enum for module in MODULES for enum in module.DESCRIPTOR.enum_types_by_name.values()]


def test_enums_start_with_unspecified() -> None:
    assert enums()
    assert all(enum.values_by_number[0].name.endswith("_UNSPECIFIED") for enum in enums())


def test_every_sampling_field_can_be_absent() -> None:
    fields: list[FieldDescriptor] = list(engine_pb2.SamplingParams.DESCRIPTOR.fields)
    assert [field.name for field in fields if not (field.has_presence or field.is_repeated)] == []


def test_session_frames_have_one_shape() -> None:
    for module, name in ((engine_pb2, "Engine"), (detokenizer_pb2, "Detokenizer")):
        messages = module.DESCRIPTOR.message_types_by_name
        client, server = messages[f"{name}ClientEntry"], messages[f"{name}ServerEntry"]
        assert [field.name for field in client.oneofs_by_name["body"].fields] == ["open", "input", "cancel"]
        assert [field.name for field in server.oneofs_by_name["body"].fields] == ["event", "end", "failure"]
        assert client.fields_by_name["id"].number == server.fields_by_name["id"].number == 1


def test_simulated_control_tokens_follow_the_bytes() -> None:
    assert 256 + len(set(simulated.CONTROL_TOKENS)) == simulated.VOCAB_SIZE
    assert simulated.CONTROL_TOKENS[simulated.EOS_TOKEN_ID - simulated.NUM_BYTES] == simulated.EOS_TOKEN
