from __future__ import annotations

import asyncio
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.process import ServiceProcess, how_it_ended, lines
from tests.pellucid.children import Programs, is_alive


async def run(module: str, *arguments: str) -> tuple[int, list[str]]:
    printed: list[str] = []
    process = await ServiceProcess.start(module, arguments, printed.append)
    return await process.wait(), printed


async def test_stdout_and_stderr_arrive_line_by_line(programs: Programs) -> None:
    programs.write("talks", "import sys; print('one'); print('two', file=sys.stderr); print('three', end='')")
    assert await run("talks") == (0, ["one", "two", "three"])


async def test_the_module_runs_as_main_with_its_arguments(programs: Programs) -> None:
    programs.write("shows", "import sys; print(__name__, sys.argv[0].endswith('shows.py'), sys.argv[1:])")
    assert await run("shows", "--port=1", "x y") == (0, ["__main__ True ['--port=1', 'x y']"])


@pytest.mark.parametrize("code", [0, 1, 2, 77])
async def test_the_exit_code_is_the_programs(programs: Programs, code: int) -> None:
    programs.write("exits", f"raise SystemExit({code})")
    assert await run("exits") == (code, [])


async def test_an_exception_is_printed(programs: Programs) -> None:
    programs.write("raises", "raise ValueError('no luck')")
    code, printed = await run("raises")
    assert code == 1
    assert printed[-1] == "ValueError: no luck"


async def test_exit_code_of_a_killed_process(programs: Programs) -> None:
    programs.write("sleeps")
    up = asyncio.Event()
    process = await ServiceProcess.start("sleeps", (), lambda _: up.set())
    await up.wait()
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    process.kill()
    process.terminate()  # Both without effect, and without an error.


async def test_a_grandchild_that_keeps_the_output_open_does_not_block_wait(programs: Programs) -> None:
    programs.write(
        "parent",
        """
        import os, subprocess, sys
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
        os._exit(3)
        """,
    )
    code, printed = await run("parent")
    grandchild = int(printed[0])
    assert code == 3
    assert is_alive(grandchild)
    os.kill(grandchild, signal.SIGKILL)


async def test_a_child_has_its_own_process_group(programs: Programs) -> None:
    programs.write("group", "import os; print(os.getpgid(0) == os.getpid())")
    assert await run("group") == (0, ["True"])


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_lines_do_not_depend_on_chunking(chunks: list[bytes]) -> None:
    async def collect(pieces: list[bytes]) -> list[str]:
        reader = asyncio.StreamReader()
        found: list[str] = []

        async def read() -> None:
            found.extend([line async for line in lines(reader)])

        reading = asyncio.create_task(read())
        for piece in pieces:
            reader.feed_data(piece)
            await asyncio.sleep(0)
        reader.feed_eof()
        await reading
        return found

    assert asyncio.run(collect(chunks)) == asyncio.run(collect([b"".join(chunks)]))


async def collected(data: bytes) -> list[str]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return [line async for line in lines(reader)]


async def test_carriage_returns_end_lines() -> None:
    assert await collected(b"10%\r20%\r\n\n  \ndone") == ["10%", "20%", "done"]


async def test_invalid_utf8_is_replaced() -> None:
    assert await collected(b"a\xffb\n") == ["a\ufffdb"]


async def test_a_long_line_is_split() -> None:
    pieces = await collected(b"x" * 1_000_000)
    assert "".join(pieces) == "x" * 1_000_000
    assert max(map(len, pieces)) <= 2 * 64 * 1024


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (1, "exited with code 1"),
        (-9, "was killed by SIGKILL"),
        (-99, "was killed by signal 99"),
    ],
)
def test_how_it_ended(code: int, words: str) -> None:
    assert how_it_ended(code) == words
