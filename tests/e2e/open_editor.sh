#!/usr/bin/env bash
# Opens a real VS Code (in the browser, on this machine only) with the extension installed, and prints its URL.
#
#   tests/e2e/open_editor.sh [FOLDER]      default: the examples; PORT=… for a fixed port
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || {
  echo "open_editor.sh: $python is missing; \`make editor\` sets it up." >&2
  exit 1
}
exec "$python" "$root/tests/e2e/editor.py" "$@"
