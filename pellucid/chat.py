"""``pellucid chat``: chat in the terminal, or with lines from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Annotated, Final

import typer
from pydantic import SecretStr

from pellucid.completions import AnswerError, ChatClient
from pellucid.errors import CommandError
from pellucid.screen import Screen
from pellucid.stack import DEFAULT_PORT, LOOPBACK

_PROMPT: Final = "> "
_HELP: Final = "/reset clears the conversation, /exit or Ctrl-D quits, Ctrl-C stops an answer"


def chat(
    url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", help="Base URL of an OpenAI-compatible server.")
    ] = f"http://{LOOPBACK}:{DEFAULT_PORT}",
    model: Annotated[
        str | None, typer.Option(help="Name of the model.", show_default="the first that the server lists")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="Sampling temperature; 0 is greedy.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Maximum tokens per answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Sampling seed, for reproducible answers.")] = None,
    api_key: Annotated[
        SecretStr | None,
        typer.Option(
            envvar="OPENAI_API_KEY", parser=SecretStr, metavar="TEXT", help="API key of the server.", show_default=False
        ),
    ] = None,
) -> None:
    """Chat with a model. Each line is a turn; /reset clears the conversation, /exit quits, Ctrl-C stops an answer.

    With lines from a pipe, only the answers are printed, and the exit code is 1 if any of them failed.
    """
    with ChatClient(url, api_key) as client:
        try:
            model = model or _first_model(client)
        except AnswerError as error:
            raise CommandError(str(error)) from None
        interactive = sys.stdin.isatty()
        parameters = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
        session = Session(client, Conversation(system), model, parameters, Screen.of(sys.stdout), interactive)
        if interactive:
            typer.echo(f"{model} at {url}. {_HELP}.")
        session.run(_typed_lines() if interactive else sys.stdin)
    raise typer.Exit(1 if session.failures and not interactive else 0)


def _first_model(client: ChatClient) -> str:
    names = client.model_names()
    if not names:
        raise CommandError("the server lists no models")
    return names[0]


class Conversation:
    """The system prompt and the turns so far."""

    def __init__(self, system: str | None) -> None:
        self._system = [{"role": "system", "content": system}] if system is not None else []
        self._turns: list[dict[str, str]] = []

    def asked(self, question: str) -> list[dict[str, str]]:
        """The messages of a request with this question. Does not change the conversation."""
        return [*self._system, *self._turns, {"role": "user", "content": question}]

    def remember(self, question: str, answer: str) -> None:
        self._turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

    def reset(self) -> None:
        self._turns.clear()


@dataclass(slots=True)
class Session:
    """A chat with one model."""

    client: ChatClient
    conversation: Conversation
    model: str
    parameters: dict[str, float | int | None]
    screen: Screen
    interactive: bool
    """Whether input comes from a terminal: then Ctrl-C stops the answer and not the program."""
    failures: int = field(default=0)

    def run(self, lines: Iterable[str]) -> None:
        """Answer each line until the last one or ``/exit``."""
        for line in lines:
            question = line.strip()
            if question == "/exit":
                return
            if question == "/reset":
                self.conversation.reset()
            elif question.startswith("/") and " " not in question:
                typer.echo(f"unknown command {question}; {_HELP}", err=True)
            elif question:
                self._answer(question)

    def _answer(self, question: str) -> None:
        said = ""
        remark = ""
        pieces = self.client.answer(self.model, self.conversation.asked(question), **self.parameters)
        try:
            with closing(pieces):
                for piece in pieces:
                    said += piece.content
                    self.screen.reasoning(piece.reasoning)
                    self.screen.content(piece.content)
                    remark = "token limit reached" if piece.finish_reason == "length" else remark
        except KeyboardInterrupt:
            if not self.interactive:
                raise
            remark = "stopped"
        except AnswerError as error:
            self.failures += 1
            self.screen.end()
            typer.echo(f"pellucid: {error}", err=True)
            return
        self.screen.end(remark)
        self.conversation.remember(question, said)


def _typed_lines() -> Iterator[str]:
    with suppress(ImportError):
        import readline  # noqa: F401  # line editing and history for `input`, where the platform has it
    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            typer.echo()
            return
        except KeyboardInterrupt:
            typer.echo(f"\n{_HELP}")
