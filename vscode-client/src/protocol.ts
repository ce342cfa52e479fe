/**
 * What the extension and the language server say to each other beyond the Language Server Protocol: server
 * commands sent with `workspace/executeCommand`, and one notification.
 */

/** The argument of every command: which kernel of which document. */
export interface KernelReference {
  readonly uri: string;
  readonly kernel: string;
}

export const serverCommand = {
  check: "tilewright.server.check",
  run: "tilewright.server.run",
  profile: "tilewright.server.profile",
  report: "tilewright.server.report",
  runners: "tilewright.server.runners",
  optimize: "tilewright.server.optimize",
  expand: "tilewright.server.expand",
} as const;

export type Verdict = "proved" | "refuted" | "unknown";

/** Numbers of obligations by verdict. */
export interface Counts {
  readonly proved: number;
  readonly refuted: number;
  readonly unknown: number;
}

export interface CheckResult extends Counts {
  readonly verdict: Verdict;
}

/** One run of a kernel; absent figures were not measured. */
export interface RunResult {
  /** What executed the kernel, such as "NVIDIA H200" or "interpreter". */
  readonly device: string;
  /** A caption for the result when `device` alone would mislead, such as "interpreter (no GPU)". */
  readonly label?: string | null;
  readonly correct: boolean | null;
  readonly max_error?: number | null;
  readonly median_ms?: number | null;
  /** Time of the reference implementation in the same run. */
  readonly baseline_ms?: number | null;
  readonly shapes?: unknown;
  readonly message?: string | null;
}

/** The last run of a kernel as a page of Markdown. */
export interface ReportResult {
  readonly markdown: string;
}

/** Runners that a document can use: this machine first, then those of `pyproject.toml`. */
export interface RunnersResult {
  readonly runners: readonly { readonly name: string; readonly command: string }[];
  /** The file that names them; empty when there is none. */
  readonly file: string;
  /** Why that file cannot be read; empty when all is well. */
  readonly problem: string;
}

export interface Variant {
  readonly title: string;
  readonly verdict: string;
  readonly predicted_us?: number | null;
  readonly measured_ms?: number | null;
}

/** The best verified rewrite of a kernel: `original` and `proposed` are whole documents. */
export interface OptimizeResult {
  readonly kernel: string;
  readonly original: string;
  readonly proposed: string;
  readonly verdict: string;
  /** Markdown. */
  readonly summary: string;
  /** Best first. */
  readonly variants: readonly Variant[];
}

export interface ExpandResult {
  readonly source: string;
}

export const statusNotification = "tilewright/status";

/** Progress of checking. `kernel` null speaks of the whole document. */
export interface StatusParams extends Counts {
  readonly uri: string;
  readonly kernel: string | null;
  readonly state: "checking" | "done";
}

/** Settings the server acts on, sent with `initialize` and with `workspace/didChangeConfiguration`. */
export interface ServerSettings {
  /** Empty: as the kernel says. */
  readonly target: string;
  /** "local" or the command of a worker. */
  readonly runner: string;
}

/** Sent with `initialize`. The server refuses to run kernels when the workspace is not trusted. */
export interface InitializationOptions extends ServerSettings {
  readonly workspaceTrusted: boolean;
}
