"""``pellucid``, the command line."""

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
    _obey_interrupts()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Model output and file names may hold what the terminal's encoding does not.
            stream.reconfigure(errors="replace")
    try:
        app()
    except CommandError as error:
        typer.echo(f"pellucid: {error}", err=True)
        sys.exit(2)


def _obey_interrupts() -> None:
    """Let SIGINT interrupt, for the services too, which inherit it.

    Shells have it ignored for what they start in the background, and Python leaves that as it is.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    main()
