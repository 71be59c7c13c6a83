"""Errors of commands."""

from __future__ import annotations


class CommandError(Exception):
    """The command cannot run. The message gives the reason and, where possible, the fix."""
