"""A fleet as a worker on stdin and stdout: jobs go to machines with a free GPU, results and progress come back."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from tilewright_agent.fleet import GPU, FleetError, node
from tilewright_agent.fleet.certificates import checked_address, security
from tilewright_agent.worker.protocol import PROTOCOL, Message, ProtocolError, decode, encode, failed

CONNECT_SECONDS = 10.0
JOIN_SECONDS = 10.0  # for the first machine
QUEUE_SECONDS = 5.0  # between words to a client that waits for a GPU


def serve(address: str, folder: str) -> int:
    """Greet, and do jobs until stdin ends or the scheduler is lost. Returns the exit status; stderr has the reason."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what dask prints is no message
    try:
        client = _connect(address, folder)
    except FleetError as error:
        print(error, file=sys.stderr)
        return 1
    return _Bridge(client, address, answers).run()


def _connect(address: str, folder: str) -> Any:
    checked_address(address)
    own = security(folder)
    from distributed import Client

    try:
        return Client(address, security=own, timeout=CONNECT_SECONDS, set_as_default=False)
    except OSError as error:
        raise FleetError(
            f"the scheduler {address} cannot be reached: {error}. Does it run, is the port open, and are the "
            f"certificates in {folder} those of this fleet?"
        ) from None


def greeting(hellos: Mapping[str, Message]) -> tuple[Message, list[str]]:
    """The greeting of a fleet whose machines gave these, by address, and those of its machines that jobs may go to.

    Times are compared, so only machines with the same device and the same versions count: the kind of which there are
    most. `slots` is how many jobs run at once.
    """
    hello: Message = {
        "type": "hello", "protocol": PROTOCOL, "host": "", "devices": [], "versions": {}, "capabilities": [],
        "problem": "", "slots": 0,
    }  # fmt: skip
    well = {where: h for where, h in hellos.items() if not h.get("problem") and h.get("protocol") == PROTOCOL}
    if not well:
        reasons = [str(h.get("problem") or f"it speaks protocol {h.get('protocol')}") for h in hellos.values()]
        text = "; ".join(dict.fromkeys(reasons)) or "no machine with a GPU has joined its scheduler"
        return hello | {"problem": f"the fleet has nothing to run on: {text}"}, []
    kinds = Counter(_kind(h) for h in well.values())
    best = max(kinds, key=lambda kind: kinds[kind])
    chosen = {where: h for where, h in well.items() if _kind(h) == best}
    first = next(iter(chosen.values()))
    hosts = ", ".join(sorted({str(h.get("host")) for h in chosen.values()}))
    left = len(hellos) - len(chosen)
    note = f"{left} of {len(hellos)} machines are not used: they have other devices or versions" if left else ""
    same = {key: first[key] for key in ("devices", "versions", "capabilities")}
    return hello | same | {"host": hosts, "slots": len(chosen), "note": note}, list(chosen)


def _kind(hello: Message) -> str:
    devices: list[Message] = hello.get("devices") or [{}]
    versions: Message = hello.get("versions") or {}
    return f"{devices[0].get('name')} {sorted(versions.items())}"


class _Bridge:
    def __init__(self, client: Any, address: str, answers: Any) -> None:
        self.client, self.address, self.answers = client, address, answers
        self.name = f"tilewright-{uuid.uuid4().hex}"
        self.ids: dict[str, Any] = {}  # ours to those of the client
        self.futures: dict[str, Any] = {}
        self.started: set[str] = set()
        self.places: list[str] | None = None
        self.lock = threading.Lock()

    def run(self) -> int:
        self.client.subscribe_topic(self.name, self._progress)
        self._greet()
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            for line in sys.stdin.buffer:
                self._obey(line)
        finally:
            for own in list(self.futures):
                self._stop(own)
        return 0

    def _greet(self) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        found: dict[str, Any] = {}
        while not found and time.monotonic() < deadline:
            workers: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
            found = {where: w for where, w in workers.items() if w["resources"].get(GPU)}
            if not found:
                time.sleep(0.1)
        said: dict[str, bytes] = self.client.run(node.greet, workers=list(found), on_error="ignore") if found else {}
        hellos = {where: decode(line) for where, line in said.items()}
        hello, chosen = greeting(hellos)
        self.places = chosen if len(chosen) < len(found) else None
        self._say({**hello, "host": hello["host"] or socket.gethostname()})

    def _say(self, message: Message) -> None:
        with self.lock:
            self.answers.write(encode(message))

    def _obey(self, line: bytes) -> None:
        try:
            message = decode(line)
        except ProtocolError as error:
            self._say({"type": "error", "message": str(error)})
            return
        if message["type"] == "job" and message.get("protocol") != PROTOCOL:
            text = f"the job is of protocol {message.get('protocol')}, this fleet speaks {PROTOCOL}"
            self._say(failed(message.get("id"), "protocol", text))
        elif message["type"] == "job":
            self._submit(message)
        elif message["type"] == "cancel":
            for own, identity in list(self.ids.items()):
                if identity == message.get("id"):
                    self._stop(own)
                    self._say(failed(identity, "cancelled", "cancelled"))

    def _submit(self, job: Message) -> None:
        own = f"{self.name}-{uuid.uuid4().hex[:8]}"
        self.ids[own] = job["id"]
        # Once only: it may be the kernel that takes its machine down, and a client knows better whether to try again.
        future = self.client.submit(
            node.run_job, encode({**job, "id": own}), self.name, key=own, resources={GPU: 1}, retries=0, pure=False,
            workers=self.places,
        )  # fmt: skip
        self.futures[own] = future
        future.add_done_callback(partial(self._done, own))

    def _done(self, own: str, future: Any) -> None:
        identity = self.ids.pop(own, None)
        self.futures.pop(own, None)
        self.started.discard(own)
        if identity is None or future.cancelled():
            return
        try:
            result = decode(future.result())
        except Exception as error:
            text = "a machine of the fleet was lost while it did the job" if _lost(error) else f"the fleet: {error}"
            self._say(failed(identity, "connection", text))
            return
        self._say({**result, "id": identity})

    def _progress(self, event: tuple[float, Message]) -> None:
        message = event[1]
        own = str(message.get("id"))
        self.started.add(own)
        if own in self.ids and message.get("stage") != "start":
            self._say({**message, "id": self.ids[own]})

    def _watch(self) -> None:
        """Say that jobs wait, and end when the scheduler is gone: what it was doing is unknown."""
        while self.client.status in ("running", "connecting", "newly-created"):
            for own, identity in list(self.ids.items()):
                if own not in self.started:
                    text = "waiting for a free GPU of the fleet"
                    self._say({
                        "type": "progress", "id": identity, "stage": "queue", "done": 0, "total": 1, "message": text,
                    })  # fmt: skip
            for _ in range(int(QUEUE_SECONDS / 0.25)):
                time.sleep(0.25)
                if self.client.status not in ("running", "newly-created"):
                    break
            if self.client.status != "running":
                break
        print(f"the scheduler {self.address} is gone", file=sys.stderr, flush=True)
        os._exit(1)

    def _stop(self, own: str) -> None:
        future = self.futures.pop(own, None)
        self.ids.pop(own, None)
        if future is None:
            return
        try:
            self.client.run(node.cancel, own, on_error="ignore")
            future.cancel()
        except Exception as error:  # the scheduler is gone, and the job with it
            print(f"cannot cancel: {error}", file=sys.stderr)


def _lost(error: Exception) -> bool:
    return type(error).__name__ == "KilledWorker"
