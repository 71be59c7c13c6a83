"""The session as a state machine: after any sequence of actions each request has ended once, and nothing leaks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from protos.v1 import detokenizer_pb2 as pb
from svclib.errors import InvalidRequest, Overloaded, PeerLost, Unavailable
from svclib.session import SessionLimits, SessionServer
from tests.svclib.pipe import FormatCall, Peers, content, opening, request, settle, text_of

LIMITS = SessionLimits(waiting=150, waiting_in_all=400, unsent=1_000)
FLOOD = 40
"""Letters, one event each: more than may wait of one request."""


@dataclass(eq=False)
class Served:
    """Commands for the server's handler, and what it received."""

    commands: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    inputs: list[int] = field(default_factory=list)
    emitted: str = ""
    over: str = ""


@dataclass(eq=False)
class Asked:
    """What the client's reader received."""

    name: str
    text: str = ""
    terminals: list[str] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    left: bool = False


class SessionMachine(RuleBasedStateMachine):
    requests: Bundle[Asked] = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.served: dict[str, Served] = {}
        self.asked: list[Asked] = []
        self.peers = Peers(SessionServer(self.handle, pb.DetokenizerServerFrame, limits=LIMITS), LIMITS)

    def run(self, turns: int = 30) -> None:
        self.loop.run_until_complete(settle(turns))

    async def handle(self, call: FormatCall) -> None:
        served = self.served[call.request.request_id]
        listening = asyncio.ensure_future(self.listen(call, served))
        try:
            while (command := await served.commands.get()) != "end":
                if command == "fail":
                    raise InvalidRequest("as told")
                served.emitted += command
                call.emit(content(command))
        except asyncio.CancelledError:
            served.over = "cancelled"
            raise
        finally:
            served.over = served.over or "ended"
            listening.cancel()

    async def listen(self, call: FormatCall, served: Served) -> None:
        async for message in call:
            served.inputs.extend(message.token_ids)

    async def read(self, asked: Asked) -> None:
        try:
            async with self.peers.client.open(request(asked.name), opening(asked.name)) as stream:
                asked.stream = stream  # type: ignore[attr-defined]
                while True:
                    await asked.reading.wait()
                    asked.text += text_of(await anext(stream))
        except StopAsyncIteration:
            asked.terminals.append("end")
        except InvalidRequest:
            asked.terminals.append("fail")
        except (PeerLost, Unavailable):
            asked.terminals.append("lost")
        except Overloaded:
            asked.terminals.append("too slow")

    @rule(target=requests, reads=st.booleans())
    def open(self, reads: bool) -> Asked:
        asked = Asked(str(len(self.asked)))
        self.served[asked.name] = Served()
        self.asked.append(asked)

        async def start() -> None:
            if reads:
                asked.reading.set()
            asked.task = asyncio.create_task(self.read(asked))
            await settle(2)

        self.loop.run_until_complete(start())
        return asked

    @rule(asked=requests, letters=st.text("abc", min_size=1, max_size=4))
    def emit(self, asked: Asked, letters: str) -> None:
        for letter in letters:
            self.served[asked.name].commands.put_nowait(letter)
        self.run(3)

    @rule(asked=requests)
    def flood(self, asked: Asked) -> None:
        for _ in range(FLOOD):
            self.served[asked.name].commands.put_nowait("z")
        self.run(2 * FLOOD)

    @rule(asked=requests)
    def flood_the_handler(self, asked: Asked) -> None:
        for _ in range(FLOOD):
            asked.stream.send(pb.FormatInput(token_ids=[7] * 10))  # type: ignore[attr-defined]
            asked.sent.extend([7] * 10)
        self.run(3)

    @rule(reads=st.booleans(), client=st.booleans())
    def stall_or_release_the_wire(self, reads: bool, client: bool) -> None:
        if self.peers.pipes:
            gate = self.peers.pipes[-1].client_reads if client else self.peers.pipes[-1].server_reads
            (gate.set if reads else gate.clear)()
        self.run(3)

    @rule(asked=requests, token=st.integers(0, 9))
    def send(self, asked: Asked, token: int) -> None:
        asked.stream.send(pb.FormatInput(token_ids=[token]))  # type: ignore[attr-defined]
        asked.sent.append(token)
        self.run(3)

    @rule(asked=requests, command=st.sampled_from(["end", "fail"]))
    def finish(self, asked: Asked, command: str) -> None:
        self.served[asked.name].commands.put_nowait(command)
        self.run(3)

    @rule(asked=requests)
    def pause_or_resume_reading(self, asked: Asked) -> None:
        if asked.reading.is_set():
            asked.reading.clear()
        else:
            asked.reading.set()

    @rule(asked=consumes(requests))
    def leave(self, asked: Asked) -> None:
        assert asked.task is not None
        asked.left = not asked.task.done()
        asked.task.cancel()
        self.run(3)

    @rule()
    def lose_the_peer(self) -> None:
        if self.peers.pipes:
            self.peers.pipes[-1].cut()
        self.run(3)

    @invariant()
    def at_most_one_terminal(self) -> None:
        assert all(len(asked.terminals) <= 1 for asked in self.asked)

    @invariant()
    def what_waits_is_bounded(self) -> None:
        assert self.peers.client._allowance.num_bytes <= LIMITS.waiting_in_all
        connection = self.peers.client._connection
        assert connection is None or connection.outbox.num_bytes <= LIMITS.unsent

    @invariant()
    def what_was_read_is_a_prefix_of_what_was_emitted(self) -> None:
        for asked in self.asked:
            assert self.served[asked.name].emitted.startswith(asked.text)

    @invariant()
    def what_was_heard_is_a_prefix_of_what_was_sent(self) -> None:
        for asked in self.asked:
            heard = self.served[asked.name].inputs
            assert heard == asked.sent[: len(heard)]

    def teardown(self) -> None:
        for pipe in self.peers.pipes:
            pipe.client_reads.set()
            pipe.server_reads.set()
        for asked in self.asked:
            asked.reading.set()
            self.served[asked.name].commands.put_nowait("end")
        self.run(60)
        for asked in self.asked:
            assert asked.task is not None
            assert asked.task.done()
            assert len(asked.terminals) == (0 if asked.left else 1)
            if asked.terminals == ["end"]:
                assert asked.text == self.served[asked.name].emitted
        assert self.peers.client.num_open == 0
        assert self.peers.server.num_open == 0
        assert self.peers.client._allowance.num_bytes == 0
        self.loop.run_until_complete(self.peers.client.close())
        self.run()
        assert not [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        self.loop.close()


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=150, stateful_step_count=30)
