"""A verifier that does what comments in the kernel say, for tests of the server around it.

Python imports this module at the start when its folder is on PYTHONPATH. The front end stays the real one.
`# verifier: refute TEXT` refutes at that line; `slow N` decides N obligations, one each 50 ms, and can be cancelled;
`hang` never returns; `exit` ends the process; `exit once FILE` does so unless FILE exists, and creates it;
`raise` raises; `print` writes to stdout. Without a comment, three obligations are proved.
"""

import os
import re
import sys
import time
from pathlib import Path


def check(unit, *, on_obligation=None, cancelled=None):
    from tilewright.problem import Edit, Fix, Related
    from tilewright.source import Span
    from tilewright_analysis.report import Counterexample, Finding, KernelReport, Obligation, TraceStep

    log = os.environ.get("FAKE_VERIFIER_LOG")
    if log:
        with open(log, "a", encoding="utf-8") as stream:
            stream.write(f"{unit.name}\n")
    problems = tuple(Finding.of(problem, unit.name) for problem in unit.problems)
    if unit.kernel is None:
        return KernelReport(unit.name, Span(0, len(unit.text.encode())), (), problems)
    obligations = []

    def decide(obligation):
        obligations.append(obligation)
        if on_obligation is not None:
            on_obligation(obligation)

    data = unit.text.encode()
    for match in re.finditer(rb"# verifier: (\w+) ?([^\r\n]*)", data):
        word, rest = match[1].decode(), match[2].decode()
        line_start = max(data.rfind(b"\n", 0, match.start()), data.rfind(b"\r", 0, match.start())) + 1
        code = data[line_start : match.start()]
        span = Span(line_start + len(code) - len(code.lstrip()), line_start + len(code.rstrip()))
        if word == "refute":
            example = Counterexample(
                {"M": 1, "K": 65}, 3, {"k": 64}, "load", {"warp": 1, "lane": 2}, (0, 7), {"want": "1", "got": "2"},
                (TraceStep(Span(0, 3), "it starts", "load"), TraceStep(span, "it ends")), True,
            )  # fmt: skip
            fix = Fix("Remove the comment", (Edit(Span(match.start(), match.end()), ""),))
            finding = Finding(
                "TW202",
                rest,
                span,
                unit.name,
                counterexample=example,
                related=(Related(Span(0, 3), "here"),),
                fixes=(fix,),
            )
            decide(Obligation("TW202", "memory", "in bounds", span, "refuted", finding))
        elif word == "unknown":
            finding = Finding("TW402", rest, span, unit.name, "unknown", "warning")
            decide(Obligation("TW402", "async", "phases", span, "unknown", finding))
        elif word == "slow":
            for number in range(int(rest)):
                if cancelled is not None and cancelled():
                    break
                time.sleep(0.05)
                decide(Obligation("TW201", "memory", f"step {number}", span, "proved"))
        elif word == "hang":
            while True:
                time.sleep(1)
        elif word == "exit":
            marker = rest.removeprefix("once ").strip()
            if not marker or not Path(marker).exists():
                if marker:
                    Path(marker).touch()
                os._exit(3)
        elif word == "raise":
            raise RuntimeError("seeded failure")
        elif word == "print":
            print("this must not reach the protocol")
    if not obligations:
        for family in ("memory", "grid", "async"):
            decide(Obligation("TW201", family, f"{family} is right", Span(0, 3), "proved", how="by fiat"))
    return KernelReport(unit.name, Span(0, len(data)), tuple(obligations), problems, 1.0)


if "tilewright" in " ".join(sys.orig_argv):
    from tilewright_server import engine

    engine.check = check
    engine.load_verifier = lambda: None
