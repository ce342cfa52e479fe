"""Messages between a client and the worker: one JSON object a line, UTF-8, in both directions.

The worker speaks first::

    {"type": "hello", "protocol": 3, "host": "…", "devices": [{"kind": "cuda", "name": "NVIDIA H200", …}],
     "versions": {"python": "3.12.3", "torch": "2.11.0", …}, "capabilities": ["run"], "problem": ""}

`capabilities` holds "run" where there is a GPU with torch and triton, and "interpret" where Tilewright is installed.
The client then sends jobs, which the worker does one after the other::

    {"type": "job", "protocol": 3, "id": "1", "kernel": "gemm", "device": "auto" | "gpu" | "interpreter",
     "module": "<generated Python>", "dsl": {"source": "<kernel file>", "kernel": "gemm"},
     "arguments": [{"name": "A", "dtype": "f16", "role": "in", "distribution": "normal"}, …],
     "reference": "C = A.float() @ B.float()", "tolerance": {"C": 0.002},
     "cases": [{"sizes": {"M": 256, …}, "shapes": {"A": [256, 64], …}, "scalars": {"alpha": 0.5, …}, "seed": 1,
                "strides": {"A": [72, 1], …},
                "measure": true, "given": {"A": "<base64>", …}, "expected": {"C": "<base64>"},
                "tables": [{"IDS": "<base64 of zlib>", …}, …]}],
     "seconds": 300, "memory": 16000000000, "profile": false}

`memory` is the most that the process of the job may hold on the host, in bytes; by default most of what the host has.

A job may bring a second kernel to race instead of the reference, as `"baseline": {"kernel": "other", "module": "…",
"dsl": {…}}`, over the same arguments; its results then come as `baseline_correct`, `baseline_max_error` and
`baseline_message`, and it is timed only when it is right.

`arguments` stand in the order of the kernel; one of role "scalar" takes its value from the case.
`strides`, in elements, are given where a tensor is not row-major without gaps. `module` defines
`prepare(*arguments)`, which returns a function that launches; an interpreter takes `dsl` instead.
`distribution` is "normal", "uniform" (0 to 1) or "index" (small integers). `given` and `expected` are raw
little-endian elements; they replace random inputs and the reference where there is none. `tables` are draws of the
inputs that must satisfy what the kernel assumes of its data, as raw elements compressed with zlib; the first is to
check on, the next ones, in turn, for the sets to time and for the launches after that. Other inputs are random, on GPUs
from seeds that nobody knows; signed integers of 8 bits from -8 to 7, so that sums of products stay small. With neither
`expected` nor a reference, `correct` is null unless the kernel breaks something. For each job come any number of
progress messages and one result::

    {"type": "progress", "id": "1", "stage": "check", "done": 1, "total": 3, "message": "…"}
    {"type": "result", "id": "1", "status": "ok" | "failed", "failure": "", "message": "…", "device": "NVIDIA H200",
     "cases": [{"sizes": {…}, "correct": true, "max_error": 0.0, "message": "", "median_ms": 0.2, "spread_ms": 0.01,
                "baseline_ms": 0.2, "baseline_spread_ms": 0.01, "warm_ms": 0.18, "baseline_warm_ms": 0.19,
                "method": "events" | "graph", "sets": 3, "repetitions": 50}]}

With `"profile": true` a GPU launches the kernel of the first timed case once more, under a profiler, and the result has
`"profile": {"tool": "ncu" | "torch.profiler" | "", "why": "…", "sizes": {…}, "name": "…", "kernels": 1,
"counters": {"time_us": …}, "stalls": {"long_scoreboard": 0.4, …}}`, with the names of `counters`. A worker that knows
no profiles leaves it out.

The stage "queue" says that the job waits for the device, on which only one job runs at a time, of whichever worker; its
`seconds` have not begun.

`median_ms` is with a cold L2, `warm_ms` with what the launch before has left there; short kernels are timed warm in a
CUDA graph, where no time of the host is in them. `sets` of arguments were used in turn.

`failure` is one of `FAILURES`. Times are null unless a GPU was timed. `{"type": "cancel", "id": "1"}` ends a job,
waiting or running; `{"type": "shutdown"}` or the end of the input ends the worker. What the worker cannot read at all
is answered by `{"type": "error", "message": "…"}`.
"""

from __future__ import annotations

import json
import math
from typing import Any, cast

PROTOCOL = 3

Message = dict[str, Any]

FAILURES = {
    "bad job": "the job lacks something, or holds what it may not",
    "protocol": "the job is of another version of the protocol",
    "unsupported": "this machine cannot do it",
    "compile": "the kernel did not compile or load",
    "launch": "the kernel or the device raised an error",
    "illegal access": "the kernel touched memory that is not its own",
    "out of memory": "the device or the machine has too little memory",
    "disk full": "the machine has no room for the files of the job",
    "tampered": "the kernel's process interfered with its grading",
    "reference": "the reference could not be evaluated",
    "crash": "the process of the job died",
    "timeout": "the job took longer than its limit",
    "connection": "the machine that did the job was lost",
    "cancelled": "the client asked to end it",
}


class ProtocolError(Exception):
    """A line that is no message."""


def encode(message: Message) -> bytes:
    """The line of a message. Numbers that JSON lacks (infinity, NaN) become null."""
    text = json.dumps(_finite(message), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> Message:
    """The message of a line. Raises ProtocolError, which quotes the beginning of the line."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a JSON line ({error}): {_excerpt(line)}") from None
    if not isinstance(message, dict) or not isinstance(cast("Message", message).get("type"), str):
        raise ProtocolError(f"not an object with a type: {_excerpt(line)}")
    return cast("Message", message)


def failed(identity: object, failure: str, message: str, device: str = "") -> Message:
    """The result of a job that did not come to an end."""
    return {
        "type": "result", "id": identity, "status": "failed", "failure": failure, "message": message,
        "device": device, "cases": [],
    }  # fmt: skip


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in cast("Message", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in cast("list[Any]", value)]
    return value


def _excerpt(line: bytes) -> str:
    text = line[:120].decode("utf-8", "replace").strip()
    return repr(text) + ("…" if len(line) > 120 else "")
