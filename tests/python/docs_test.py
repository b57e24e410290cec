"""Runs the programs of docs/python.md, and compares its table with the module. Usage: docs_test.py python|torch"""

import re
import subprocess
import sys
import unittest

import machine
import yoke

WHICH = sys.argv.pop(1)
PAGE = (machine.REPOSITORY / "docs/python.md").read_text()


class Page(machine.Machine):
    def test_its_programs_run(self):
        programs = re.findall(rf"<!-- run with {WHICH} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
        self.assertGreater(len(programs), 1)
        for program in programs:
            with self.subTest(program):
                if WHICH == "torch":  # which complains about the fake driver
                    self.without_driver()
                done = subprocess.run([sys.executable, "-W", "error::ResourceWarning", "-c", program], cwd=self.folder,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, r"\A(yoke .*\n)*\Z")  # no warning of Python
                # A comment at the end of a line that says what is printed: `...` stands for anything.
                for expected in re.findall(r"print\(.*#\s*(\d.*)$", program, re.MULTILINE):
                    self.assertRegex(done.stdout, re.escape(expected.rstrip(".").rstrip()))

    def test_its_table_has_every_function(self):
        table = PAGE[PAGE.index("| Python | C++"):PAGE.index("`help(yoke.claim)`")]
        listed = set(re.findall(r"`(\w+)\(", "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
        functions = {name for name in yoke.__all__ if name.islower() and name != "command"}
        self.assertEqual(listed, functions)

    def test_the_links_of_its_table_lead_somewhere(self):
        for page, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", PAGE):
            text = (machine.REPOSITORY / "docs" / page).read_text()
            headings = {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-")
                        for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
            self.assertTrue(not anchor or anchor in headings, f"{page}#{anchor}")


if __name__ == "__main__":
    unittest.main()
