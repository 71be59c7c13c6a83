"""``pellucid chat``: a conversation in the terminal, or line by line from a pipe."""

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
_HELP: Final = "/reset forgets the conversation, /exit or Ctrl-D ends, Ctrl-C stops an answer"


def chat(
    url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", help="Any OpenAI-compatible server.")
    ] = f"http://{LOOPBACK}:{DEFAULT_PORT}",
    model: Annotated[
        str | None, typer.Option(help="Which of the server's models.", show_default="the first one")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2)] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of one answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answers.")] = None,
    api_key: Annotated[
        SecretStr | None, typer.Option(envvar="OPENAI_API_KEY", parser=SecretStr, metavar="TEXT", show_default=False)
    ] = None,
) -> None:
    """Talk to a model. One line is one turn; /reset forgets the conversation, /exit ends; Ctrl-C stops an answer.

    Lines may also come from a pipe; then only answers are printed, and the exit code is 1 if any of them failed.
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
        raise CommandError("the server offers no model")
    return names[0]


class Conversation:
    """The turns so far."""

    def __init__(self, system: str | None) -> None:
        self._system = [{"role": "system", "content": system}] if system is not None else []
        self._turns: list[dict[str, str]] = []

    def asked(self, question: str) -> list[dict[str, str]]:
        """The messages of a request that asks this next; nothing is remembered yet."""
        return [*self._system, *self._turns, {"role": "user", "content": question}]

    def remember(self, question: str, answer: str) -> None:
        self._turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

    def reset(self) -> None:
        self._turns.clear()


@dataclass(slots=True)
class Session:
    """A conversation with one model."""

    client: ChatClient
    conversation: Conversation
    model: str
    parameters: dict[str, float | int | None]
    screen: Screen
    interactive: bool
    """Whether a person is there, who wants to go on after an answer that was stopped or failed."""
    failures: int = field(default=0)

    def run(self, lines: Iterable[str]) -> None:
        """Answer each line until they end or one of them says so."""
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
                    remark = "cut at the token limit" if piece.finish_reason == "length" else remark
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
        import readline  # noqa: F401  # gives `input` a line editor with history, where the platform has it
    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            typer.echo()
            return
        except KeyboardInterrupt:
            typer.echo(f"\n{_HELP}")
