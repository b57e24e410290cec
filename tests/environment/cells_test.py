"""Tests of tools/python/kernels/yoke_cpp_cells.py, without a compiler. Usage: cells_test.py FOLDER_OF_KERNELS"""

import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
import yoke_cpp_cells as cells

KINDS = [  # the items of a cell, and their kinds
    ("int x = 1;", "variable"),
    ("int x;", "variable"),
    ("x = 2;", "statement"),
    ("x;", "statement"),
    ("x", "expression"),
    ("x + f(1)", "expression"),
    ("f(x);", "statement"),
    ("a < b;", "statement"),
    ("auto v = std::vector<int>{1, 2};", "variable"),
    ("std::vector<std::pair<int, int>> v{{1, 2}};", "variable"),
    ("torch::nn::Linear model(2, 1);", "variable"),
    ("::ns::T t;", "variable"),
    ("const auto& [a, b] = pair;", "variable"),
    ("unsigned long n = 3;", "variable"),
    ("int a[] = {1, 2};", "variable"),
    ("int a = 1, b = 2;", "variable"),
    ("decltype(x) y = x;", "variable"),
    ("struct Point p{1, 2};", "variable"),
    ("enum Color c = red;", "variable"),
    ("enum class Shade { light };", "declaration"),
    ("struct Last final : Net {};", "declaration"),
    ("struct Later;", "declaration"),
    ("auto f = [](int a) { return a; };", "variable"),
    ("int f(int a) { return a; }", "declaration"),
    ("template <typename T> T twice(T t) { return t + t; }", "declaration"),
    ("std::string name() { return \"}\"; }", "declaration"),
    ("auto f(int a) -> int { return a; }", "declaration"),
    ("struct Net : torch::nn::Module { int x; };", "declaration"),
    ("using namespace torch;", "declaration"),
    ("namespace nn = torch::nn;", "declaration"),
    ("enum class Color { red };", "declaration"),
    ("TORCH_MODULE(Net);", "statement"),
    ("for (int i = 0; i < 3; ++i) { f(i); }", "statement"),
    ("if (x) { f(1); } else { f(2); }", "statement"),
    ("if (x) f(1); else f(2);", "statement"),
    ("do { ++x; } while (x < 3);", "statement"),
    ("try { f(); } catch (...) { g(); }", "statement"),
    ("std::cout << x << '\\'' << std::endl;", "statement"),
    ("++x;", "statement"),
    ("{ int y = 1; f(y); }", "statement"),
    ("#include <vector>", "line"),
    ("#define A \\\n  1", "line"),
    ("v.push_back(R\"(;}\")\");", "statement"),
    ("optimizer.step(0.1);", "statement"),
    ("torch::manual_seed(1);", "statement"),
    ("loss.item<float>()", "expression"),
]


class Cells(unittest.TestCase):
    def test_each_item_has_its_kind(self):
        for text, kind in KINDS:
            with self.subTest(text):
                self.assertEqual([(item.kind, item.text) for item in cells.split(text)], [(kind, text)])

    def test_items_follow_each_other(self):
        code = "\n\n".join(text for text, kind in KINDS if kind != "expression")
        kinds = [kind for _, kind in KINDS if kind != "expression"]
        self.assertEqual([item.kind for item in cells.split(code)], kinds)

    def test_lines_are_those_of_the_cell(self):
        items = cells.split("int a;\n\n// a comment\nint b; f();\n#define X\nX")
        self.assertEqual([item.line for item in items], [1, 4, 4, 5, 6])

    def test_comments_alone_are_nothing(self):
        self.assertEqual(cells.split("// x;\n/* int y; */\n ; \n"), [])

    def test_later_units_repeat_declarations_only(self):
        first = cells.Cell(1, cells.split("#include <map>\nint x = 1;\nf(x);\nstruct S { int a; };"))
        text = cells.unit([first], cells.Cell(2, cells.split("x")))
        self.assertLess(text.index("#include <map>"), text.index("namespace cell_1"))
        self.assertIn("inline int x = 1;", text)
        self.assertIn("struct S", text)
        self.assertNotIn("f(x)", text)
        self.assertLess(text.index("namespace cell_1"), text.index("namespace cell_2"))

    def test_static_would_make_a_variable_for_each_unit(self):
        self.assertEqual(cells.as_variable("static int x = 1;"), "inline int x = 1;")
        self.assertEqual(cells.as_variable("const static int x = 1;"), "inline const int x = 1;")


unittest.main()
