/** Read-only documents whose text the extension holds: a proposed rewrite, an expanded kernel. */
import * as vscode from "vscode";

export class VirtualDocuments implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly registration: vscode.Disposable;

  readonly onDidChange = this.changed.event;

  constructor(private readonly scheme: string) {
    this.registration = vscode.workspace.registerTextDocumentContentProvider(scheme, this);
  }

  /** Stores `text` as the file `name` (its ending decides the language) and returns the document's URI. */
  put(name: string, text: string, query = ""): vscode.Uri {
    const uri = vscode.Uri.from({ scheme: this.scheme, path: `/${name}`, query });
    this.texts.set(uri.toString(), text);
    this.changed.fire(uri);
    return uri;
  }

  drop(uri: vscode.Uri): void {
    this.texts.delete(uri.toString());
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? "# This preview is no longer available.\n";
  }

  dispose(): void {
    this.registration.dispose();
    this.changed.dispose();
  }
}
