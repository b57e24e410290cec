#!/usr/bin/env python3
"""Runs the commands of a page about a shared server, in their order, on a machine of their own.

    server.py PAGE BUILD    BUILD: a build folder of this checkout; the page's `build/release` stands for it

Blocks of commands follow a line <!-- run as USER -->. A block after <!-- output --> shows lines that the commands before it
print; `...` stands for anything. The first command that fails ends the test.

The machine is a mount namespace: /etc, /srv, /usr/local and /var are written to in memory, and /run, /home and /tmp are empty. It
has the users ada and bob, and eight GPUs of the driver without hardware. Needs root.
"""

import os
import re
import shutil
import subprocess
import sys

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


def blocks(page):
    """Yields (marker, lines) of the fenced blocks after <!-- run as USER --> and <!-- output -->."""
    lines = open(page, encoding="utf-8").read().splitlines()
    for i, line in enumerate(lines):
        match = re.fullmatch(r"<!-- (run as [a-z]+|output) -->", line)
        if match:
            if not lines[i + 1].startswith("```"):
                sys.exit(f"{page}:{i + 1}: no fenced block follows")
            body = lines[i + 2 :]
            yield match[1], body[: body.index("```")]


def run(user, commands, build):
    script = "set -euo pipefail\n" + "\n".join(commands).replace("build/release", build)
    home = "/root" if user == "root" else f"/home/{user}"
    environment = {"HOME": home, "USER": user, "LOGNAME": user, "TERM": "dumb", "LANG": "C.UTF-8",
                   "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                   "YOKE_FAKE_NVML": "/etc/eight-gpus.json", "LD_LIBRARY_PATH": "/usr/local/lib"}
    uid = subprocess.check_output(["id", "-u", user], text=True).strip()
    environment["XDG_RUNTIME_DIR"] = f"/run/user/{uid}"
    result = subprocess.run(["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "bash", "-c", script],
                            cwd=None if user == "root" else home, env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print("\n".join(f"{user}: {command}" for command in commands), result.stdout, sep="\n", flush=True)
    if result.returncode != 0:
        sys.exit(f"the commands of {user} ended with {result.returncode}")
    return result.stdout.splitlines()


def follow(page, build):
    printed, num_blocks = iter(()), 0
    for marker, lines in blocks(page):
        if marker != "output":
            printed = iter(run(marker.removeprefix("run as "), lines, build))
            num_blocks += 1
            continue
        for line in lines:
            pattern = ".*".join(re.escape(part) for part in line.split("..."))
            if not any(re.fullmatch(pattern, one.rstrip()) for one in printed):
                sys.exit(f"{page} says that this is printed, after what came before:\n{line}")
    if num_blocks == 0:
        sys.exit(f"{page} has no commands")


def main():
    page, build = (os.path.abspath(path) for path in sys.argv[1:3])
    if len(sys.argv) > 3:
        follow(page, build)
        return
    if os.geteuid() != 0 or not shutil.which("systemd-tmpfiles"):
        print("skipped: needs root and systemd-tmpfiles")
        sys.exit(77)
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    state = os.path.join(source, "fakes/nvml/states/eight_a100.json")
    result = subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-c", MACHINE, "machine", build,
                             state, source, sys.executable, os.path.abspath(__file__), page, build, "inside"], check=False)
    sys.exit(result.returncode)


main()
