"""``pellucid``, the command line."""

from __future__ import annotations

import io
import sys

import typer

from pellucid.chat import chat
from pellucid.errors import CommandError
from pellucid.serve import serve

app = typer.Typer(
    name="pellucid",
    help="Serve a language model behind an OpenAI-compatible API, and talk to one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(chat)


def main() -> None:
    """Entry point. Exits with 2 and a plain message when the command cannot do what was asked."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Model output and file names may hold what the terminal's encoding does not.
            stream.reconfigure(errors="replace")
    try:
        app()
    except CommandError as error:
        typer.echo(f"pellucid: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
