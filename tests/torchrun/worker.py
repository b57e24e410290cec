"""A rank of the test `contract`: reports its environment and arguments, prints, and ends as MODE says. It needs only
the standard library.

    worker.py REPORTS MODE [ARGUMENT...]
"""
import json
import os
import signal
import sys
import time

reports, mode = sys.argv[1:3]
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
if mode == "wait-for-term":
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
# Each line is one write, because torchrun may split lines.
sys.stdout.write(f"out of {rank} loss\n")
sys.stdout.flush()
sys.stderr.write(f"err of {rank} loss\n")
sys.stderr.flush()
# The report is written last and in one piece. A rank that fails waits for the reports of the others before it exits.
with open(f"{reports}/new-{attempt}-{rank}", "w") as file:
    json.dump({"argv": sys.argv[3:], "environment": dict(os.environ), "is_module": __spec__ is not None,
               "folder": os.getcwd()}, file)
os.rename(f"{reports}/new-{attempt}-{rank}", f"{reports}/{attempt}-{rank}.json")


def others_started():
    count = int(os.environ["WORLD_SIZE"])
    while sum(name.startswith(attempt + "-") for name in os.listdir(reports)) < count:
        time.sleep(0.01)


def explain():
    """Does what torch's @record does for an exception."""
    message = {"message": f"ValueError: rank {rank} has it", "extraInfo": {
        "py_callstack": "Traceback (most recent call last):\nValueError\n", "timestamp": str(int(time.time()))}}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as error_file:
        json.dump({"message": message}, error_file)


others_started()
if mode == "fail" and rank == "1":
    sys.exit(3)
elif mode == "fail-once" and rank == "0" and attempt == "0":
    sys.exit(3)
elif mode == "explain" and rank == "1":
    explain()
    sys.exit(1)
elif mode == "kill" and rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
elif mode == "wait-for-term":
    if rank == "1":
        sys.exit(3)
    while not ended:
        time.sleep(0.01)
    with open(f"{reports}/terminated-{rank}", "w"):
        pass
    sys.exit(0)
if mode != "ok" and (mode, attempt != "0") != ("fail-once", True):
    time.sleep(60)  # the failure of a different rank ends this one earlier
