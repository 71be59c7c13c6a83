from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from pellucid.__main__ import main
from pellucid.chat import Conversation
from tests.pellucid.openai_server import Script, content, event, running


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def chat(script: Script, typed: str, *options: str) -> Done:
    """Run the command with lines from a pipe."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["pellucid", "chat", "--url", script.url, *options]),
        patch.object(sys, "stdin", io.StringIO(typed)),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert isinstance(ended.value.code, int)
    return Done(ended.value.code, out.getvalue(), err.getvalue())


def test_lines_from_a_pipe_are_turns_of_one_conversation() -> None:
    with running(Script(answers=[content("Hi ", "Bo."), content("Bo.")])) as script:
        done = chat(script, "I am Bo.\n\nWho am I?\n", "--system", "Be brief.")
    assert (done.code, done.out, done.err) == (0, "Hi Bo.\nBo.\n", "")
    assert script.bodies[1]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "I am Bo."},
        {"role": "assistant", "content": "Hi Bo."},
        {"role": "user", "content": "Who am I?"},
    ]


def test_the_default_is_the_first_model_and_another_can_be_named() -> None:
    with running(Script(answers=[content("x")])) as script:
        chat(script, "hi\n")
        chat(script, "hi\n", "--model", "second", "--temperature", "0", "--max-tokens", "5", "--seed", "9")
    assert script.bodies[0]["model"] == "first"
    assert script.bodies[1]["model"] == "second"
    assert [script.bodies[1][name] for name in ("temperature", "max_tokens", "seed")] == [0, 5, 9]


def test_reset_clears_the_turns_and_keeps_the_system_prompt() -> None:
    with running(Script(answers=[content("x")])) as script:
        chat(script, "one\n/reset\ntwo\n/exit\nthree\n", "--system", "S")
    assert [body["messages"] for body in script.bodies] == [
        [{"role": "system", "content": "S"}, {"role": "user", "content": word}] for word in ("one", "two")
    ]


def test_an_unknown_command_is_not_a_question() -> None:
    with running(Script(answers=[content("x")])) as script:
        done = chat(script, "/rest\n/etc/passwd is a file?\n")
    assert "unknown command /rest" in done.err
    assert [body["messages"][-1]["content"] for body in script.bodies] == ["/etc/passwd is a file?"]


def test_a_failed_answer_is_reported_and_left_out_of_the_conversation() -> None:
    failing = [*content("half")[:1], 'data: {"error": {"message": "engine lost"}}\n\n']
    with running(Script(answers=[failing, content("fine")])) as script:
        done = chat(script, "one\ntwo\n")
    assert (done.code, done.out, done.err) == (1, "half\nfine\n", "pellucid: engine lost\n")
    assert script.bodies[1]["messages"] == [{"role": "user", "content": "two"}]


def test_a_refused_connection_is_a_one_line_error() -> None:
    done = chat(Script(port=1), "hi\n")
    assert done.code == 2
    assert done.err.startswith("pellucid: cannot connect to http://127.0.0.1:1/v1/")
    assert done.err.count("\n") == 1


def test_a_server_without_models_is_a_one_line_error() -> None:
    with running(Script(models='{"data": []}')) as script:
        done = chat(script, "hi\n")
    assert (done.code, done.err) == (2, "pellucid: the server lists no models\n")


def test_a_pipe_gets_the_answer_without_the_reasoning() -> None:
    answer = [event(delta={"reasoning_content": "hm"}), *content("so")]
    with running(Script(answers=[answer])) as script:
        assert chat(script, "hi\n").out == "so\n"


class Keyboard:
    """The command in its own pseudo-terminal."""

    def __init__(self, script: Script) -> None:
        pid, self._terminal = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-m", "pellucid", "chat", "--url", script.url])
        self._pid = pid
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read_until(self, text: str) -> str:
        """The output since the last call, up to ``text``. Fails if the program ends first."""
        while text not in self._shown:
            self._shown += os.read(self._terminal, 4096).decode()
        before, self._shown = self._shown.split(text, 1)
        return before

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def close(self) -> None:
        os.close(self._terminal)


@contextmanager
def keyboard(script: Script) -> Iterator[Keyboard]:
    keys = Keyboard(script)
    try:
        yield keys
    finally:
        keys.close()


CTRL_C, CTRL_D = "\x03", "\x04"


def test_in_a_terminal_reasoning_is_dimmed_and_ctrl_d_quits() -> None:
    answer = [event(delta={"reasoning": "hm"}), *content("so", finish_reason="length")]
    with running(Script(answers=[answer])) as script, keyboard(script) as keys:
        keys.read_until("> ")
        keys.type("hi\r")
        assert "\x1b[2mhm\x1b[0m" in keys.read_until("(token limit reached)")
        keys.read_until("> ")
        keys.type(CTRL_D)
        assert keys.wait() == 0


def test_ctrl_c_stops_the_answer_and_not_the_program() -> None:
    script = Script(answers=[content("half")[:1]], hold=True)
    with running(script), keyboard(script) as keys:
        keys.read_until("> ")
        keys.type("one\r")
        keys.read_until("half")
        keys.type(CTRL_C)
        keys.read_until("(stopped)")
        assert script.left.wait(30)
        script.hold = False
        script.answers = [content("whole")]
        keys.type("two\r")
        keys.read_until("whole")
        keys.type("/exit\r")
        assert keys.wait() == 0
    assert script.bodies[1]["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "half"},
        {"role": "user", "content": "two"},
    ]


def test_ctrl_c_at_the_prompt_shows_how_to_quit() -> None:
    with running(Script(answers=[content("x")])) as script, keyboard(script) as keys:
        keys.read_until("> ")
        keys.type("typed in vain")
        keys.read_until("vain")
        time.sleep(0.2)  # readline handles an interrupt between the echo and its next read only after one more key.
        keys.type(CTRL_C)
        keys.read_until("/exit or Ctrl-D quits")
        keys.read_until("> ")
        keys.type(CTRL_D)
        assert keys.wait() == 0


def test_ctrl_c_ends_a_script() -> None:
    script = Script(answers=[content("half")[:1]], hold=True)
    with running(script):
        program = subprocess.Popen(
            [sys.executable, "-m", "pellucid", "chat", "--url", script.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write("one\ntwo\n")
        program.stdin.flush()
        assert program.stdout.read(4) == "half"
        program.send_signal(signal.SIGINT)
        program.communicate()
        assert program.returncode == 130
    assert len(script.bodies) == 1


def test_a_conversation_keeps_only_answered_questions() -> None:
    conversation = Conversation(None)
    conversation.asked("lost")
    conversation.remember("one", "1")
    assert conversation.asked("two") == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
    ]


def test_an_empty_system_prompt_is_sent() -> None:
    assert Conversation("").asked("q")[0] == {"role": "system", "content": ""}


@pytest.mark.parametrize("option", [("--temperature", "3"), ("--max-tokens", "0"), ("--no-such-option",)])
def test_bad_options_are_refused(option: tuple[str, ...]) -> None:
    assert chat(Script(), "hi\n", *option).code == 2
