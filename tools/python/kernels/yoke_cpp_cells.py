"""Turns cells of a C++ notebook into translation units. Pure functions; tests/environment/cells_test.py has tables.

A cell consists of items: preprocessor lines, declarations, and statements. They become definitions of a namespace that is
nested in that of the cell before, so a later cell may define a name again:

    namespace cell_1 { inline int x = 1;
    namespace cell_2 { inline const char yoke_1 = ([] { std::cout << x; }(), 0); }}

Inline variables are initialised once in a process, in the order of the text. So each unit repeats the declarations of all
cells before; the variables keep their values, and `auto` keeps its type. Statements are not repeated.
"""

import re
from dataclasses import dataclass, field

# Spaces, comments, strings and characters, raw strings; then words, then single characters.
TOKEN = re.compile(
    r'(?P<space>\s+|//[^\n]*|/\*.*?\*/)'
    r'|(?P<raw>(?:u8|u|U|L)?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")'
    r'|(?P<text>(?:u8|u|U|L)?"(?:\\.|[^"\\\n])*"|(?:u8|u|U|L)?\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<number>\d(?:[\w.]|'(?=\w))*)"
    r'|(?P<word>[A-Za-z_]\w*)|(?P<other>::|->|.)',
    re.DOTALL,
)
STATEMENT_WORDS = set("if for while do switch return throw try delete new goto break continue co_return co_await co_yield".split())
PLAIN_WORDS = set("using namespace template typedef static_assert asm struct class union enum extern inline concept friend".split())
# Words that may stand before the type of a variable.
SPECIFIERS = set("const constexpr constinit static thread_local volatile unsigned signed long short auto typename mutable register".split())
TYPE_WORDS = set("unsigned signed long short int char bool float double void auto".split())


# Where the host finds the initialisers, which the kernel moves out of .init_array.
TABLE = """
extern "C" {
__attribute__((weak, visibility("hidden"))) extern void (*__start_yoke_init[])();
__attribute__((weak, visibility("hidden"))) extern void (*__stop_yoke_init[])();
void (**yoke_cell_begin)() = __start_yoke_init;
void (**yoke_cell_end)() = __stop_yoke_init;
}
"""


@dataclass
class Item:
    kind: str  # "line" (of the preprocessor), "declaration", "variable", "statement", "expression"
    text: str
    line: int  # Its first line in the cell, from 1.


@dataclass
class Cell:
    number: int
    items: list = field(default_factory=list)


def tokens_of(text):
    for match in TOKEN.finditer(text):
        yield match.lastgroup if match.lastgroup != "delimiter" else "raw", match.group(), match.start(), match.end()


def split(code):
    """Splits a cell into its items."""
    items, tokens = [], list(tokens_of(code))
    i = 0
    while i < len(tokens):
        kind, text, start, _ = tokens[i]
        if kind == "space":
            i += 1
        elif text == "#":
            end = start
            while True:  # a line ends at a line feed that no backslash precedes
                end = code.find("\n", end)
                if end < 0:
                    end = len(code)
                    break
                if not code[:end].endswith("\\"):
                    break
                end += 1
            items.append(Item("line", code[start:end], line_of(code, start)))
            while i < len(tokens) and tokens[i][2] < end:
                i += 1
        elif text == ";":
            i += 1
        else:
            i, item = take_item(code, tokens, i)
            items.append(item)
    return items


def line_of(code, position):
    return code.count("\n", 0, position) + 1


def next_text(tokens, i):
    """The first token from i on that is not a space, or ''."""
    while i < len(tokens) and tokens[i][0] == "space":
        i += 1
    return tokens[i][1] if i < len(tokens) else ""


def take_item(code, tokens, i):
    """Takes the item that begins at token i. Returns the token after it, and the item."""
    start, depth, first = tokens[i][2], 0, tokens[i][1]
    words = []  # the tokens outside brackets, until a brace
    saw_brace = saw_equals = False
    ended = False
    while i < len(tokens):
        kind, text, _, end = tokens[i]
        i += 1
        if kind == "space":
            continue
        if not saw_brace and not saw_equals:
            words.append((kind, text, depth))
        if kind != "other":
            continue
        if text in "([{":
            saw_brace = saw_brace or (text == "{" and depth == 0)
            depth += 1
        elif text in ")]}":
            depth = max(0, depth - 1)
            if text == "}" and depth == 0:
                following = next_text(tokens, i)
                if following == ";":
                    continue
                goes_on = following in ("else", "catch") or (first == "do" and following == "while")
                is_type = first in ("struct", "class", "union", "enum", "typedef")
                is_value = saw_equals or following in (",", ".", "(", "->", "[", "<", "{", ")")
                if not goes_on and not is_type and not is_value:
                    ended = True
                    break
        elif depth == 0 and text == "=" and not saw_brace:
            saw_equals = True
        elif depth == 0 and text == ";":
            following = next_text(tokens, i)
            if first == "if" and following == "else":
                continue
            ended = True
            break
    text = code[start:end]
    return i, Item(classify(text, words, ended), text, line_of(code, start))


def classify(text, words, ended):
    first = words[0][1]
    if first in STATEMENT_WORDS:
        return "statement"
    if is_variable_of_struct(text):
        return "variable"
    if first in PLAIN_WORDS:
        return "declaration"
    if first == "[" or not declares(words):
        return "statement" if ended else "expression"
    if text.rstrip().endswith("}") and "=" not in [word[1] for word in words] and has_parameters(words):
        return "declaration"  # a function
    return "variable"


def is_variable_of_struct(text):
    """`struct Point p;` and `enum Color c = red;`, but not the definition of a type or its declaration."""
    return re.match(r"(struct|class|union|enum)\s+(?!class\b|struct\b)[\w:]+\s+(?!final\b)\w+\s*[={;(\[]", text)


def has_parameters(words):
    texts = [word[1] for word in words]
    return "(" in texts and ("{" not in texts or texts.index("(") < texts.index("{"))


def declares(words):
    """Whether the tokens begin with a type and a name: `int x`, `std::vector<int>& v`, `auto [a, b]`."""
    i, has_type = 0, False
    while i < len(words) and words[i][1] in SPECIFIERS | {"int", "char", "bool", "float", "double", "void"}:
        has_type = has_type or words[i][1] in TYPE_WORDS
        i += 1
    if not has_type:
        if i < len(words) and words[i][1] == "decltype":
            i = skip_brackets(words, i + 1)
        else:
            if i < len(words) and words[i][1] == "::":
                i += 1
            while True:
                if i >= len(words) or words[i][0] != "word":
                    return False
                i += 1
                if i < len(words) and words[i][1] == "<":
                    i = skip_angles(words, i)
                    if i is None:
                        return False
                if i < len(words) and words[i][1] == "::":
                    i += 1
                    continue
                break
    while i < len(words) and words[i][1] in ("&", "*", "const"):
        i += 1
    if i >= len(words):
        return False
    if words[i][1] == "[":  # structured bindings
        return has_type
    if words[i][0] != "word" or words[i][1] in ("operator",):
        return words[i][1] == "operator"
    following = words[i + 1][1] if i + 1 < len(words) else ";"
    return following in ("=", "{", "(", ";", "[", ",", "::")


def skip_brackets(words, i):
    depth = words[i][2] if i < len(words) else 0
    while i < len(words) and not (words[i][1] == ")" and words[i][2] == depth + 1):
        i += 1
    return i + 1


def skip_angles(words, i):
    """The index after the `>` that closes the `<` at i; None if there is none, as in a comparison."""
    depth = 0
    while i < len(words):
        text = words[i][1]
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return i + 1
        elif text in (";", "{"):
            return None
        i += 1
    return None


def as_variable(text):
    """The text of a variable's definition as an inline variable. `static` would make one for each unit."""
    text = re.sub(r"^((?:const|constexpr|volatile)\s+)?static\s+", r"\1", text)
    return ("" if re.match(r"(inline|extern)\b", text) else "inline ") + text.rstrip().rstrip(";") + ";"


def repeated(cell):
    """What later units repeat of a cell."""
    parts = []
    for item in cell.items:
        if item.kind == "declaration":
            parts.append(with_line(item, item.text))
        elif item.kind == "variable":
            parts.append(with_line(item, as_variable(item.text)))
    return "\n".join(parts)


def with_line(item, text):
    return f'#line {item.line} "cell"\n{text}'


def unit(before, cell):
    """The translation unit of a cell. `before` has the cells that have run, in their order."""
    lines = [item.text for one in [*before, cell] for item in one.items if item.kind == "line"]
    parts = [*lines]
    for one in before:
        parts.append(f"namespace cell_{one.number} {{\n{repeated(one)}")
    parts.append(f"namespace cell_{cell.number} {{")
    for i, item in enumerate(cell.items):
        name = f"yoke_item_{i}"
        if item.kind == "declaration":
            parts.append(with_line(item, item.text))
        elif item.kind == "variable":
            parts.append(with_line(item, as_variable(item.text)))
        elif item.kind == "statement":
            text = with_line(item, item.text)
            parts.append(f"inline const char {name} = ([] {{\n{text}\n;}}(), '\\0');")
        elif item.kind == "expression":
            text = with_line(item, item.text)
            parts.append(f"inline const char {name} = (::yoke_cell::show_result([]() -> decltype(auto) {{ return (\n{text}\n); }}), '\\0');")
    parts.append("}" * (len(before) + 1))
    return "\n".join(parts) + TABLE
