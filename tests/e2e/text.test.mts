/** The parts of the extension that need no editor: results as text, and the smallest edit between two documents. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { describeCheck, describeRun, formatTime, smallestChange } from "../../vscode-client/src/text.ts";

function applied(before: string, after: string): string {
  const { start, end, text } = smallestChange(before, after);
  assert.ok(0 <= start && start <= end && end <= before.length, `range ${start}..${end} of ${before.length}`);
  return before.slice(0, start) + text + before.slice(end);
}

test("a run on a GPU shows error, time, device and the ratio to torch", () => {
  const run = { device: "NVIDIA H200", correct: true, max_error: 1e-3, median_ms: 0.12, baseline_ms: 0.1224 };
  assert.equal(describeRun("gemm", run), "gemm: correct (max error 1.0e-3), 0.120 ms on NVIDIA H200, 1.02x torch");
});

test("a run on the interpreter says so and claims no speed", () => {
  const run = { device: "cpu", label: "interpreter (no GPU)", correct: true, max_error: 0, median_ms: null };
  assert.equal(describeRun("gemm", run), "gemm: correct (max error 0.0e+0) on interpreter (no GPU)");
});

test("wrong and uncompared results are not called correct", () => {
  assert.equal(describeRun("k", { device: "cpu", correct: false, max_error: 2 }), "k: wrong results (max error 2.0e+0) on cpu");
  assert.equal(describeRun("k", { device: "cpu", correct: null }), "k: not compared with a reference on cpu");
});

test("a check counts the obligations", () => {
  const counts = { verdict: "refuted" as const, proved: 12, refuted: 1, unknown: 1 };
  assert.equal(describeCheck("gemm", counts), "gemm: refuted, 12 of 14 obligations proved, 1 refuted, 1 unknown");
});

test("times have three digits and a fitting unit", () => {
  assert.deepEqual([0.01234, 0.5, 12.345, 1500, 2_000_000].map(formatTime), ["12.3 µs", "0.500 ms", "12.3 ms", "1.50 s", "2000 s"]);
});

test("an edit covers whole lines and nothing around them", () => {
  const before = "a\nkernel = 3\nb\n";
  assert.deepEqual(smallestChange(before, "a\nkernel = 4\nb\n"), { start: 2, end: 13, text: "kernel = 4\n" });
});

test("the smallest change turns any text into any other", () => {
  let seed = 1;
  const random = (below: number): number => {
    seed = (seed * 48271) % 2147483647;
    return seed % below;
  };
  const text = (): string => Array.from({ length: random(12) }, () => "ab\n"[random(3)]).join("");
  for (let round = 0; round < 20_000; round += 1) {
    const [before, after] = [text(), text()];
    assert.equal(applied(before, after), after, JSON.stringify({ before, after }));
  }
});
