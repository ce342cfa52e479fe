/** A rewritten kernel as a reviewable diff: shown, then applied or discarded by the person. */
import * as path from "node:path";
import * as vscode from "vscode";
import type { OptimizeResult, Variant } from "./protocol";
import { formatTime, smallestChange } from "./text";
import { VirtualDocuments } from "./virtual";

export const proposalScheme = "tilewright-proposal";

interface Proposal {
  /** The document to change. */
  readonly target: vscode.Uri;
  readonly result: OptimizeResult;
}

export class Proposals implements vscode.Disposable {
  private readonly documents = new VirtualDocuments(proposalScheme);
  private readonly open = new Map<string, Proposal>();
  private readonly subscriptions: vscode.Disposable;
  private count = 0;

  constructor(private readonly output: vscode.LogOutputChannel) {
    this.subscriptions = vscode.Disposable.from(
      this.documents,
      vscode.window.tabGroups.onDidChangeTabs(({ closed }) => {
        for (const tab of closed) {
          const uri = proposalOf(tab);
          if (uri !== undefined) {
            this.forget(uri);
          }
        }
      }),
    );
  }

  /** Opens the diff and asks. Returns when the person answered or closed the question. */
  async show(target: vscode.Uri, result: OptimizeResult): Promise<void> {
    this.output.info(`Optimize ${result.kernel}\n${result.summary}`);
    if (result.original === result.proposed) {
      void vscode.window.showInformationMessage(plain(result.summary) || `No better verified variant of ${result.kernel}.`);
      return;
    }
    const timing = bestTiming(result.variants);
    const verdict = [result.verdict, ...(timing === undefined ? [] : [timing])].join(", ");
    this.count += 1;
    const uri = this.documents.put(path.basename(target.fsPath), result.proposed, String(this.count));
    this.open.set(uri.toString(), { target, result });
    const title = `${result.kernel}: optimized (${verdict})`;
    await vscode.commands.executeCommand("vscode.diff", target, uri, title, { preview: false });
    const answer = await vscode.window.showInformationMessage(
      `${result.kernel}: ${verdict}. ${plain(result.summary)}`,
      "Apply",
      "Discard",
    );
    if (answer === "Apply") {
      await this.apply(uri);
    } else if (answer === "Discard") {
      await this.discard(uri);
    } // closed without an answer: the buttons over the diff stay
  }

  /** Writes a proposal into its document, unless the document has changed since. */
  async apply(uri = this.active()): Promise<void> {
    const proposal = uri && this.open.get(uri.toString());
    if (uri === undefined || proposal === undefined) {
      return;
    }
    const { target, result } = proposal;
    const document = await vscode.workspace.openTextDocument(target);
    if (document.getText() !== result.original) {
      void vscode.window.showWarningMessage(
        `${path.basename(target.fsPath)} was changed after ${result.kernel} was optimized, so the proposal was not ` +
          "applied. Run Optimize again, or copy the lines you want from the right side of the diff.",
      );
      return;
    }
    const edit = new vscode.WorkspaceEdit();
    const change = smallestChange(result.original, result.proposed);
    const range = new vscode.Range(document.positionAt(change.start), document.positionAt(change.end));
    edit.replace(target, range, change.text);
    if (!(await vscode.workspace.applyEdit(edit))) {
      void vscode.window.showErrorMessage(`${path.basename(target.fsPath)} could not be edited; is it read-only?`);
      return;
    }
    this.forget(uri);
    await closeTabs(uri);
    await vscode.window.showTextDocument(document, { preview: false });
  }

  async discard(uri = this.active()): Promise<void> {
    if (uri !== undefined) {
      this.forget(uri);
      await closeTabs(uri);
    }
  }

  dispose(): void {
    this.subscriptions.dispose();
  }

  private active(): vscode.Uri | undefined {
    const tab = vscode.window.tabGroups.activeTabGroup.activeTab;
    return tab && proposalOf(tab);
  }

  private forget(uri: vscode.Uri): void {
    this.open.delete(uri.toString());
    this.documents.drop(uri);
  }
}

function proposalOf(tab: vscode.Tab): vscode.Uri | undefined {
  const input = tab.input;
  return input instanceof vscode.TabInputTextDiff && input.modified.scheme === proposalScheme ? input.modified : undefined;
}

async function closeTabs(uri: vscode.Uri): Promise<void> {
  const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
  await vscode.window.tabGroups.close(tabs.filter((tab) => proposalOf(tab)?.toString() === uri.toString()));
}

function bestTiming(variants: readonly Variant[]): string | undefined {
  const best = variants[0];
  if (best?.measured_ms != null) {
    return `${formatTime(best.measured_ms)} measured`;
  }
  return best?.predicted_us == null ? undefined : `${formatTime(best.predicted_us / 1000)} predicted`;
}

/** The first paragraph of Markdown without its marks, for a notification. */
function plain(markdown: string): string {
  const paragraph = markdown.trim().split(/\n\s*\n/)[0] ?? "";
  return paragraph.replace(/[`*#]/g, "").replace(/\s+/g, " ").trim();
}
