# To be sourced: starts a server of its own on free loopback ports with a temporary directory, and ends it at exit.
# Sets `base_url`, `root_key` (of this server alone) and `work`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
signpost=${SIGNPOST_BIN:-${CARGO_TARGET_DIR:-$root/target}/debug/signpost}
cache=$root/target/clients
work=$(mktemp -d)
root_key='root-key-of-a-test-0123456789-0123456789'
# Settings of this server beyond those below, `NAME=VALUE`.
settings=()
server=

# Fails if the server did not end in order.
stop_server() {
  local ended=0
  if [[ -n $server ]]; then
    kill "$server" 2>/dev/null || true
    wait "$server" || ended=$?
    server=
  fi
  return "$ended"
}

finish() {
  local result=$?
  if ! stop_server; then
    echo 'the server did not end in order'
    [[ $result -ne 0 ]] || result=1
  fi
  if [[ $result -ne 0 && -s $work/server.log ]]; then
    echo "the server's last words:"
    tail -n 20 "$work/server.log"
  fi
  rm -rf "$work"
  exit "$result"
}
trap finish EXIT

# The system gives both listeners a port; the first lines of the output tell which.
start_server() {
  [[ -x $signpost ]] || { echo "$signpost is not there: cargo build, or set SIGNPOST_BIN"; exit 1; }
  rm -rf "$work/data"
  env -i PATH="$PATH" \
    SIGNPOST_HTTP__LISTEN=127.0.0.1:0 \
    SIGNPOST_ADMIN__LISTEN=127.0.0.1:0 \
    SIGNPOST_DATA_DIR="$work/data" \
    SIGNPOST_ROOT_KEY="$root_key" \
    SIGNPOST_LIMITS__REDIRECT_PER_MINUTE=0 \
    SIGNPOST_LIMITS__QR_PER_MINUTE=0 \
    SIGNPOST_LIMITS__UNAUTHORIZED_PER_MINUTE=0 \
    SIGNPOST_LOG__LEVEL=warn \
    "${settings[@]}" \
    "$signpost" >"$work/server.out" 2>"$work/server.log" &
  server=$!
  for _ in $(seq 100); do
    base_url=$([[ ! -e $work/server.out ]] || sed -n 's|.*API reference: \(http://[^ ]*\)/docs.*|\1|p' "$work/server.out")
    [[ -n $base_url ]] && return
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/server.out" "$work/server.log"
  echo "the server did not start"
  exit 1
}

# What codes.py reads QR codes with.
decoder=(zxing-cpp==3.1.1 pillow==13.0.0 resvg_py==0.5.0)

# A Python environment of its own with exactly these packages, made once: `venv NAME PACKAGE==VERSION…`.
venv() {
  local path=$cache/$1
  shift
  if [[ $(cat "$path/packages" 2>/dev/null) != "$*" ]]; then
    rm -rf "$path"
    python3 -m venv "$path"
    "$path/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" >"$path/packages"
  fi
}

# Exactly these packages from npm, made once: `node_modules NAME PACKAGE@VERSION…`.
node_modules() {
  local path=$cache/$1
  shift
  if [[ $(cat "$path/packages" 2>/dev/null) != "$*" ]]; then
    rm -rf "$path"
    mkdir -p "$path"
    npm install --silent --prefix "$path" --no-save --no-package-lock --ignore-scripts --no-audit --no-fund "$@"
    echo "$*" >"$path/packages"
  fi
}
