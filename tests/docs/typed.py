#!/usr/bin/env python3
"""Runs each command line of yoke that pages tell people to type.

    typed.py YOKE FAKES PAGE...    YOKE: the command; FAKES: the folder of the driver without hardware

Each must be understood, and do something or say why it cannot here: exit status 64 (wrong words) and 70 (a defect) are failures,
and so are signals. The commands run in an empty folder on a machine with eight idle GPUs, and without other programs: python, jupyter
and ./train only print their words, and there is no ssh, no Slurm and no container engine. Commands that go on until they are stopped
are stopped after their first output.

A command line is a line of code that begins with yoke, and in the tables of you-type.md code in the column "with yoke". Of a pipe or
several commands in a line the first one counts. Lines with `...`, and those that wait for other nodes (--nnodes), are left out.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

TOOLS = ["bash", "sh", "env", "cat", "ls", "id", "mkdir", "rm", "sleep"]
GOES_ON = re.compile(r" --(watch|web|serve)\b(?!.* -- )")


def lines_of(page):
    """Yields the command lines of a page, as a shell takes them."""
    is_fenced = is_table = False
    for line in open(page, encoding="utf-8").read().splitlines():
        if line.startswith("```"):
            is_fenced = not is_fenced
        is_table = line.startswith("|") and (is_table or line.split(" | ")[1:2] == ["with yoke"])
        candidates = []
        if is_fenced or line.startswith("    "):
            candidates = [re.sub(r"  +.*|; .*| \| .*", "", line.strip())]  # after two blanks stands what the command does
        elif is_table and " | " in line:
            candidates = re.findall(r"`([^`]+)`", line.split(" | ")[1])
        for candidate in candidates:
            command = re.sub(r"^ssh (-t |-L \S+ )?\w+ (?=yoke )", "", re.sub(r"^\$ ", "", candidate))
            is_output = re.match(r"yoke [a-z ]+:", command)
            if re.match(r"([A-Z_]+=\S+ )?(eval \"\$\()?yoke [a-z]", command) and not is_output:
                if not re.search(r"\.\.\.|…|\\$|--nnodes", command):
                    yield command


def make_machine(folder, yoke):
    """Makes folders bin, work, home, locks in `folder`. Returns the environment for commands there."""
    for name in ("bin", "work", "home", "locks"):
        os.mkdir(f"{folder}/{name}")
    os.chmod(f"{folder}/locks", 0o1777)
    os.symlink(yoke, f"{folder}/bin/yoke")
    for tool in TOOLS:
        os.symlink(shutil.which(tool), f"{folder}/bin/{tool}")
    os.mkdir(f"{folder}/work/build")
    for path in ("bin/python", "bin/python3", "bin/jupyter", "work/train", "work/program", "work/build/first"):
        with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$0 $*"\n')
        os.chmod(f"{folder}/{path}", 0o755)
    for name, text in {"train.py": "", "requirements.txt": "", "hosts.txt": "a slots=2\n",
                       "job.sh": "#!/bin/bash\n#SBATCH --nodes=1 --time=5 --mem=1G\nsrun ./train\n"}.items():
        with open(f"{folder}/work/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    with open(f"{folder}/machine.json", "w", encoding="utf-8") as file:
        file.write('{"devices": 8}')
    return {"PATH": f"{folder}/bin", "HOME": f"{folder}/home", "TMPDIR": folder, "TERM": "dumb", "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": sys.argv[2], "YOKE_FAKE_NVML": f"{folder}/machine.json", "YOKE_CLAIM_DIR": f"{folder}/locks"}


def run(command, folder, environment):
    """Returns what is wrong, or None."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(["bash", "-c", command], cwd=f"{folder}/work", env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=errors)
        if GOES_ON.search(command):
            output = os.read(process.stdout.fileno(), 1 << 16)
            if output:
                process.terminate()
                process.communicate()
                return None
        output, _ = process.communicate()
        errors.seek(0)
        said = (output + errors.read()).decode(errors="replace")
    is_without_yoke = process.returncode in (126, 127) and "bash: " in said  # yoke says so of programs that are not here
    if process.returncode in (64, 70) or process.returncode < 0 or process.returncode >= 128 or is_without_yoke:
        return f"{command}\n  ended with {process.returncode}: {said}"
    return None


def ended_process():
    """The number of a process that does not exist."""
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


def main():
    faults, num_run = [], 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        environment = make_machine(folder, os.path.abspath(sys.argv[1]))
        number = ended_process()
        for command in dict.fromkeys(command for page in sys.argv[3:] for command in lines_of(page)):
            fault = run(re.sub(r"\b412\d\b", number, command), folder, environment)
            num_run += 1
            faults += [fault] if fault else []
        run("yoke release --mine", folder, environment)  # what `eval "$(yoke claim ... --for 4h)"` has taken
    if num_run < 200:
        sys.exit(f"only {num_run} command lines were found")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{num_run} command lines")


main()
