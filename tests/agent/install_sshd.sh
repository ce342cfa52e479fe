#!/usr/bin/env bash
# Prints the path of sshd for tests/agent/test_ssh.py, and installs it where it is missing: with apt-get, as root.
set -euo pipefail

find_sshd() {
  PATH=$PATH:/usr/sbin:/usr/local/sbin command -v sshd
}

if ! find_sshd >/dev/null || ! command -v ssh >/dev/null; then
  command -v apt-get >/dev/null || { echo "sshd is missing and there is no apt-get: install openssh-server" >&2; exit 1; }
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    sudo="sudo -n"
    $sudo true 2>/dev/null || { echo "sshd is missing: sudo apt-get install openssh-server openssh-client" >&2; exit 1; }
  fi
  $sudo apt-get update -q >&2
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openssh-server openssh-client >&2
fi
find_sshd
