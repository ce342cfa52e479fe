/** The status bar item: what the server is doing, and the verdict on the document in front of the person. */
import * as vscode from "vscode";
import type { Counts, StatusParams } from "./protocol";

export type ServerState = "idle" | "starting" | "running" | "stopped";

interface DocumentStatus {
  checking: boolean;
  /** Counts of the whole document when the server sent them. */
  total: Counts | undefined;
  readonly kernels: Map<string, StatusParams>;
  /** Kernels reported since the last message on the whole document; the others are gone from it. */
  readonly reported: Set<string>;
}

export class StatusBar implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;
  private readonly documents = new Map<string, DocumentStatus>();
  private readonly subscriptions: vscode.Disposable;
  private server: ServerState = "idle";

  constructor(clickCommand: string) {
    this.item = vscode.window.createStatusBarItem("tilewright.status", vscode.StatusBarAlignment.Left, 10);
    this.item.name = "Tilewright";
    this.item.command = clickCommand;
    this.subscriptions = vscode.Disposable.from(
      this.item,
      vscode.window.onDidChangeActiveTextEditor(() => {
        this.show();
      }),
      vscode.workspace.onDidCloseTextDocument((document) => {
        this.documents.delete(document.uri.toString());
        this.show();
      }),
    );
  }

  setServer(state: ServerState): void {
    this.server = state;
    if (state !== "running") {
      this.documents.clear(); // verdicts of a server that is gone may no longer hold
    }
    this.show();
  }

  update(status: StatusParams): void {
    const uri = vscode.Uri.parse(status.uri).toString(); // the server may escape differently
    const known = this.documents.get(uri) ?? {
      checking: false,
      total: undefined,
      kernels: new Map<string, StatusParams>(),
      reported: new Set<string>(),
    };
    this.documents.set(uri, known);
    if (status.kernel !== null) {
      known.kernels.set(status.kernel, status);
      known.reported.add(status.kernel);
    } else if (status.state === "checking") {
      known.checking = true;
      known.total = undefined;
      known.reported.clear();
    } else {
      known.checking = false;
      known.total = counts(status);
      for (const kernel of [...known.kernels.keys()].filter((name) => !known.reported.has(name))) {
        known.kernels.delete(kernel);
      }
      known.reported.clear();
    }
    this.show();
  }

  dispose(): void {
    this.subscriptions.dispose();
  }

  private show(): void {
    const document = vscode.window.activeTextEditor?.document;
    const status = document && this.documents.get(document.uri.toString());
    this.item.backgroundColor = undefined;
    if (document?.languageId !== "python" || this.server === "idle") {
      this.item.hide();
      return;
    }
    if (this.server === "starting") {
      this.set("$(sync~spin) Tilewright: starting", "The language server is starting.");
    } else if (this.server === "stopped") {
      this.set("$(error) Tilewright: server stopped", "The language server is not running. Click to see its output.");
      this.item.backgroundColor = new vscode.ThemeColor("statusBarItem.errorBackground");
    } else if (status === undefined) {
      this.item.hide(); // a Python file without kernels
    } else {
      this.showVerdicts(status);
    }
  }

  private showVerdicts(status: DocumentStatus): void {
    const kernels = [...status.kernels.values()];
    const total = status.total ?? sum(kernels);
    const lines = kernels.map(
      (kernel) => `${kernel.kernel ?? ""}: ${kernel.state === "checking" ? "checking" : describeCounts(kernel)}`,
    );
    const tooltip = [...lines, "Click to see the output of Tilewright."].join("\n");
    if (status.checking || kernels.some((kernel) => kernel.state === "checking")) {
      this.set("$(sync~spin) Tilewright: checking", tooltip);
    } else if (total.proved + total.refuted + total.unknown === 0) {
      this.set("$(warning) Tilewright: no verdict", tooltip); // such as a kernel with a syntax error
    } else {
      const icon = total.refuted > 0 ? "$(error)" : total.unknown > 0 ? "$(question)" : "$(pass)";
      this.set(`${icon} Tilewright: ${describeCounts(total)}`, tooltip);
    }
  }

  private set(text: string, tooltip: string): void {
    this.item.text = text;
    this.item.tooltip = tooltip;
    this.item.show();
  }
}

/** Such as "12 proved / 1 refuted / 0 unknown". */
export function describeCounts({ proved, refuted, unknown }: Counts): string {
  return `${proved} proved / ${refuted} refuted / ${unknown} unknown`;
}

function counts({ proved, refuted, unknown }: Counts): Counts {
  return { proved, refuted, unknown };
}

function sum(all: readonly Counts[]): Counts {
  const total = { proved: 0, refuted: 0, unknown: 0 };
  for (const each of all) {
    total.proved += each.proved;
    total.refuted += each.refuted;
    total.unknown += each.unknown;
  }
  return total;
}
