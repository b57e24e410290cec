#!/usr/bin/env python3
"""Checks that what people type and ask has its place in the pages: found by its own words, with a way to the page that answers it.

    words.py DOCS    DOCS: the folder of the pages

The table is made after what courses, wikis of laboratories and workshops of clusters tell people to type. For each line the page
you-type.md must have one row or paragraph with all of its words, which links to the page of the answer; and that page must have the
words of the answer.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

PAGE = "you-type.md"


class Row(NamedTuple):
    asked: list  # words of what people type or ask, all in one row or paragraph
    page: str  # where the answer is
    answer: list  # words that this page must have

    @property
    def places(self):
        return [(PAGE, self.asked), (self.page, self.answer)]


TABLE = [
    # Environments
    Row(["pip install yoke", "another project"], "packages.md", ["pip install yoke-gpu"]),
    Row(["python -m venv", "pip install torch torchvision torchaudio"], "environment.md", ["fits the driver", "torchaudio"]),
    Row(["pip install -r requirements.txt"], "environment.md", ["requirements"]),
    Row(["python -m ipykernel install --user --name=X"], "jupyter.md", ["yoke jupyter install", "ipykernel"]),
    Row(["jupyter kernelspec list", "jupyter kernelspec uninstall X"], "jupyter.md", ["yoke jupyter list", "yoke jupyter remove"]),
    Row(["custom init", "container", "module paths", "Jupyter page"], "jupyter.md", ["yoke jupyter init-text", "custom init"]),
    # Looking at GPUs
    Row(["nvidia-smi"], "devices.md", ["nvidia-smi", "users"]),
    Row(["nvidia-smi -l 1", "watch -n 0.5 -d nvidia-smi"], "top.md", ["live page"]),
    Row(["nvidia-smi -L"], "devices.md", ["--list"]),
    Row(["nvidia-smi -a -i 0"], "devices.md", ["everything about these devices"]),
    Row(["nvidia-smi pmon"], "ps.md", ["yoke ps --watch"]),
    Row(["gpustat"], "devices.md", ["gpustat"]),
    Row(["nvitop", "nvtop"], "top.md", ["yoke top"]),
    Row(["over 90 % used"], "watch.md", ["under 90 %"]),
    Row(["kill -9 PID", "GPU process"], "ps.md", ["SIGKILL", "pidfd"]),
    # A subset of the devices
    Row(["echo $CUDA_VISIBLE_DEVICES"], "visible.md", ["CUDA_VISIBLE_DEVICES"]),
    Row(["export CUDA_VISIBLE_DEVICES=0,1"], "visible.md", ["--export"]),
    Row(['os.environ["CUDA_VISIBLE_DEVICES"]', "import torch"], "visible.md", ["yoke visible --set 2,0 -- python train.py"]),
    Row(["CUDA_DEVICE_ORDER=PCI_BUS_ID"], "visible.md", ["CUDA_DEVICE_ORDER", "UUIDs"]),
    Row(["training on two GPUs", "inference", "numbers of nvidia-smi"], "claim.md", ["--share"]),
    Row(["TensorFlow on one of the GPUs", "memory growth"], "tensorflow.md", ["TF_FORCE_GPU_ALLOW_GROWTH", "yoke env create tf"]),
    Row(["tf.config.set_visible_devices"], "tensorflow.md", ["yoke visible --set 2,3"]),
    Row(["tf.distribute.MirroredStrategy()"], "tensorflow.md", ["the claim decides how many"]),
    Row(["tf.config.experimental.set_memory_growth"], "tensorflow.md", ["before the first one is used"]),
    Row(["!torchrun", "in a cell"], "jupyter.md", ["yoke run in a cell", "the status line"]),
    Row(["notebook of a course on several GPUs"], "jupyter.md", ["Notebooks of a course"]),
    Row(["always look whether somebody uses the GPU that you want"], "claim.md", ["never given", "queue"]),
    # In code
    Row(["torch.cuda.is_available()", "torch.cuda.device_count()", "torch.cuda.get_device_name(0)", "no exception"],
        "devices-in-code.md", ["num_gpus", "device_name"]),
    Row(["try_gpu(i)", "try_all_gpus()"], "devices-in-code.md", ["try_gpu"]),
    Row(["Y.cuda(0)", "net.to(device)"], "devices-in-code.md", ["to(tensor, device)"]),
    Row(["X + Y", "two devices", "printing the loss"], "guardrails.md", ["silent copies", "item"]),
    Row(["exercise", "many small products", "CPU and GPU"], "bench.md", ["matmul"]),
    Row(["exercise", "norms logged one by one", "at the end"], "bench.md", ["sync"]),
    Row(["exercise", "two products on two devices at once"], "bench.md", ["two-devices"]),
    Row(["set_seed(n)", "cudnn.deterministic", "benchmark", "NumPy", "random"], "optim.md", ["train::seed", "deterministic"]),
    Row(["torch.cuda.memory_summary()"], "memory.md", ["memory_summary"]),
    Row(["nn.DataParallel(model)", "DDP(model)", "which of them"], "data-parallel.md", ["Which to use", "a step on two batches in ms"]),
    Row(['init_process_group("gloo")', "share memory"], "python-backend.md", ['init_process_group("yoke")', "pip install yoke-torch"]),
    Row(['init_process_group("nccl")', "DDP(model)"], "distributed-data-parallel.md", ["DistributedDataParallel"]),
    Row(["torch.cuda.set_device(1)", 'torch.device("cuda:1")'], "rank-environment.md", ["LOCAL_RANK", "selects the device"]),
    Row(["torch.set_num_threads(8)"], "bind.md", ["OMP_NUM_THREADS"]),
    Row(["DataLoader", "shuffle", "num_workers=4", "pin_memory"], "data.md", ["num_workers", "pinned"]),
    Row(["num_workers", "DDP", "7 CPUs a task"], "data.md", ["How many workers", "7 CPUs"]),
    Row(["tensor cores", "filters and batch divisible by 8"], "precision.md", ["multiples of 8", "padded"]),
    Row(["apex", "GradScaler"], "precision.md", ["GradScaler", "Autocast"]),
    # Speed
    Row(["nvprof", "torch.utils.bottleneck", "bottleneck in words"], "profile.md", ["what limits a training"]),
    Row(["DDP got slower with a larger batch"], "tune.md", ["fastest batch size"]),
    # Containers
    Row(["run_docker", "-u UID", "--ipc host", "--rm", "-v $PWD:/workspace", "--log-opt", "-it"], "container.md",
        ["/workspace", "50 MiB", "--userns keep-id"]),
    Row(["run_docker", "no GPU"], "container.md", ['--gpu ""']),
    Row(["the lab's rules"], "container.md", ["container_name"]),
    Row(["singularity exec X.sif", "WITH_CONDA", "pip list", "grep lightning"], "container.md", ["yoke container packages"]),
    Row(["can I add a package", "Lightning", "image"], "container.md", ["yoke container extend"]),
    # Data
    Row(["sshfs host:/data here"], "mount.md", ["an error and not a hang"]),
    Row(["where may large data be", "who gives me a folder"], "storage.md", ["yoke storage create"]),
    # Slurm
    Row(["sbatch job.sh"], "slurm-check.md", ["silently does otherwise"]),
    Row(["srun torchrun", "yoke run train.py"], "launch.md", ["In a job of Slurm"]),
    Row(["--cpus-per-gpu", "GPUs cannot talk to each other", "versions"], "slurm-check.md",
        ["Which options keep GPUs from reaching each other", "--cpus-per-gpu"]),
    Row(["CPU masks from a web page"], "bind.md", ["--format mask"]),
    Row(["request is refused", "without a reason"], "slurm-check.md", ["what Slurm refuses"]),
    # Launchers
    Row(["torchrun --nproc-per-node=4 train.py"], "launch.md", ["Differences from torchrun"]),
    Row(["accelerate launch"], "training-loop.md", ["accelerate"]),
    Row(["Lightning", "strategy"], "curve.md", ["Lightning"]),
    # Where it runs
    Row(["Windows and macOS are out of scope", "ssh"], "web.md", ["laptop", "ssh -L"]),
    Row(["laptop", "yoke mount"], "from-laptop-to-cluster.md", ["cluster"]),
]


def plain(text):
    """`text` without marks of Markdown and HTML, in small letters and with single blanks."""
    for mark, meant in (("\\|", "|"), ("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"), ("`", ""), ("**", "")):
        text = text.replace(mark, meant)
    return " ".join(text.split()).lower()


def pieces_of(page):
    """The rows and paragraphs of a page."""
    for paragraph in re.split(r"\n\s*\n", page):
        yield from paragraph.splitlines() if paragraph.startswith("|") else [paragraph]


def has(text, word):
    return plain(word) in text


def faults(docs):
    page = (docs / PAGE).read_text(encoding="utf-8")
    for row in TABLE:
        places = [piece for piece in pieces_of(page) if all(has(plain(piece), word) for word in row.asked)]
        if not places:
            yield f"{PAGE} has no row or paragraph with all of: {', '.join(row.asked)}"
        elif row.page != PAGE and not any(f"]({row.page}" in piece for piece in places):
            yield f"{PAGE}: what has '{row.asked[0]}' does not link to {row.page}"
        answer = plain((docs / row.page).read_text(encoding="utf-8"))
        for word in row.answer:
            if not has(answer, word):
                yield f"{row.page} does not have '{word}'"


def main():
    found = list(faults(Path(sys.argv[1])))
    if found:
        sys.exit("\n".join(found))
    print(f"{len(TABLE)} lines have their place")


if __name__ == "__main__":
    main()
