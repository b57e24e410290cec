"""read_checkpoint() and write_checkpoint(), without NumPy and torch. tests/recipes crosses to C++ and back."""

import json
import os
import pathlib
import shutil
import struct
import tempfile
import unittest
import zlib

import machine
import yoke

RAW = {"a/w": yoke.Raw("F32", (2, 3), struct.pack("<6f", *range(6))), "a/flag": yoke.Raw("BOOL", (), b"\1"),
       "a/b": yoke.Raw("F64", (1,), struct.pack("<d", 0.5)), "rng": yoke.Raw("U8", (1, 3), b"abc"),
       "a/empty": yoke.Raw("I64", (0, 4), b"")}
PARTS = {"a": {name[2:]: value for name, value in RAW.items() if name.startswith("a/")}, "rng": RAW["rng"]}


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="yoke-python-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, step=7):
        return yoke.write_checkpoint(self.folder / "out", step, PARTS, {"epoch": 3, "best": 0.25, "done": True, "note": 'ä"\n'})

    error_of = machine.Machine.error_of

    def test_what_was_written_is_read(self):
        path = self.write()
        self.assertEqual(path.name, "checkpoint-000000000007.safetensors")
        read = yoke.read_checkpoint(path)
        self.assertEqual((read.step, read.num_shards), (7, 0))
        self.assertEqual(read.metadata, {"epoch": "3", "best": "0.25", "done": "yes", "note": 'ä"\n'})
        self.assertEqual(read.parts, ["a", "rng"])
        self.assertEqual(read.names(), sorted(RAW))
        for name, value in RAW.items():
            self.assertEqual(read.tensor(name, "raw"), value)
            self.assertEqual((read.shape(name), read.dtype(name)), (value.shape, value.dtype))
        self.assertEqual(set(read.part("a", "raw")), {"w", "flag", "b", "empty"})
        self.assertEqual(read.part("rng", "raw"), RAW["rng"], "a part that is one tensor")
        error = self.error_of(read.part, "epoch")
        self.assertEqual(error.status, 66)
        self.assertIn("it has a, rng; metadata['epoch'] has that value", str(error))

    def test_what_the_format_cannot_have_is_refused_before_anything_is_written(self):
        one = RAW["a/b"]
        for words, step, parts, metadata in [
                ("two tensors would have the name 'a/b'", 1, {"a/b": one, "a": {"b": one}}, None),
                ("the name 5", 1, {"m": {5: one, "5": one}}, None),
                ("the name None", 1, {None: {}}, None),
                ("the name ''", 1, {"m": {"": one}}, None),
                ("the name", 1, {"m": {"\udc80": one}}, None),
                ("'__metadata__' is the format's", 1, {"__metadata__": one}, None),
                ("'yoke.x': names that begin with", 1, {"yoke.x": one}, None),
                ("'m': a part and a value of the metadata", 1, {"m": one}, {"m": 5}),
                ("metadata 'x' is a NoneType", 1, {}, {"x": None}),
                ("metadata 'x' is a list", 1, {}, {"x": [1]}),
                ("metadata 'x' is a bytes", 1, {}, {"x": b"a"}),
                ("the name 3", 1, {}, {3: "a"}),
                ("step 1.0: give a whole number", 1.0, {}, None),
                ("step True", True, {}, None),
                ("step '1'", "1", {}, None),
                ("step -1", -1, {}, None),
                ("step 9223372036854775808", 1 << 63, {}, None)]:
            error = self.error_of(yoke.write_checkpoint, self.folder / "out", step, parts, metadata)
            self.assertEqual(error.status, 64)
            self.assertIn(words, str(error))
        self.assertFalse((self.folder / "out").exists())

        class Index:
            def __index__(self):
                return 12

        self.assertEqual(yoke.read_checkpoint(yoke.write_checkpoint(self.folder, Index(), {})).step, 12)
        self.assertEqual(yoke.read_checkpoint(yoke.write_checkpoint(self.folder, (1 << 63) - 1, {})).step, (1 << 63) - 1)

    def test_a_file_that_is_none_does_not_hang(self):
        os.mkfifo(self.folder / "fifo")
        self.assertIn("no regular file", str(self.error_of(yoke.read_checkpoint, self.folder / "fifo")))
        os.mkfifo(self.folder / "index.json")
        self.assertIn("no regular file", str(self.error_of(yoke.read_checkpoint, self.folder)))

    def test_a_forged_header_is_damage(self):
        path = self.folder / "checkpoint-000000000001.safetensors"
        slot = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        data = b"abcd"
        marks = {"yoke.crc32.header": "0" * 8, "yoke.crc32.data": f"{zlib.crc32(data):08x}", "yoke.format": "yoke-checkpoint",
                 "yoke.version": "1", "yoke.step": "1"}
        deep = "[" * 100_000 + "]" * 100_000
        well = json.dumps({"__metadata__": marks, "w": slot})
        for text in [well, json.dumps({"__metadata__": [1], "w": slot}), deep, f'{{"__metadata__": {{"x": {deep}}}}}', "[]", "7",
                     json.dumps({"__metadata__": marks, "w": {**slot, "shape": [1.0]}}),
                     json.dumps({"__metadata__": marks, "w": {**slot, "shape": "1"}}),
                     json.dumps({"__metadata__": marks, "w": 5}),
                     json.dumps({"__metadata__": {**marks, "x": 5}, "w": slot}),
                     json.dumps({"__metadata__": {**marks, "yoke.step": "one"}, "w": slot}),
                     json.dumps({"__metadata__": {**marks, "yoke.parts": "5"}, "w": slot}),
                     json.dumps({"__metadata__": {**marks, "yoke.parts": "[[]]"}, "w": slot}),
                     json.dumps({"__metadata__": {**marks, "yoke.parts": deep}, "w": slot})]:
            whole = struct.pack("<Q", len(text)) + text.replace('"yoke.crc32.header": ', '"yoke.crc32.header":').encode()
            whole = struct.pack("<Q", len(whole) - 8) + whole[8:]
            at = whole.find(b'"yoke.crc32.header":"') + 21
            if at > 20:  # its checksum is right
                whole = whole[:at] + f"{zlib.crc32(whole):08x}".encode() + whole[at + 8:]
            path.write_bytes(whole + data)
            if text is well:
                self.assertEqual(yoke.read_checkpoint(path).names(), ["w"])
            else:
                self.assertEqual(self.error_of(yoke.read_checkpoint, path).status, 65, text[:200])

    def test_the_file_is_as_the_format_says(self):
        data = self.write().read_bytes()
        length = 8 + struct.unpack("<Q", data[:8])[0]
        self.assertEqual(length % 8, 0)
        header = json.loads(data[8:length])
        marks = header.pop("__metadata__")
        self.assertEqual(marks["yoke.crc32.data"], f"{zlib.crc32(data[length:]):08x}")
        at = data.index(b'"yoke.crc32.header":"') + 21
        self.assertEqual(marks["yoke.crc32.header"], f"{zlib.crc32(data[:at] + b'0' * 8 + data[at + 8:length]):08x}")
        end = 0
        for slot in header.values():  # contiguous, in this order, wide dtypes first
            self.assertEqual(slot["data_offsets"][0], end)
            end = slot["data_offsets"][1]
        self.assertEqual(length + end, len(data))
        self.assertEqual([slot["dtype"] for slot in header.values()], ["F64", "I64", "F32", "BOOL", "U8"])

    def test_no_changed_byte_is_accepted(self):
        path = self.write()
        data = path.read_bytes()
        for i in range(len(data)):
            path.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1:])
            self.assertIn(self.error_of(yoke.read_checkpoint, path).status, (65, 69), f"byte {i}")
        for size in (0, 7, 8, 100, len(data) - 1):
            path.write_bytes(data[:size])
            self.assertEqual(self.error_of(yoke.read_checkpoint, path).status, 65)
        path.write_bytes(data)
        self.assertEqual(yoke.read_checkpoint(path).step, 7)

    def test_the_newest_is_found_by_its_step(self):
        self.assertIsNone(yoke.newest_checkpoint(self.folder))
        self.assertIsNone(yoke.newest_checkpoint(self.folder / "missing"))
        self.assertEqual(self.error_of(yoke.read_checkpoint, None).status, 66)
        for step in (7, 1000000000000, 20):
            self.write(step)
        newest = yoke.newest_checkpoint(self.folder / "out")
        self.assertEqual(newest.name, "checkpoint-1000000000000.safetensors")
        error = self.error_of(yoke.read_checkpoint, self.folder / "out")
        self.assertEqual(error.status, 66)
        self.assertIn(str(newest), str(error))

    def test_wrong_use_says_what_to_do(self):
        path = self.write()
        read = yoke.read_checkpoint(path)
        self.assertIn("has no tensor 'a/x'", str(self.error_of(read.tensor, "a/x", "raw")))
        self.assertIn("has no part 'model'; it has a, rng", str(self.error_of(read.part, "model", "raw")))
        self.assertIn("give 'torch', 'numpy' or 'raw'", str(self.error_of(read.tensor, "a/w", "jax")))
        self.assertEqual(self.error_of(yoke.read_checkpoint, self.folder / "none").status, 66)
        for parts, step in [({"m": {"w": [1, 2]}}, 1), ({"m": {"w": yoke.Raw("F32", (2,), b"")}}, 1), ({"yoke.x": RAW["rng"]}, 1),
                            ({}, -1)]:
            self.assertEqual(self.error_of(yoke.write_checkpoint, self.folder / "bad", step, parts).status, 64)
        self.assertFalse((self.folder / "bad").exists())
        (self.folder / "file").write_text("")
        self.assertEqual(self.error_of(yoke.write_checkpoint, self.folder / "file", 1, {}).status, 75)

    def test_a_foreign_file_is_named_as_such(self):
        header = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   '
        path = self.folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + b"x")
        self.assertIn("not a checkpoint of yoke", str(self.error_of(yoke.read_checkpoint, path)))

    def test_a_failed_write_leaves_the_earlier_file(self):
        path = self.write()
        before = path.read_bytes()
        real, os.fsync = os.fsync, lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        try:
            self.assertIn("No space left", str(self.error_of(self.write)))
        finally:
            os.fsync = real
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual(os.listdir(path.parent), [path.name])

    def divided(self):
        """A folder as docs/checkpoint.md describes it: "m/w" of [2, 3] on two ranks, "m/b" on the first."""
        folder = self.folder / "checkpoint-000000000009"
        folder.mkdir()
        whole, save, files = struct.pack("<6f", *range(6)), "0123456789abcdef", []
        slices = [{"m/w": ([2, 3], 0, whole[:16]), "m/b": ([1], 0, whole[4:8])}, {"m/w": ([2, 3], 4, whole[16:])}]
        for rank, own in enumerate(slices):
            table = json.dumps({name: {"shape": shape, "first": first, "crc32": f"{zlib.crc32(data):08x}"}
                                for name, (shape, first, data) in own.items()}, separators=(",", ":"))
            header = {"__metadata__": {"yoke.format": "yoke-shard", "yoke.save": save, "yoke.step": "9", "yoke.slices": table,
                                       "yoke.crc32": f"{zlib.crc32(table.encode()):08x}"}}
            offset = 0
            for name, (_, _, data) in own.items():
                header[name] = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [offset, offset + len(data)]}
                offset += len(data)
            text = json.dumps(header).encode()
            files.append(f"shard-{save}-{rank:05}-of-00002.safetensors")
            (folder / files[-1]).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(d for _, _, d in own.values()))
        index = {"format": "yoke-sharded-checkpoint", "version": 1, "step": 9, "save": save, "files": files,
                 "metadata": {"epoch": "2", "yoke.parts": '["m"]'}}
        index["crc32"] = f"{zlib.crc32(json.dumps(index, separators=(',', ':')).encode()):08x}"
        (folder / "index.json").write_text(json.dumps(index, indent=1))
        return folder, whole, files

    def test_a_divided_checkpoint_is_put_together(self):
        folder, whole, files = self.divided()
        read = yoke.read_checkpoint(folder)
        self.assertEqual((read.step, read.num_shards, read.metadata, read.parts), (9, 2, {"epoch": "2"}, ["m"]))
        self.assertEqual(read.tensor("m/w", "raw"), yoke.Raw("F32", (2, 3), whole))
        self.assertEqual(read.tensor("m/b", "raw"), yoke.Raw("F32", (1,), whole[4:8]))
        self.assertEqual(yoke.newest_checkpoint(self.folder), folder)

    def test_a_damaged_or_missing_shard_is_named(self):
        folder, _, files = self.divided()
        last = folder / files[1]
        data = last.read_bytes()
        last.write_bytes(data[:-1] + b"?")
        read = yoke.read_checkpoint(folder)  # values are checked when they are read
        self.assertIn("'m/w' do not match their checksum", str(self.error_of(read.tensor, "m/w", "raw")))
        self.assertEqual(read.tensor("m/b", "raw").shape, (1,))
        last.write_bytes(data.replace(b"0123456789abcdef", b"0123456789abcdee", 1))
        self.assertIn(files[1], str(self.error_of(yoke.read_checkpoint, folder)))
        last.unlink()
        self.assertEqual(self.error_of(yoke.read_checkpoint, folder).status, 66)
        index = folder / "index.json"
        index.write_text(index.read_text().replace('"epoch": "2"', '"epoch": "3"'))
        self.assertIn("checksum differs", str(self.error_of(yoke.read_checkpoint, folder)))


if __name__ == "__main__":
    unittest.main()
