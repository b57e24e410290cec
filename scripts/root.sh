# Functions that make a bare Debian 12 in a folder and run commands in it: for scripts/bare, and for the tests of packages.
# Source it after lib.sh, with `repo` set. They need root, debootstrap and mount namespaces.
#
# A root shares only the kernel and the network with this machine. What is kept from run to run is in $kept: the archive of
# the fresh root and the packages that were downloaded.
# shellcheck shell=bash disable=SC2154  # repo is the caller's

root='' root_is_kept='' kept='' mirror=''
root_folder=/     # where in_root runs commands
root_shares=()    # pairs of a folder outside and a folder in the root, which in_root mounts there
root_variables=() # NAME=VALUE, the environment of in_root beside a login's

# open_root KEEP: makes the root, $root, with a network and a package archive. It is removed when the script exits, unless
# KEEP has a text; then a line says where it is.
open_root() {
  [ "$(id -u)" = 0 ] || die 3 "making a root of a machine takes root" "run it as root"
  command -v debootstrap >/dev/null || die 3 "there is no debootstrap" "apt-get install debootstrap"
  # shellcheck disable=SC2016  # apt-get expands it
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | head -n 1)
  mirror=${mirror:-$(sed -nE 's/^(URIs: *|deb +)(http[^ ]*).*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)}
  [ -n "$mirror" ] || die 3 "this machine's sources of apt name no archive" "look at /etc/apt/sources.list"
  local deps=${YOKE_DEPS_DIR:-$repo/.deps}
  kept=$deps/bare
  mkdir -p "$kept"
  root=$(mktemp -d "$deps/bare-root.XXXXXX")
  root_is_kept=$1
  trap close_root EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  step "${0##*/}: debootstrap" make_root || die 1 "debootstrap failed"
  join_network
}

close_root() {
  local status=$?
  trap - EXIT
  if [ -n "$root_is_kept" ]; then
    say "the root is $root"
  else
    rm -rf --one-file-system "$root" # no mounts are below it, see in_root
  fi
  exit "$status"
}

make_root() {
  local tar=$kept/bookworm.tar
  (
    flock 9 # another test may make it at the same time
    [ ! -e "$tar" ] || exit 0
    rm -rf "$kept/new"
    mkdir -p "$kept/debs"
    debootstrap --variant=minbase --cache-dir="$(cd "$kept/debs" && pwd)" bookworm "$kept/new" "$mirror" || exit
    tar -C "$kept/new" -cf "$tar.new" . && mv "$tar.new" "$tar" && rm -rf "$kept/new"
  ) 9>"$kept/lock" || return
  tar -C "$root" -xf "$tar" && chmod 755 "$root" && mkdir -p "$root/.outside"
}

# Sets up what a newcomer's machine has: a network, its certificates, and a package archive.
join_network() {
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  [ ! -d /usr/local/share/ca-certificates ] || cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
  [ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$root/etc/"
  printf 'deb %s bookworm main\n' "$mirror" >"$root/etc/apt/sources.list"
  # Debian's containers and debootstrap remove downloaded packages. Here they are kept, because later runs use them.
  printf 'APT::Keep-Downloaded-Packages "true";\nBinary::apt-get::APT::Keep-Downloaded-Packages "true";\n' \
    >"$root/etc/apt/apt.conf.d/99keep"
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" # faster; nothing here must survive a power failure
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # prevents services from starting
  chmod 755 "$root/usr/sbin/policy-rc.d"
}

# in_root USER COMMAND...: runs COMMAND in $root_folder, without this script's environment. It uses pivot_root instead
# of chroot, because some tests make user namespaces, which a process in a chroot may not do.
in_root() {
  local user=$1 home variables
  shift
  home=$([ "$user" = root ] && echo /root || echo "/home/$user")
  variables=(HOME="$home" USER="$user" LOGNAME="$user" TERM=dumb LANG=C.UTF-8
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  # Every mount is in the mount namespace of this one command and ends with it. So `rm` cannot reach the shared folders
  # when it removes the root.
  # shellcheck disable=SC2016  # the inner shell expands them
  unshare --mount --propagation private bash -ec 'root=$1 folder=$2 shares=$3
    shift 3
    mount --rbind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    case $folder in /tmp/*) ;; *) mount -t tmpfs -o mode=1777 tmpfs "$root/tmp" ;; esac
    for ((i = 0; i < shares; i += 2)); do
      mkdir -p "$root$2"
      mount --bind "$1" "$root$2"
      shift 2
    done
    cd "$root"
    pivot_root . .outside
    umount --lazy /.outside
    cd "$folder"
    exec "$@"' bash "$root" "$root_folder" ${#root_shares[@]} "${root_shares[@]}" \
    setpriv --reuid "$user" --regid "$user" --init-groups env -i "${variables[@]}" "${root_variables[@]}" "$@"
}
