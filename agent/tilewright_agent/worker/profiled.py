"""The process that is profiled: one launch of a kernel, with memory of its own, where a profiler watches."""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import Any

from .counters import read_trace
from .cuda import Cuda
from .cuda_host import CudaHost
from .protocol import Message
from .terms import room
from .torches import load_torch

LAUNCHES = 3  # that a trace looks at


def main(path: str) -> int:
    """Do the task in a file: `{"program", "arguments", "case", "trace"}`. Returns the exit status.

    With a file name for "trace" torch.profiler looks at some launches and what it says is written there; else one
    launch stands between the calls that tell Nsight Compute to begin and to stop.
    """
    with open(path, encoding="utf-8") as file:
        task: Message = json.load(file)
    torch = load_torch()
    host, device = CudaHost(torch), Cuda(torch)
    launch = host.load(task["program"])(arguments(task, host, device))
    launch()  # compiles, and loads the code onto the device
    host.synchronize()
    if task.get("trace"):
        with open(task["trace"], "w", encoding="utf-8") as file:
            json.dump(_trace(torch, launch, str(task["trace"])), file)
        return 0
    control = torch.cuda.cudart()
    control.cudaProfilerStart()
    launch()
    host.synchronize()
    control.cudaProfilerStop()
    return 0


def arguments(task: Message, host: CudaHost, device: Cuda) -> list[Any]:
    """The arguments of a case, in the order of the kernel: random, or its first draw of index tensors."""
    case: Message = task["case"]
    tables: Message = case["tables"][0] if case.get("tables") else {}
    given: Message = case.get("given") or {}
    made: list[Any] = []
    for i, argument in enumerate(task["arguments"]):
        name, dtype = argument["name"], argument["dtype"]
        if argument["role"] == "scalar":
            made.append(case["scalars"][name])
            continue
        shape, strides = case["shapes"][name], case.get("strides", {}).get(name)
        tensor = host.view(host.buffer(room(shape, strides), dtype), shape, strides, 0)
        if argument["role"] == "out":
            device.poison(tensor, dtype)
        elif name in tables:
            device.load(tensor, zlib.decompress(base64.b64decode(tables[name])), dtype)
        elif name in given:
            device.load(tensor, base64.b64decode(given[name]), dtype)
        else:
            device.fill(tensor, dtype, argument.get("distribution", "normal"), i + 1)
        made.append(tensor)
    return made


def _trace(torch: Any, launch: Any, path: str) -> Message:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(LAUNCHES):
            launch()
        torch.cuda.synchronize()
    raw = f"{path}.chrome"
    profiler.export_chrome_trace(raw)
    try:
        with open(raw, encoding="utf-8") as file:
            return read_trace(json.load(file), LAUNCHES)
    finally:
        os.unlink(raw)
