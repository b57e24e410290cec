"""Records the event files in events/ and what TensorBoard reads from them. Needs torch and tensorboard.

    python record_events.py            # torch 2.11, tensorboard 2.21
"""

import json
import math
import pathlib
import shutil
import tempfile

import numpy
import torch
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.scalar import summary_v2 as scalar_summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter

FOLDER = pathlib.Path(__file__).parent / "events"


def record(name, write):
    """Writes one file, and returns the scalars that TensorBoard finds in it: [[step, wall time, value], ...]."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        (file,) = pathlib.Path(folder).iterdir()
        shutil.copy(file, FOLDER / f"events.out.tfevents.{name}")
        events = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0,
                                                                           event_accumulator.TENSORS: 0})
        events.Reload()
        scalars = {tag: [(e.step, e.wall_time, e.value) for e in events.Scalars(tag)]
                   for tag in events.Tags()["scalars"]}
        for tag in events.Tags()["tensors"]:
            points = []
            for event in events.Tensors(tag):
                array = tensor_util.make_ndarray(event.tensor_proto)
                if array.size == 1 and array.dtype.kind in "fiub":
                    points.append((event.step, event.wall_time, float(array.reshape(()))))
            if points:
                scalars[tag] = points
    text = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return {tag: [[step, time, "NaN" if math.isnan(value) else text.get(value, value)]
                  for step, time, value in points] for tag, points in scalars.items()}


def by_pytorch(folder):
    with SummaryWriter(folder) as writer:
        for step in range(5):
            writer.add_scalar("loss", [0.7, 0.5, math.nan, math.inf, -0.25][step], step, walltime=1.79e9 + step)
            writer.add_scalar("läuft/acc", step / 8, 100 * step, walltime=1.79e9 + step)
            writer.add_scalar("new style", 1 / (step + 1), step, walltime=1.79e9 + step, new_style=True)
            writer.add_scalar("double", step / 3, step, walltime=1.79e9 + step, new_style=True, double_precision=True)
        writer.add_histogram("weights", torch.arange(10.0), 3)
        writer.add_text("text", "some text", 3)
        writer.add_image("image", torch.zeros(1, 2, 2), 3)


def as_tensorflow(folder):
    """What tf.summary.scalar of TensorFlow 2 writes: only a tag's first event says what it holds."""
    writer = EventFileWriter(folder)
    types = {"float32": numpy.float32, "float64": numpy.float64, "float16": numpy.float16, "int32": numpy.int32,
             "int64": numpy.int64, "uint8": numpy.uint8, "bool": numpy.bool_}
    for step in range(3):
        for tag, dtype in types.items():
            summary = scalar_summary.scalar_pb("accuracy", 0.5 + step)
            value = summary.value[0]
            value.tag = tag
            if step > 0:
                value.ClearField("metadata")
            value.tensor.CopyFrom(tensor_util.make_tensor_proto(numpy.array(-1.5 * step if "float" in tag else step,
                                                                            dtype=dtype)))
            writer.add_event(event_pb2.Event(wall_time=1.79e9 + step / 4, step=10 * step, summary=summary))
        vector = summary_pb2.Summary.Value(tag="vector", tensor=tensor_util.make_tensor_proto(numpy.zeros(3)))
        writer.add_event(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[vector])))
    writer.close()


def main():
    FOLDER.mkdir(exist_ok=True)
    expected = {"pytorch": record("pytorch", by_pytorch), "tensorflow": record("tensorflow", as_tensorflow)}
    (FOLDER / "scalars.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
