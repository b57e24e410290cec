#!/usr/bin/env python3
"""Runs the commands of a page about a shared server, in their order, on a machine of their own.

    server.py PAGE BUILD    BUILD: a build folder of this checkout; the page's `build/release` stands for it

The machine is a mount namespace: /etc, /srv, /usr/local and /var are written to in memory, and /run, /home and /tmp are empty. It
has the users ada and bob, and eight GPUs of the driver without hardware. Needs root.
"""

import os
import shutil
import subprocess
import sys

import page

MACHINE = r"""
set -eu
base=$(mktemp -d)
mount -t tmpfs tmpfs "$base"
for folder in /etc /srv /usr/local /var; do
  mkdir -p "$base$folder/upper" "$base$folder/work"
  mount -t overlay overlay -o "lowerdir=$folder,upperdir=$base$folder/upper,workdir=$base$folder/work" "$folder"
done
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /home
rm -rf /etc/yoke
for user in ada bob; do
  userdel "$user" 2>/dev/null || true
  useradd --create-home --shell /bin/bash "$user"
  mkdir -p "/run/user/$(id -u "$user")"
  chown "$user:" "/run/user/$(id -u "$user")"
done
cp "$1/fakes/libnvidia-ml.so.1" /usr/local/lib/
ldconfig
cp "$2" /etc/eight-gpus.json
chmod 644 /etc/eight-gpus.json
cd "$3"
shift 3
exec "$@"
"""


def run(user, commands, build):
    home = "/root" if user == "root" else f"/home/{user}"
    uid = subprocess.check_output(["id", "-u", user], text=True).strip()
    environment = {"HOME": home, "USER": user, "LOGNAME": user, "TERM": "dumb", "LANG": "C.UTF-8",
                   "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                   "YOKE_FAKE_NVML": "/etc/eight-gpus.json", "LD_LIBRARY_PATH": "/usr/local/lib",
                   "XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    return page.run(user, [command.replace("build/release", build) for command in commands],
                    ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"],
                    None if user == "root" else home, environment)


def main():
    path, build = (os.path.abspath(path) for path in sys.argv[1:3])
    if len(sys.argv) > 3:
        page.follow(path, lambda user, commands: run(user, commands, build))
        return
    if os.geteuid() != 0 or not shutil.which("systemd-tmpfiles"):
        print("skipped: needs root and systemd-tmpfiles")
        sys.exit(77)
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    state = os.path.join(source, "fakes/nvml/states/eight_a100.json")
    result = subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-c", MACHINE, "machine", build,
                             state, source, sys.executable, os.path.abspath(__file__), path, build, "inside"], check=False)
    sys.exit(result.returncode)


main()
