"""An HTTP server with scripted answers, valid and invalid."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Script:
    """Scripted answers, and the recorded requests."""

    status: int = 200
    answers: list[Sequence[str]] = field(default_factory=list)
    """Bodies of successive chat answers, each as the pieces that are sent; the last one repeats."""
    models: str = '{"object": "list", "data": [{"id": "first"}, {"id": "second"}]}'
    hold: bool = False
    """Keep the connection open after the last piece, until the client leaves."""
    paths: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client disconnects while the connection is held."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running(script: Script) -> Iterator[Script]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._note()
            self._head(script.status, "application/json")
            self.wfile.write(script.models.encode())

        def do_POST(self) -> None:
            self._note()
            script.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            kind = "text/event-stream" if script.status == 200 else "application/json"
            self._head(script.status, kind)
            for piece in script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]:
                self.wfile.write(piece.encode())
                self.wfile.flush()
            if script.hold and not self.rfile.read(1):
                script.left.set()

        def _note(self) -> None:
            script.paths.append(self.path)
            script.headers.append({name.lower(): value for name, value in self.headers.items()})

        def _head(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def event(**choice: object) -> str:
    """One chunk with one choice."""
    return f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n"


def content(*texts: str, finish_reason: str = "stop") -> list[str]:
    """A whole answer."""
    pieces = [event(delta={"content": text}, finish_reason=None) for text in texts]
    return [*pieces, event(delta={}, finish_reason=finish_reason), "data: [DONE]\n\n"]
