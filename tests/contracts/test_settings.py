"""Settings and metrics in the docs are those of the services."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from detokenizer_svc.config import DetokenizerSettings
from engine_svc.config import Settings as EngineSettings
from gateway.config import Settings as GatewaySettings
from svclib.config import ServiceSettings
from tokenizer_svc.config import TokenizerSettings

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "tokenizer_svc": TokenizerSettings,
    "engine_svc": EngineSettings,
    "detokenizer_svc": DetokenizerSettings,
}
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "*.yml", ".env.example", "*/*.md", "*/Dockerfile", "pellucid/*.py")
    for path in ROOT.glob(pattern)
)
ROW = re.compile(r"^\| (`[A-Z]+_[A-Z_]+`[^|]*)\|([^|]*)\|", re.MULTILINE)
QUOTED = re.compile(r"`([^`]*)`")
VARIABLE = re.compile(r"\b(?:GATEWAY|TOKENIZER|ENGINE|DETOKENIZER)_[A-Z][A-Z_]*\b(?!\*)")
METRIC = re.compile(r"[\"`]((?:vllm:|pellucid_)[a-z_]+)")


def defaults(settings: type[ServiceSettings]) -> dict[str, Any]:
    """The default of each variable."""
    prefix = settings.model_config["env_prefix"]
    return {prefix + name.upper(): field.default for name, field in settings.model_fields.items()}


def documented(service: str) -> dict[str, str | None]:
    """The default of each variable in the README's table; None: in words, or missing."""
    table: dict[str, str | None] = {}
    for variables, values in ROW.findall((ROOT / service / "README.md").read_text()):
        names: list[str] = QUOTED.findall(variables)
        quoted: list[str | None] = QUOTED.findall(values) or [None]
        table |= zip(names, quoted * len(names) if len(quoted) == 1 else quoted, strict=True)
    return table


def spelled(default: Any) -> str | None:
    """A default as the README writes it; None for one that it describes in words."""
    if default in (None, "", PydanticUndefined):
        return None
    return f"{default:g}" if isinstance(default, float) else str(default).lower()


@pytest.mark.parametrize("service", SETTINGS)
def test_the_readme_lists_every_setting_with_its_default(service: str) -> None:
    assert documented(service) == {name: spelled(value) for name, value in defaults(SETTINGS[service]).items()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_named_in_documents_exist(document: Path) -> None:
    known = {name for settings in SETTINGS.values() for name in defaults(settings)}
    assert set(VARIABLE.findall(document.read_text())) <= known


@pytest.mark.parametrize("service", SETTINGS)
def test_the_readme_lists_every_metric(service: str) -> None:
    def names(file: str) -> set[str]:
        found = METRIC.findall((ROOT / service / file).read_text())
        return {name.removesuffix("_total").removesuffix("_info") for name in found}

    assert names("README.md") == names("metrics.py")
