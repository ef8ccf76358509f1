"""A small server that speaks OpenAI's API and answers made arithmetic, well or badly.

It computes the answers itself: a stand-in for a model that is served elsewhere, not for vLLM.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_STEPS = re.compile(r"(gets|loses) (\d+)")
_FIRST = re.compile(r"has (\d+)")

Answerer = Callable[[str, int], str | None]
"""From a prompt and the number of requests before it to a response; None: an error 500."""


class StopServingError(Exception):
    """Raised by an Answerer: the server goes away without another word."""


def right(prompt: str, count: int = 0) -> str:
    """The worked answer."""
    found = _FIRST.search(prompt)
    assert found is not None
    tally, lines = int(found[1]), []
    for verb, change in _STEPS.findall(prompt):
        after = tally + int(change) * (1 if verb == "gets" else -1)
        lines.append(f"{tally}{'+' if verb == 'gets' else '-'}{change}={after}")
        tally = after
    return "\n".join([*lines, f"#### {tally}"])


def wrong(prompt: str, count: int = 0) -> str:
    """An answer of the right form and length, one too high."""
    text, _, number = right(prompt).rpartition("#### ")
    return f"{text}#### {int(number) + 1}"


@contextmanager
def answering(answer: Answerer) -> Iterator[str]:
    """The address of a running server whose responses `answer` makes."""
    server = _Server(answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.stop()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Answerer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.count = 0
        self.stopped = False
        self.lock = threading.Lock()

    def stop(self) -> None:
        with self.lock:
            if self.stopped:
                return
            self.stopped = True
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._send({"data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        with self.server.lock:
            count = self.server.count
            self.server.count += 1
        try:
            text = self.server.answer(prompt, count)
        except StopServingError:
            self.server.stop()
            return
        if text is None:
            self.send_error(500)
            return
        self._send(_completion(body, text))

    def _send(self, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""


def _completion(body: dict[str, Any], text: str) -> dict[str, Any]:
    tokens = text.split()
    usage = {"completion_tokens": len(tokens)}
    if "prompt" in body:
        logprobs = {"token_logprobs": [-0.5] * len(tokens)} if "logprobs" in body else None
        choice: dict[str, Any] = {"text": text, "logprobs": logprobs, "finish_reason": "stop"}
    else:
        told = {"content": [{"logprob": -0.5} for _ in tokens]} if body["logprobs"] else None
        message = {"role": "assistant", "content": text}
        choice = {"message": message, "logprobs": told, "finish_reason": "stop"}
    return {"choices": [choice], "usage": usage}
