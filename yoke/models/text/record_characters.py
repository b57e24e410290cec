#!/usr/bin/env python3
"""Writes detail/character_tables.h: how Hugging Face's tokenizers (the Python package) treats each Unicode character.

Usage: record_characters.py > detail/character_tables.h   (needs `pip install tokenizers`)

The package combines libraries with tables of different Unicode versions, and models were trained with what it does, so
its behaviour is recorded character by character instead of one Unicode version's.
"""

import textwrap

import tokenizers
from tokenizers import normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)  # decomposed by arithmetic


def ask():
    """Returns for each code its class in GPT-2's pattern, BERT's normal form, and whether BERT splits around it; and the
    codes that models with upper case drop."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    count = lambda text: len(byte_level.pre_tokenize_str(text))
    bert = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True)
    cased = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    split = pre_tokenizers.BertPreTokenizer()
    classes, forms, punctuation = {}, {}, {}
    for code in CODES:
        char = chr(code)
        classes[code] = next((kind for kind, before in (("L", "a"), ("N", "1"), ("O", "!")) if count(before + char) == 1), "S")
        forms[code] = bert.normalize_str(char)
        punctuation[code] = len(split.pre_tokenize_str("a" + char + "a")) == 3
    return classes, forms, punctuation, [code for code in CODES if cased.normalize_str(chr(code)) == ""]


def ranges(codes):
    result = []
    for code in sorted(codes):
        if result and code == result[-1][1] + 1:
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def print_table(head, entries):
    print(head + " = {\n" + textwrap.fill(", ".join(entries), 120, break_on_hyphens=False) + "\n};\n")


def print_ranges(name, codes):
    print_table(f"inline constexpr Range {name}[]", [f"{{{first:#x},{last:#x}}}" for first, last in ranges(codes)])


def write(classes, forms, punctuation, controls):
    ideographs = [c for c in CODES if len(forms[c]) > 2 and forms[c][0] == forms[c][-1] == " "]
    inner = dict(forms) | {c: forms[c].strip(" ") for c in ideographs}
    spaces = [c for c in CODES if forms[c] == " "]
    dropped = [c for c in CODES if forms[c] == ""]
    changed = [c for c in CODES if inner[c] not in (chr(c), "", " ") and c not in HANGUL]
    for c in HANGUL:
        i = c - HANGUL.start
        jamo = [0x1100 + i // 588, 0x1161 + i % 588 // 28] + ([0x11A7 + i % 28] if i % 28 else [])
        assert inner[c] == "".join(map(chr, jamo)), hex(c)
    single = [c for c in changed if len(inner[c]) == 1]
    longer = [c for c in changed if len(inner[c]) > 1]
    print(f"// Written by record_characters.py from tokenizers {tokenizers.__version__}. Do not edit.")
    print("#pragma once\n\nnamespace yoke::models {\n")
    print("// clang-format off")
    print("struct Range {\n  char32_t first, last;\n};\n")
    print_ranges("kLetters", [c for c in CODES if classes[c] == "L"])
    print_ranges("kNumbers", [c for c in CODES if classes[c] == "N"])
    print_ranges("kSpaces", [c for c in CODES if classes[c] == "S"])
    print_ranges("kBertSpaces", spaces)
    print_ranges("kBertDropped", dropped)
    print_ranges("kBertControls", controls)
    print_ranges("kBertIdeographs", ideographs)
    print_ranges("kBertPunctuation", [c for c in CODES if punctuation[c]])
    print("/// Characters [first, last] in steps of `step` become themselves plus `shift`.")
    print("struct Shift {\n  char32_t first, last;\n  int32_t step, shift;\n};\n")
    print("struct Longer {\n  char32_t from;\n  char32_t to[4];\n};\n")
    runs = []
    for c in single:
        shift = ord(inner[c]) - c
        last = runs[-1] if runs else [0, 0, 0, None]
        step = c - last[1]
        if last[3] == shift and (step == last[2] or (last[0] == last[1] and step <= 2)):
            last[1:3] = c, step
        else:
            runs.append([c, c, 1, shift])
    print_table("inline constexpr Shift kBertShifted[]", [f"{{{a:#x},{b:#x},{step},{shift}}}" for a, b, step, shift in runs])
    assert max(len(inner[c]) for c in longer) <= 4
    print_table(
        "inline constexpr Longer kBertLonger[]",
        [f"{{{c:#x},{{{','.join(hex(ord(x)) for x in inner[c])}}}}}" for c in longer],
    )
    print("// clang-format on\n}  // namespace yoke::models")


if __name__ == "__main__":
    write(*ask())
