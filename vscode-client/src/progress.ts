/** Progress that the server reports and a person can cancel: a notification with a button, not a word in the corner. */
import * as vscode from "vscode";
import type {
  ProgressToken,
  WorkDoneProgressBegin,
  WorkDoneProgressEnd,
  WorkDoneProgressReport,
} from "vscode-languageclient/node";

type Message = WorkDoneProgressBegin | WorkDoneProgressReport | WorkDoneProgressEnd;

export class ProgressNotifications {
  /** For each token: shows a report, and ends the notification when it is given none. */
  private readonly shown = new Map<ProgressToken, (message?: WorkDoneProgressReport) => void>();

  constructor(private readonly cancel: (token: ProgressToken) => void) {}

  /** Middleware of the language client; `next` shows progress that cannot be cancelled in the status bar. */
  handle(token: ProgressToken, message: Message, next: (message: Message) => void): void {
    if (message.kind === "begin" && message.cancellable === true) {
      this.show(token, message);
    } else if (message.kind === "report" && this.shown.has(token)) {
      this.shown.get(token)?.(message);
    } else {
      this.end(token);
      next(message);
    }
  }

  /** Ends all of them: the server is gone. */
  clear(): void {
    for (const token of [...this.shown.keys()]) {
      this.end(token);
    }
  }

  private show(token: ProgressToken, begin: WorkDoneProgressBegin): void {
    const options = { location: vscode.ProgressLocation.Notification, cancellable: true, title: begin.title };
    void vscode.window.withProgress(options, (progress, cancelled) => {
      const listener = cancelled.onCancellationRequested(() => {
        this.cancel(token);
      });
      let reached = 0;
      return new Promise<void>((resolve) => {
        this.shown.set(token, (report) => {
          if (report === undefined) {
            listener.dispose();
            resolve();
            return;
          }
          const increment = Math.max(0, (report.percentage ?? reached) - reached);
          reached += increment;
          progress.report({ increment, ...(report.message === undefined ? {} : { message: report.message }) });
        });
      });
    });
  }

  private end(token: ProgressToken): void {
    this.shown.get(token)?.();
    this.shown.delete(token);
  }
}
