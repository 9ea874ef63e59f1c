# shellcheck shell=bash
# To be sourced by `up` and `down`.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Where `up` keeps what it makes; with --foreground the nodes are below TMPDIR, if that is set.
# shellcheck disable=SC2034
base=$(cd "$here/../.." && pwd)/target/cluster

fail() {
  printf 'tests/cluster: %s\n' "$*" >&2
  exit 1
}

# pid_of DIR NODE: the process of the node, if it runs. A pid is believed only where that process runs this very node.
pid_of() {
  local pid
  pid=$(cat "$1/node-$2/pid" 2>/dev/null) &&
    grep -qaF -- "-Dcassandra.storagedir=$1/node-$2" "/proc/$pid/cmdline" 2>/dev/null &&
    echo "$pid"
}

# kill_node DIR NODE: `kill -9`, and waits until it is gone and its ports are free. Its data stay.
kill_node() {
  local pid
  pid=$(pid_of "$1" "$2") || return 0
  kill -KILL "$pid" 2>/dev/null || true
  # A zombie without threads holds nothing any more.
  until [[ $(ps -o stat= -p "$pid") =~ ^(Z[^l]*)?$ ]]; do
    sleep 0.02
  done
}

# remove DIR: ends all nodes there and removes the directory.
remove() {
  local node
  for node in "$1"/node-*; do
    [[ ! -d $node ]] || kill_node "$1" "${node##*-}"
  done
  rm -rf "$1"
}
