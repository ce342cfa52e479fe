/** Results as text for a person, and changes to text; nothing here needs the editor. */
import type { CheckResult, RunResult } from "./protocol";

/** Three significant digits with a unit between µs and s. */
export function formatTime(milliseconds: number): string {
  if (milliseconds < 0.1) {
    return `${significant(milliseconds * 1000)} µs`;
  }
  return milliseconds < 1000 ? `${significant(milliseconds)} ms` : `${significant(milliseconds / 1000)} s`;
}

/** Such as "gemm: correct (max error 1.0e-3), 0.12 ms on NVIDIA H200, 1.02x torch". */
export function describeRun(kernel: string, run: RunResult): string {
  const where = run.label ?? run.device;
  const outcome = run.correct === null ? "not compared with a reference" : run.correct ? "correct" : "wrong results";
  const error = run.max_error == null ? "" : ` (max error ${run.max_error.toExponential(1)})`;
  let text = `${kernel}: ${outcome}${error}`;
  if (run.median_ms == null) {
    text += ` on ${where}`;
  } else {
    text += `, ${formatTime(run.median_ms)} on ${where}`;
    if (run.baseline_ms != null && run.median_ms > 0) {
      text += `, ${(run.baseline_ms / run.median_ms).toFixed(2)}x torch`;
    }
  }
  return run.message ? `${text}. ${run.message}` : text;
}

/** A runner for the status bar: its name, or the beginning of a long command. */
export function shortRunner(runner: string): string {
  return runner.length > 24 ? `${runner.slice(0, 23)}…` : runner;
}

/** Such as "gemm: refuted, 12 of 14 obligations proved, 1 refuted, 1 unknown". */
export function describeCheck(kernel: string, { verdict, proved, refuted, unknown }: CheckResult): string {
  const total = proved + refuted + unknown;
  const rest = [refuted > 0 ? `${refuted} refuted` : "", unknown > 0 ? `${unknown} unknown` : ""].filter(Boolean);
  return [`${kernel}: ${verdict}, ${proved} of ${total} obligations proved`, ...rest].join(", ");
}

/**
 * The one replacement that turns `before` into `after`, as offsets into `before`. Whole lines, so that cursors,
 * breakpoints and folds outside the rewritten kernel stay where they are.
 */
export function smallestChange(before: string, after: string): { start: number; end: number; text: string } {
  const old = before.split(/(?<=\n)/);
  const fresh = after.split(/(?<=\n)/);
  const shorter = Math.min(old.length, fresh.length);
  let head = 0;
  while (head < shorter && old[head] === fresh[head]) {
    head += 1;
  }
  let tail = 0;
  while (tail < shorter - head && old.at(-1 - tail) === fresh.at(-1 - tail)) {
    tail += 1;
  }
  const start = old.slice(0, head).join("").length;
  const end = old.slice(0, old.length - tail).join("").length;
  return { start, end, text: fresh.slice(head, fresh.length - tail).join("") };
}

function significant(value: number): string {
  return value >= 1000 ? value.toFixed(0) : value.toPrecision(3);
}
