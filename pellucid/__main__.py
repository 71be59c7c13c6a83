"""Entry point of the ``pellucid`` command."""

from __future__ import annotations

import io
import signal
import sys

from pellucid.platforms import check_platform

check_platform()

import typer  # noqa: E402

from pellucid.chat import chat  # noqa: E402
from pellucid.errors import CommandError  # noqa: E402
from pellucid.serve import serve  # noqa: E402

app = typer.Typer(
    name="pellucid",
    help="Serve a language model behind an OpenAI-compatible API, or chat with one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(chat)


def main() -> None:
    """Run a command. Exits with 2 and a one-line message on ``CommandError``."""
    _restore_sigint()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Model output and file names may contain characters that the terminal's encoding lacks.
            stream.reconfigure(errors="replace")
    try:
        app()
    except CommandError as error:
        typer.echo(f"pellucid: {error}", err=True)
        sys.exit(2)


def _restore_sigint() -> None:
    """Handle SIGINT even where it was ignored at start; the services inherit this.

    Shells ignore SIGINT for background jobs, and Python keeps it ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    main()
