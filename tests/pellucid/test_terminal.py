from __future__ import annotations

import io
import subprocess
import sys
import threading

from rich.console import Console

from pellucid.terminal import Progress, Terminal

NAMES = ("gateway", "tokenizer", "engine", "detokenizer")


def written(act: object, *, terminal: bool = False, **console: object) -> str:
    """The output after ``act(terminal)``."""
    out = io.StringIO()
    assert callable(act)
    with Terminal(Console(file=out, force_terminal=terminal, width=80), NAMES, "the banner") as shown:
        act(shown)
    return out.getvalue()


def test_lines_begin_with_the_name_of_their_service() -> None:
    assert written(lambda t: t.line("engine", "loading [bold]weights[/bold] :smile:")) == (
        "engine      | loading [bold]weights[/bold] :smile:\n"
    )


def test_a_long_line_stays_one_line() -> None:
    assert written(lambda t: t.line("engine", "x" * 500)).count("\n") == 1


def test_colours_of_a_service_are_kept_on_a_terminal_and_dropped_in_a_pipe() -> None:
    def act(terminal: Terminal) -> None:
        terminal.line("engine", "\x1b[31mred\x1b[0m")

    assert "\x1b[33mengine      | \x1b[0m\x1b[31mred\x1b[0m" in written(act, terminal=True)
    assert written(act) == "engine      | red\n"


def test_a_restart_is_shown_with_reason_and_delay() -> None:
    text = written(lambda t: t.ended("engine", "was killed by SIGKILL", 0.25))
    assert "engine was killed by SIGKILL; restarting in 0.25 s" in text


def test_an_end_without_restart_shows_no_delay() -> None:
    text = written(lambda t: t.ended("engine", "exited with code 2", None))
    assert "engine exited with code 2\n" in text


def test_the_banner_can_be_copied() -> None:
    assert "\nthe banner\n" in f"\n{written(lambda t: t.all_ready())}"


def test_the_last_lines_of_a_failed_service_are_shown_last() -> None:
    def act(terminal: Terminal) -> None:
        terminal.gave_up("engine", "invalid setting", ["the reason"])
        terminal.line("gateway", "much more")

    lines = written(act).splitlines()
    assert lines[-2:] == ["pellucid    | last lines of engine:", "engine      | the reason"]


def test_the_ports_and_pids_are_shown() -> None:
    assert "engine started, pid 17" in written(lambda t: t.starting("engine", 17))


def test_progress_shows_the_state_of_each_service() -> None:
    progress = Progress(("a", "b"))
    progress.set("a", "ready")
    assert progress.text() == "a ready, b starting (0 s)"


def test_on_a_terminal_progress_is_drawn_and_removed() -> None:
    drawn = threading.Event()

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            if "gateway starting" in text:
                drawn.set()
            return super().write(text)

    screen = Screen()
    with Terminal(Console(file=screen, force_terminal=True, width=200), NAMES, "the banner") as terminal:
        assert drawn.wait(30)
        terminal.all_ready()
    assert screen.getvalue().rstrip().endswith("the banner")


def test_a_blocked_terminal_drops_and_counts_lines() -> None:
    go_on = threading.Event()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            go_on.wait()
            return super().write(text)

    out = Stuck()
    with Terminal(Console(file=out, width=80), NAMES, "") as terminal:
        for number in range(12_000):
            terminal.line("engine", str(number))
        go_on.set()
    text = out.getvalue()
    assert "engine      | 0\n" in text
    assert "lines dropped" in text


WITHOUT_A_READER = """
import sys
from rich.console import Console
from pellucid.terminal import Terminal

sys.stdin.readline()
with Terminal(Console(file=sys.stdout), ("engine",), "") as terminal:
    for number in range(100):
        terminal.line("engine", str(number))
print("went on", file=sys.stderr)
"""


def test_a_closed_terminal_does_not_stop_the_program() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_A_READER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stderr is not None
    program.stdout.close()
    program.stdin.write("go\n")
    program.stdin.close()
    assert program.stderr.read() == "went on\n"
    assert program.wait() == 0
