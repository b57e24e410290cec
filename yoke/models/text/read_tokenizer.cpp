// Reads the files of Hugging Face's tokenizers. What a file asks for and these tokenizers do not do is refused, because
// other tokens than those of the training make a model quietly worse.
#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/models/text/bpe.h"
#include "yoke/models/text/tokenizer.h"
#include "yoke/models/text/word_piece.h"

namespace yoke::models {
namespace {

namespace fs = std::filesystem;
using Vocabulary = std::map<std::string, int64_t>;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kFailedPrecondition,
              "{}, which is not supported; GPT-2's byte-level BPE and BERT's WordPiece are", what);
}

/// A part of the file for a message, whole if it is short.
std::string dump(const SortedJson& json) { return fit(printable(json_line(json)), 100); }

const SortedJson& member(const SortedJson& json, const char* name) {
  static const SortedJson null;
  const auto found = json.is_object() ? json.find(name) : json.end();
  return json.is_object() && found != json.end() ? *found : null;
}

bool flag(const SortedJson& json, const char* name, bool absent) {
  const auto& value = member(json, name);
  return value.is_boolean() ? value.get<bool>() : absent;
}

std::string type_of(const SortedJson& json) { return text_member(json, "type"); }

/// Refuses a part of the file, such as "the normaliser", for its type.
[[noreturn]] void refuse_type(const char* part, const SortedJson& json) {
  const auto type = type_of(json);
  if (type.empty()) refuse(fmt::format("{} is {}", part, dump(json)));
  refuse(fmt::format("{} has the type '{}'", part, type));
}

Vocabulary vocabulary_of(const SortedJson& json) {
  if (!json.is_object()) throw Error(ErrorCode::kDataLoss, "the vocabulary is not an object");
  Vocabulary result;
  for (const auto& [name, token] : json.items()) {
    if (!token.is_number_integer()) throw Error(ErrorCode::kDataLoss, "the token '{}' has no number", name);
    result[name] = token.get<int64_t>();
  }
  return result;
}

Vocabulary added_of(const SortedJson& file) {
  Vocabulary result;
  for (const auto& token : member(file, "added_tokens")) {
    const auto name = text_member(token, "content");
    for (const auto* option : {"lstrip", "rstrip", "single_word"}) {
      if (flag(token, option, false)) refuse(fmt::format("the added token '{}' has the option {}", name, option));
    }
    if (flag(token, "normalized", false) && lower_case(name) != name) {
      refuse(fmt::format("the added token '{}' is looked for after normalisation", name));
    }
    const auto& id = member(token, "id");
    if (!id.is_number_integer()) throw Error(ErrorCode::kDataLoss, "the added token '{}' has no number", name);
    result[name] = id.get<int64_t>();
  }
  return result;
}

std::pair<std::string, std::string> merge_of(std::string_view line) {
  const auto space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) {
    throw Error(ErrorCode::kDataLoss, "'{}' is no merge of two parts", line);
  }
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

void require_absent(const SortedJson& model, std::initializer_list<const char*> names) {
  for (const auto* name : names) {
    const auto& value = member(model, name);
    if (!value.is_null() && value != false && value != "" && value != 0) {
      refuse(fmt::format("the model has {} {}", name, dump(value)));
    }
  }
}

std::unique_ptr<Tokenizer> bpe_of(const SortedJson& file) {
  const auto& model = member(file, "model");
  require_absent(model, {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"});
  if (const auto& normalizer = member(file, "normalizer"); !normalizer.is_null()) {
    refuse_type("the normaliser", normalizer);
  }
  const auto& words = member(file, "pre_tokenizer");
  if (type_of(words) != "ByteLevel") refuse_type("the pre-tokenizer", words);
  if (!flag(words, "use_regex", true)) refuse("use_regex of the pre-tokenizer is false");
  const auto& after = member(file, "post_processor");
  if (!after.is_null() && type_of(after) != "ByteLevel") refuse_type("the post-processor", after);
  BpeOptions options{.vocabulary = vocabulary_of(member(model, "vocab")),
                     .added = added_of(file),
                     .add_prefix_space = flag(words, "add_prefix_space", true),
                     .ignore_merges = flag(model, "ignore_merges", false)};
  for (const auto& merge : member(model, "merges")) {
    if (merge.is_string()) {
      options.merges.push_back(merge_of(merge.get_ref<const std::string&>()));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      options.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      throw Error(ErrorCode::kDataLoss, "{} is no merge of two parts", dump(merge));
    }
  }
  return std::make_unique<BpeTokenizer>(std::move(options));
}

/// BERT's two forms of "[CLS] text [SEP]".
void read_template(const SortedJson& after, WordPieceOptions& options) {
  options.first = options.last = "";
  if (after.is_null()) return;
  if (type_of(after) == "BertProcessing") {
    options.first = member(after, "cls").at(0).get<std::string>();
    options.last = member(after, "sep").at(0).get<std::string>();
    return;
  }
  if (type_of(after) != "TemplateProcessing") refuse_type("the post-processor", after);
  bool is_text_seen = false;
  for (const auto& part : member(after, "single")) {
    const auto name = text_member(member(part, "SpecialToken"), "id");
    auto& place = is_text_seen ? options.last : options.first;
    if (part.contains("Sequence")) {
      is_text_seen = true;
    } else if (name.empty() || !place.empty()) {
      refuse("the template " + dump(member(after, "single")));
    } else {
      place = name;
    }
  }
}

/// Accents are dropped with upper case alone; `lower_case` is the member `name`.
void require_accents(const SortedJson& json, const char* name, bool lower_case) {
  if (flag(json, "strip_accents", lower_case) != lower_case) {
    refuse(fmt::format("strip_accents is {} where {} is {}", !lower_case, name, lower_case));
  }
}

std::unique_ptr<Tokenizer> word_piece_of(const SortedJson& file) {
  const auto& model = member(file, "model");
  const auto& normalizer = member(file, "normalizer");
  if (type_of(normalizer) != "BertNormalizer") refuse_type("the normaliser", normalizer);
  if (!flag(normalizer, "clean_text", true)) refuse("clean_text of the normaliser is false");
  WordPieceOptions options{.vocabulary = vocabulary_of(member(model, "vocab")),
                           .added = added_of(file),
                           .lower_case = flag(normalizer, "lowercase", true),
                           .divide_ideographs = flag(normalizer, "handle_chinese_chars", true)};
  require_accents(normalizer, "lowercase", options.lower_case);
  if (type_of(member(file, "pre_tokenizer")) != "BertPreTokenizer") {
    refuse_type("the pre-tokenizer", member(file, "pre_tokenizer"));
  }
  if (const auto& value = member(model, "continuing_subword_prefix"); value.is_string())
    options.continuing = value.get<std::string>();
  if (const auto& value = member(model, "unk_token"); value.is_string()) options.unknown = value.get<std::string>();
  if (const auto& value = member(model, "max_input_chars_per_word"); value.is_number_integer()) {
    options.max_characters = value.get<int64_t>();
  }
  read_template(member(file, "post_processor"), options);
  return std::make_unique<WordPieceTokenizer>(std::move(options));
}

SortedJson parse(const fs::path& path) { return SortedJson::parse(read_file(path)); }

std::unique_ptr<Tokenizer> read_json(const fs::path& path) {
  const auto file = parse(path);
  const auto type = type_of(member(file, "model"));
  if (type == "BPE") return bpe_of(file);
  if (type == "WordPiece") return word_piece_of(file);
  refuse(fmt::format("the model is '{}'", type));
}

/// Runs `read`, and names the file in what it throws.
template <class Read>
auto naming(const fs::path& path, const Read& read) {
  try {
    return read(path);
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(path.string()) != std::string_view::npos) throw;
    throw Error(error.code(), "{}: {}", path.string(), error.what());
  } catch (const SortedJson::exception& error) {
    throw Error(ErrorCode::kDataLoss, "{}: {}", path.string(), error.what());
  }
}

/// What a tokenizer_config.json says about the vocab.txt beside it.
void read_flags(const SortedJson& config, WordPieceOptions& options) {
  options.lower_case = flag(config, "do_lower_case", true);
  options.divide_ideographs = flag(config, "tokenize_chinese_chars", true);
  require_accents(config, "do_lower_case", options.lower_case);
  if (!flag(config, "do_basic_tokenize", true)) refuse("do_basic_tokenize is false");
}

std::unique_ptr<Tokenizer> read_vocab_txt(const fs::path& path) {
  WordPieceOptions options;
  const auto text = read_file(path);
  int64_t token = 0;
  for (const auto line : lines_of(text)) options.vocabulary[std::string(trimmed(line, "\r"))] = token++;
  for (const auto* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (const auto found = options.vocabulary.find(name); found != options.vocabulary.end())
      options.added.insert(*found);
  }
  const auto beside = path.parent_path() / "tokenizer_config.json";
  if (fs::exists(beside)) naming(beside, [&](const fs::path& name) { read_flags(parse(name), options); });
  return std::make_unique<WordPieceTokenizer>(std::move(options));
}

std::unique_ptr<Tokenizer> read_vocab_and_merges(const fs::path& folder) {
  BpeOptions options{.vocabulary = vocabulary_of(parse(folder / "vocab.json"))};
  const auto merges = read_file(folder / "merges.txt");
  for (const auto line : lines_of(merges)) {
    if (!line.empty() && !line.starts_with("#version")) options.merges.push_back(merge_of(trimmed(line, "\r")));
  }
  const auto end = options.vocabulary.find("<|endoftext|>");
  if (end != options.vocabulary.end()) options.added.insert(*end);
  return std::make_unique<BpeTokenizer>(std::move(options));
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer(const fs::path& path) {
  if (path == "bytes") return std::make_unique<ByteTokenizer>();
  if (!fs::exists(path)) {
    throw Error(ErrorCode::kNotFound,
                "there is no tokenizer {}; name a tokenizer.json, a folder with one, or \"bytes\"", path.string());
  }
  if (!fs::is_directory(path)) return naming(path, path.extension() == ".txt" ? read_vocab_txt : read_json);
  if (fs::exists(path / "tokenizer.json")) return naming(path / "tokenizer.json", read_json);
  if (fs::exists(path / "merges.txt")) return naming(path, read_vocab_and_merges);
  if (fs::exists(path / "vocab.txt")) return naming(path / "vocab.txt", read_vocab_txt);
  throw Error(ErrorCode::kNotFound, "{} has no tokenizer.json, no vocab.json with merges.txt and no vocab.txt",
              path.string());
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  for (const auto* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "vocab.txt", "vocab.json", "merges.txt", "sentence_bert_config.json"}) {
    if (fs::exists(from / name)) replace_file(to / name, read_file(from / name));
  }
}

}  // namespace yoke::models
