// Tests of tokenizers. Oracle: Hugging Face's package tokenizers (tests/reference/record_tokenizers.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/file.h"
#include "yoke/base/utf8.h"
#include "yoke/models/text/bpe.h"
#include "yoke/models/text/tokenizer.h"
#include "yoke/models/text/word_piece.h"

namespace yoke::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

fs::path recorded_tokenizer(const std::string& name) { return test::reference("tokenizers/" + name); }

const json& recorded_lines() {
  static const json file = json::parse(std::ifstream(recorded_tokenizer("lines.json")));
  return file;
}

TEST(ByteTokenizer, GivesTheTextBack) {
  const ByteTokenizer tokenizer;
  const std::string text("a\0\xff\xC3\xA9\n", 6);
  EXPECT_THAT(tokenizer.encode(text), testing::ElementsAre(97, 0, 255, 0xC3, 0xA9, 10));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_THAT(test::message_of([&] { tokenizer.decode(std::vector<int64_t>{256}); }), HasSubstr("256 is not a byte"));
  EXPECT_EQ(read_tokenizer("bytes")->size(), 256);
}

TEST(BpeTokenizer, EqualsPythonOnMixedUnicode) {
  for (const auto* name : {"gpt2.json", "gpt2"}) {
    const auto tokenizer = read_tokenizer(recorded_tokenizer(name));
    for (const auto& row : recorded_lines()["lines"]) {
      const std::string line = row["line"];
      const auto tokens = tokenizer->encode(line);
      EXPECT_EQ(tokens, row["gpt2"].get<std::vector<int64_t>>()) << name << ": " << line;
      EXPECT_EQ(tokenizer->encode(line), tokens) << "from the table of known words";
      EXPECT_EQ(tokenizer->decode(tokens), line);
    }
  }
}

TEST(BpeTokenizer, KeepsBytesThatAreNotUtf8) {
  const auto tokenizer = read_tokenizer(recorded_tokenizer("gpt2"));
  for (const std::string text : {"\xff", "a\xC3", "\xE2\x82 x", "ok \xF0\x9F\x98", "\xC0\x80 \xED\xA0\x80"}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

// A word of 200,000 equal letters takes minutes if each merge looks at the whole word.
TEST(BpeTokenizer, MergesInTheOrderOfTheListAndFromTheLeft) {
  BpeOptions options;
  const auto base = read_tokenizer(recorded_tokenizer("gpt2"));
  const json vocabulary = json::parse(std::ifstream(recorded_tokenizer("gpt2/vocab.json")));
  for (const auto& [name, token] : vocabulary.items()) {
    char32_t code = 0;
    size_t count = 0;
    for (std::string_view rest = name; !rest.empty(); ++count) {
      code = first_character(rest).code;
      rest.remove_prefix(first_character(rest).length);
    }
    if (count == 1 && code < 0x200) options.vocabulary[name] = token;
  }
  options.vocabulary.insert({{"aa", 1000}, {"aaaa", 1001}, {"ab", 1002}});
  options.merges = {{"a", "b"}, {"a", "a"}, {"aa", "aa"}};
  const BpeTokenizer tokenizer(options);
  const auto a = *tokenizer.token("a");
  EXPECT_THAT(tokenizer.encode("aaaaa"), testing::ElementsAre(1001, a));
  EXPECT_THAT(tokenizer.encode("aaab"), testing::ElementsAre(1000, 1002));
  EXPECT_THAT(tokenizer.encode("aab"), testing::ElementsAre(a, 1002)) << "ab comes first in the list";
  EXPECT_EQ(tokenizer.encode(std::string(200'000, 'a')), std::vector<int64_t>(50'000, 1001));

  options.merges = {{"a", "c"}};
  EXPECT_THAT(test::message_of([&] { const BpeTokenizer refused(options); }, ErrorCode::kDataLoss),
              HasSubstr("'ac' is not in the vocabulary"));
}

TEST(BpeTokenizer, ManyThreadsShareOne) {
  const auto tokenizer = read_tokenizer(recorded_tokenizer("gpt2"));
  const auto& lines = recorded_lines()["lines"];
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const auto& row : lines) {
        EXPECT_EQ(tokenizer->encode(row["line"].get_ref<const std::string&>()),
                  row["gpt2"].get<std::vector<int64_t>>());
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(WordPieceTokenizer, EqualsPythonOnMixedUnicode) {
  const auto tokenizer = read_tokenizer(recorded_tokenizer("bert.json"));
  for (const auto& row : recorded_lines()["lines"]) {
    const std::string line = row["line"];
    EXPECT_EQ(tokenizer->encode(line), row["bert"].get<std::vector<int64_t>>()) << line;
  }
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("The unbelievable DOG's")), "the unbelievable dog ' s");
  EXPECT_EQ(tokenizer->encode("dog\xff\xC3"), tokenizer->encode("dog")) << "what is not UTF-8 is dropped";
}

// The recorded checksums are over each of the 1,112,064 characters, and over those below U+3400 and each 61st of the
// others.
TEST(Characters, AreAllTreatedAsInPython) {
  const bool all = std::getenv("YOKE_LONG") != nullptr;
  uint32_t bert = 0, gpt2 = 0;
  const auto add = [](uint32_t& crc, const std::string& text) {
    crc =
        static_cast<uint32_t>(crc32(crc, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
  };
  const auto num_characters = [](std::string_view text) {
    return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
  };
  std::string text, row;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    if (!all && code >= 0x3400 && code % 61 != 0) continue;
    const auto character = to_utf8(code);
    text = "a" + character + "A";
    row.clear();
    for (const auto& word : bert_words(text)) {
      if (!row.empty()) row += ' ';
      for (const char32_t part : word) row += to_utf8(part);
    }
    add(bert, row + '\n');
    text = "a" + character + "1 " + character + "!";
    row.clear();
    for (const auto word : gpt2_words(text)) row += (row.empty() ? "" : " ") + std::to_string(num_characters(word));
    add(gpt2, row + '\n');
  }
  EXPECT_EQ(bert, recorded_lines()[all ? "bert_crc32" : "bert_part_crc32"].get<uint32_t>());
  EXPECT_EQ(gpt2, recorded_lines()[all ? "gpt2_crc32" : "gpt2_part_crc32"].get<uint32_t>());
}

class ReadTokenizer : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) const {
    const auto path = fs::path(folder_.path()) / name;
    std::ofstream(path) << text;
    return path;
  }
  /// A tokenizer.json with one member changed.
  fs::path changed(const char* name, const std::string& place, const json& value) const {
    auto file = json::parse(std::ifstream(recorded_tokenizer(name)));
    file[json::json_pointer(place)] = value;
    return write("tokenizer.json", file.dump());
  }
  static std::string refusal(const fs::path& path, ErrorCode code = ErrorCode::kFailedPrecondition) {
    return test::message_of([&] { read_tokenizer(path); }, code);
  }
  test::TemporaryFolder folder_;
};

TEST_F(ReadTokenizer, VocabTxtIsBerts) {
  const auto file = json::parse(std::ifstream(recorded_tokenizer("bert.json")));
  std::vector<std::string> names(file["model"]["vocab"].size());
  for (const auto& [name, token] : file["model"]["vocab"].items()) names.at(token.get<size_t>()) = name;
  std::string text;
  for (const auto& name : names) text += name + '\n';
  write("vocab.txt", text);
  const auto tokenizer = read_tokenizer(folder_.path());
  for (const auto& row : recorded_lines()["lines"]) {
    const std::string line = row["line"];
    EXPECT_EQ(tokenizer->encode(line), row["bert"].get<std::vector<int64_t>>()) << line;
  }
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_NE(read_tokenizer(folder_.path())->encode("The"), tokenizer->encode("The"));
}

TEST_F(ReadTokenizer, TokenizerConfigIsHonouredBesideVocabTxt) {
  write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n中\n国\n中国\n");
  const auto tokens = [&] { return read_tokenizer(folder_.path())->encode("中国"); };
  EXPECT_THAT(tokens(), testing::ElementsAre(1, 3, 4, 2));
  const auto config = write("tokenizer_config.json", R"({"tokenize_chinese_chars": false, "strip_accents": null})");
  EXPECT_THAT(tokens(), testing::ElementsAre(1, 5, 2));
  write("tokenizer_config.json", R"({"do_lower_case": false, "strip_accents": false})");
  EXPECT_THAT(tokens(), testing::ElementsAre(1, 3, 4, 2));

  write("tokenizer_config.json", R"({"strip_accents": false})");
  EXPECT_THAT(refusal(folder_.path()),
              HasSubstr(config.string() + ": strip_accents is false where do_lower_case is true"));
  write("tokenizer_config.json", R"({"do_lower_case": false, "strip_accents": true})");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("strip_accents is true where do_lower_case is false"));
  write("tokenizer_config.json", R"({"do_basic_tokenize": false})");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("do_basic_tokenize is false"));
}

TEST_F(ReadTokenizer, IdeographsStayInWordsIfTheFileSaysSo) {
  const auto path = changed("bert.json", "/normalizer/handle_chinese_chars", false);
  EXPECT_EQ(read_tokenizer(path)->encode("中国").size(), 3u);
  EXPECT_EQ(read_tokenizer(recorded_tokenizer("bert.json"))->encode("中国").size(), 4u);
}

TEST_F(ReadTokenizer, RefusesWhatItWouldDoOtherwise) {
  EXPECT_THAT(refusal(changed("gpt2.json", "/normalizer", {{"type", "NFC"}})), HasSubstr("NFC"));
  EXPECT_THAT(refusal(changed("gpt2.json", "/pre_tokenizer/use_regex", false)), HasSubstr("pre-tokenizer"));
  EXPECT_THAT(refusal(changed("gpt2.json", "/model/type", "Unigram")), HasSubstr("Unigram"));
  EXPECT_THAT(refusal(changed("gpt2.json", "/added_tokens/0/lstrip", true)), HasSubstr("lstrip"));
  EXPECT_THAT(refusal(changed("bert.json", "/normalizer/strip_accents", false)),
              HasSubstr("strip_accents is false where lowercase is true, which is not supported"));
  EXPECT_THAT(refusal(changed("bert.json", "/normalizer/clean_text", false)),
              HasSubstr("clean_text of the normaliser is false, which"));
  const json sequence = {{"type", "Sequence"}, {"normalizers", json::array({{{"type", std::string(200, 'x')}}})}};
  EXPECT_THAT(refusal(changed("bert.json", "/normalizer", sequence)),
              HasSubstr("the normaliser has the type 'Sequence', which"));
  EXPECT_THAT(refusal(changed("bert.json", "/pre_tokenizer/type", "Whitespace")), HasSubstr("Whitespace"));
  EXPECT_THAT(refusal(changed("bert.json", "/model/unk_token", "[NONE]"), ErrorCode::kDataLoss), HasSubstr("[NONE]"));
  const auto path = write("tokenizer.json", "{");
  EXPECT_THAT(refusal(path, ErrorCode::kDataLoss), HasSubstr(path.string()));
  EXPECT_THAT(refusal("/nowhere", ErrorCode::kNotFound), HasSubstr("no tokenizer /nowhere"));
  fs::remove(path);
  EXPECT_THAT(refusal(folder_.path(), ErrorCode::kNotFound), HasSubstr("has no tokenizer.json"));
}

}  // namespace
}  // namespace yoke::models
