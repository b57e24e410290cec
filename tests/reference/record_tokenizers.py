"""Records what Hugging Face's package tokenizers makes of lines of mixed Unicode, which yoke's tokenizers must equal.

    python record_tokenizers.py tokenizers/          (pip install tokenizers)

Writes two small tokenizers that are trained on this file's own lines, gpt2.json with gpt2/{vocab.json,merges.txt} and
bert.json, and lines.json: for each line its tokens by both; and a CRC-32 of what all characters become, and one of what a part of
them becomes, those below U+3400 and each 61st of the others.
"""
import json
import pathlib
import sys
import zlib

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)

LINES = [
    "The quick brown fox jumps over the lazy dog, and it's the dog's 3rd day; they'll say we've won, I'd bet you're 'm.",
    "It isn't what you think: we'RE 'S 's 't 'd don''t '' 'll'll 've",
    "  two spaces   three    four\tand a tab\t\ttwo \t mixed\n\nnew\r\nlines \n ",
    "numbers 1 12 123 1234 3.14 1e-5 ½ ² Ⅷ ٣ १२ x2 2x 0x1F",
    "Ünïcödé àéîõü ÀÉÎÕÜ ñ ç ß ẞ Å Ǻ Ə ı İ ﬁ ﬀ œ Œ ø Ø đ Đ ł",
    "e\u0301 a\u0300\u0301 o\u0308\u0304 n\u0303\u0323 \u0301 alone \u1e69 s\u0323\u0307 s\u0307\u0323",
    "Ελληνικά ΣΊΣΥΦΟΣ σίσυφος Ωμέγα ἀρχή ᾳ ῼ",
    "Русский текст Ёлка йод ѢѣЪ ҐґЇї",
    "中文没有空格，日本語のひらがなカタカナ｡ 한국어 띄어쓰기 각 각 豈 㐀 𠀀 𫠠 𠮷",
    "العربية مُشَكَّلَة ٱلْعَرَبِيَّة فارسی‌نویسی עִבְרִית שָׁלוֹם",
    "हिन्दी में नमस्ते தமிழ் ภาษาไทย ປະເທດລາວ မြန်မာ ខ្មែរ ქართული ᲥᲐᲠᲗᲣᲚᲘ հայերեն ՀԱՅԵՐԵՆ ⰀⰁ 𐐀𐐁 𞤀",
    "Tiếng Việt có dấu, ệ ễ ộ ữ; Čeština říká žluťoučký kůň; Türkçe İstanbul'da ığdır",
    "emoji 😀😃👍🏽👩‍👩‍👧‍👦🇩🇪 ❤️ ☃ ✓ ™ © ® → ∑ ∫ √ ≠ ∞ ℃ Å K Ω µ μ",
    "quotes “double” ‘single’ «guillemets» „low“ — em – en ‐ hyphen … ellipsis • bullet ‹x› 「かぎ」",
    "zero\u200bwidth \u200e\u200f marks \ufeff bom soft\u00adhyphen \u2028 line \u2029 paragraph nbsp\u00a0here \u3000 ideographic \u1680 \u180e \u202f \u205f",
    "control \x00 \x01 \x07 \x1b[31m \x7f \x85 \x1c\x1d\x1e\x1f end \ufffd \ue000 \U000f0000 \u0378 \U0010ffff",
    "http://example.com/path?query=1&b=2#frag user@example.org C:\\path\\file.txt $100 50% a_b-c+d=e*f/g^h~i`j|k{l}m[n]o<p>q",
    "<|endoftext|>between<|endoftext|><|endoftext|> <|endoftex [MASK] x[MASK]y [CLS] [SEP] [UNK] [PAD] [mask] [[MASK]]",
    "a" * 99 + " " + "b" * 100 + " " + "c" * 101 + " " + "é" * 100 + " " + "\u0344" * 60,
    "wordpieces: unbelievable unbelievably believing unbelievers believed " + "ab" * 40,
    "",
    " ",
    "\n",
    "x",
    "\u0301",
    "the the  the   the\u00a0the\u2003the\u2003\u2003the \u2003the",
    "mixedCaseWords HTMLParser iPhone McDonald's O'Neil rock'n'roll 'tis",
    "ǅ ǆ Ǆ ᾈ ᾀ ﬃ ŉ ǰ ΐ և ẖ Ⓐ ⓐ Ａ ａ １ ２ ① ㈱ ㎞ ﷺ",
    "क़ ড় ਖ਼ ଡ଼ གྷ 🈁 ⼀ ⿰ 々 〆 〇 ㊗ ꙮ ꜩ ⷠ ᷀ ⃝ ゙ が か\u3099 ﾞ \U0001d15e \U0001d1bb",
]


def encode(tokenizer):
    return [tokenizer.encode(line).ids for line in LINES]


gpt = Tokenizer(models.BPE())
gpt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
gpt.post_processor = processors.ByteLevel(trim_offsets=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
gpt.train_from_iterator(
    LINES * 3,
    trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    ),
)
gpt.save(str(folder / "gpt2.json"))
(folder / "gpt2").mkdir(exist_ok=True)
gpt.model.save(str(folder / "gpt2"))

bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
bert.normalizer = normalizers.BertNormalizer()
bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
bert.train_from_iterator(
    [line for i, line in enumerate(LINES) if i not in (8, 10)],
    trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, show_progress=False),
)
bert.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    special_tokens=[("[CLS]", bert.token_to_id("[CLS]")), ("[SEP]", bert.token_to_id("[SEP]"))],
)
bert.save(str(folder / "bert.json"))
bert_lines = encode(bert)

# All characters, one by one: BERT's words of the text "a" + character + "A", joined by spaces, and GPT-2's pieces of
# "a" + character + "1 " + character + "!", with a line feed after each character.
codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
words = lambda text: [word for word, _ in bert.pre_tokenizer.pre_tokenize_str(bert.normalizer.normalize_str(text))]
pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
crcs = dict.fromkeys(("bert_crc32", "gpt2_crc32", "bert_part_crc32", "gpt2_part_crc32"), 0)
for code in codes:
    parts = [end - begin for _, (begin, end) in pieces.pre_tokenize_str(f"a{chr(code)}1 {chr(code)}!")]
    for name, row in ("bert", words(f"a{chr(code)}A")), ("gpt2", map(str, parts)):
        line = (" ".join(row) + "\n").encode()
        crcs[f"{name}_crc32"] = zlib.crc32(line, crcs[f"{name}_crc32"])
        if code < 0x3400 or code % 61 == 0:
            crcs[f"{name}_part_crc32"] = zlib.crc32(line, crcs[f"{name}_part_crc32"])

rows = [{"line": line, "gpt2": a, "bert": b} for line, a, b in zip(LINES, encode(gpt), bert_lines)]
text = ",\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows)
(folder / "lines.json").write_text(
    json.dumps(crcs)[:-1] + f', "lines": [\n{text}\n]}}\n'
)
