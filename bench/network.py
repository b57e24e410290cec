"""Hosts for benches: network namespaces of this machine, on one bridge. Takes root."""
import os
import signal
import subprocess

PREFIX = f"yf{os.getpid() % 10000}"
HEAD = "10.99.0.1"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Network:
    def __init__(self, num_hosts):
        self.num_hosts = num_hosts

    def __enter__(self):
        ip("link", "add", f"{PREFIX}br", "type", "bridge")
        ip("link", "set", f"{PREFIX}br", "up")
        for host in range(self.num_hosts):
            name = f"{PREFIX}h{host}"
            ip("netns", "add", name)
            ip("link", "add", f"{PREFIX}p{host}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{PREFIX}p{host}", "up", "master", f"{PREFIX}br")
            ip("-n", name, "addr", "add", f"10.99.0.{host + 1}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", name, "link", "set", link, "up")
        return self

    def start(self, host, argv, environment, stderr=subprocess.PIPE):
        return subprocess.Popen(["ip", "netns", "exec", f"{PREFIX}h{host}", *argv], stdout=subprocess.PIPE,
                                stderr=stderr, text=True, env=environment)

    def cut(self, host):
        ip("link", "set", f"{PREFIX}p{host}", "nomaster")

    def join(self, host):
        ip("link", "set", f"{PREFIX}p{host}", "master", f"{PREFIX}br")

    def kill(self, host):
        pids = subprocess.run(["ip", "netns", "pids", f"{PREFIX}h{host}"], capture_output=True, text=True).stdout.split()
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def __exit__(self, *_):
        for host in range(self.num_hosts):
            self.kill(host)
            subprocess.run(["ip", "netns", "del", f"{PREFIX}h{host}"])
        subprocess.run(["ip", "link", "del", f"{PREFIX}br"])
