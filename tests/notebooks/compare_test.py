"""Tables for notebook.py: what counts as the same output, and what does not."""

import pathlib
import re
import unittest

import notebook

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def stream(text, name="stdout"):
    return [{"name": name, "output_type": "stream", "text": text}]


class Compare(unittest.TestCase):
    def same(self, one, other, *tags):
        return notebook.said(one, tags) == notebook.said(other, tags)

    def test_what_varies_is_left_out(self):
        for one, other in [("took 1.5 s\n", "took 300 ms\n"), ("(pid 41)\n", "(pid 7)\n"),
                           ("/scratch/yoke-notebook-ab/work/x\n", "/home/ada/course/x\n"),
                           ("a\nyoke run: 2 of 2 ranks up, 1.0 s\nb\n", "a\nb\n"), ("\x1b[31m[0]\x1b[0m x\n", "[0] x\n")]:
            self.assertTrue(self.same(stream(one), stream(other)), one)

    def test_the_rest_counts(self):
        for one, other in [("3\n", "4\n"), ("a\nb\n", "b\na\n"), ("a\n", ""), ("gpu 1\n", "gpu 2\n"), ("a\n", "a\na\n"),
                           ("yoke run: rank 1 failed\n", "")]:
            self.assertFalse(self.same(stream(one), stream(other)), one)
        self.assertFalse(self.same(stream("a\n"), stream("a\n", "stderr")))

    def test_tags_allow_more(self):
        self.assertTrue(self.same(stream("[0] a\n[1] b\n"), stream("[1] b\n[0] a\n"), "any-order"))
        self.assertFalse(self.same(stream("[0] a\n[1] b\n"), stream("[1] b\n[0] c\n"), "any-order"))
        self.assertTrue(self.same(stream("loss 0.51 --*-\n"), stream("loss 7 **\n"), "only-words"))
        self.assertFalse(self.same(stream("loss 0.51\n"), stream("accuracy 0.51\n"), "only-words"))
        self.assertTrue(self.same(stream("no tensor cores\n"), stream("tensor cores\nare used\n"), "any-text"))
        self.assertFalse(self.same(stream("no tensor cores\n"), [], "any-text"))
        self.assertFalse(self.same(stream("a\n"), stream("a\n", "stderr"), "any-text"))

    def test_streams_are_joined(self):
        outputs = []
        for text, name in [("a", "stdout"), ("b\n", "stdout"), ("c\n", "stderr"), ("d\n", "stdout")]:
            notebook.add(outputs, stream(text, name)[0])
        self.assertEqual([each["text"] for each in outputs], ["ab\n", "c\n", "d\n"])
        self.assertTrue(self.same(outputs, stream("ab\nd\n") + stream("c\n", "stderr")))

    def test_values_and_errors_count(self):
        def value(text):
            return [{"data": {"text/plain": text}, "metadata": {}, "output_type": "execute_result", "execution_count": 1}]

        def error(text):
            return [{"ename": "Error", "evalue": text, "output_type": "error", "traceback": []}]

        self.assertTrue(self.same(value(["4", "2"]), value("42")))
        self.assertFalse(self.same(value("42"), value("43")))
        self.assertFalse(self.same(error("a"), error("b")))


class Stored(unittest.TestCase):
    """The notebooks of the repository as files: what the specification of their format and a reader want."""

    def test_ids_links_and_outputs(self):
        paths = sorted((REPOSITORY / "notebooks").glob("*/*.ipynb"))
        self.assertGreater(len(paths), 5)
        for path in paths:
            cells = notebook.read(path)["cells"]
            ids = [cell["id"] for cell in cells]
            self.assertEqual(len(set(ids)), len(ids), path)
            for cell in cells:
                for link in re.findall(r"\]\(([^)#]+)", notebook.text_of(cell["source"])) if cell["cell_type"] == "markdown" else []:
                    self.assertTrue((path.parent / link).exists(), f"{path}: {link}")
                if cell["cell_type"] == "code":
                    self.assertIsNotNone(cell["execution_count"], f"{path}: {cell['id']} has no outputs")
                    self.assertNotIn("error", [output["output_type"] for output in cell["outputs"]], f"{path}: {cell['id']}")


if __name__ == "__main__":
    unittest.main()
