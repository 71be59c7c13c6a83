"""Errors in a model's files."""

from __future__ import annotations


class ModelFileError(Exception):
    """The file is missing, damaged or not supported; the message says why, for the operator."""
