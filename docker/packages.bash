# To be sourced: installs the Debian packages of programs that are not there. Functions of the caller that have the name of
# a program do not count as one.

# Where Debian puts nginx and debootstrap, which is not on everybody's path.
export PATH="$PATH:/usr/sbin:/sbin"

# install_missing PROGRAM[:PACKAGE]…
install_missing() {
  local wanted missing=() as_root=(env)
  for wanted in "$@"; do
    [ -n "$(type -P "${wanted%%:*}")" ] || missing+=("${wanted#*:}")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  # sudo, which machines without other users lack, takes no variables along.
  [ "$(id -u)" = 0 ] || as_root=(sudo env)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}
