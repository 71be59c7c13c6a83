"""What is wrong with a file of a model."""

from __future__ import annotations


class ModelFileError(Exception):
    """The file is missing, damaged or not supported; the message says why, for the person who starts a service."""
