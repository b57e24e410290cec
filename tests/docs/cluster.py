#!/usr/bin/env python3
"""Runs the commands of a page about a cluster, in their order, on a real Slurm of three nodes with four GPUs each.

    cluster.py PAGE BUILD    BUILD: a build folder of this checkout

Each node is a host of its own, in namespaces. The users ada and bob have homes there, in which their commands run. The GPUs
are device nodes that Slurm hands out; the driver without hardware shows four of them.
"""

import os
import subprocess
import sys

import page

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(user, commands, build):
    folder = os.environ["SLURM_TEST_DIR"]
    home = "/root" if user == "root" else f"{folder}/home/{user}"
    environment = {"HOME": home, "USER": user, "LOGNAME": user, "TERM": "dumb", "LANG": "C.UTF-8",
                   "PATH": f"{build}/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                   "SLURM_CONF": os.environ["SLURM_CONF"], "LD_LIBRARY_PATH": f"{build}/fakes",
                   "YOKE_FAKE_NVML": f"{SOURCE}/fakes/nvml/states/eight_a100.json"}
    return page.run(user, commands, ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"], home, environment)


def main():
    path, build = (os.path.abspath(path) for path in sys.argv[1:3])
    if len(sys.argv) > 3:
        page.follow(path, lambda user, commands: run(user, commands, build))
        return
    cluster = os.path.join(SOURCE, "tests/support/slurm-cluster")
    result = subprocess.run([cluster, "--network", "--accounting", "--cpus", "8", "--gpus", "4", "3", sys.executable,
                             os.path.abspath(__file__), path, build, "inside"], check=False)
    if result.returncode == 125:
        print("skipped: needs root, Slurm and a database")
        sys.exit(77)
    sys.exit(result.returncode)


main()
