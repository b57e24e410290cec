// The files in which sentence-transformers says how the vectors of tokens become one. What they ask for and
// sentence_embeddings() does not do is refused, because the vectors would be quietly worse.
#include <fmt/ranges.h>

#include <iterator>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/models/pretrained.h"
#include "yoke/models/text/word_piece.h"

namespace yoke::models {
namespace {

namespace fs = std::filesystem;

SortedJson json_in(const fs::path& path) {
  auto json = SortedJson::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw Error(ErrorCode::kDataLoss, "{} is no JSON", path.string());
  return json;
}

/// An object's member that is true or false.
bool is_set(const SortedJson& json, const std::string& name, bool absent) {
  const auto found = json.find(name);
  return found != json.end() && found->is_boolean() ? found->get<bool>() : absent;
}

/// Whether a Pooling takes the first token. Other kinds than that and the mean, and several at once, are refused.
bool takes_first_token(const fs::path& path) {
  const auto json = json_in(path);
  if (!json.is_object()) throw Error(ErrorCode::kDataLoss, "{} is no JSON object", path.string());
  constexpr std::string_view kStem = "pooling_mode_";
  std::vector<std::string> modes;
  if (const auto named = json.find("pooling_mode"); named != json.end() && !named->is_null()) {
    modes.push_back(named->is_string() ? named->get<std::string>() : json_line(*named));
  } else {
    for (const auto& [name, value] : json.items()) {
      if (name.starts_with(kStem) && name != "pooling_mode_mean_tokens" && value == true) modes.push_back(name);
    }
    if (is_set(json, "pooling_mode_mean_tokens", true)) modes.emplace_back("pooling_mode_mean_tokens");
  }
  if (modes.size() == 1) {
    if (modes[0] == "pooling_mode_mean_tokens" || modes[0] == "mean") return false;
    if (modes[0] == "pooling_mode_cls_token" || modes[0] == "cls") return true;
  }
  throw Error(ErrorCode::kFailedPrecondition,
              "{}: the pooling is {}, which is not supported; pooling_mode_mean_tokens (true unless the file says "
              "false) or pooling_mode_cls_token alone is",
              path.string(), modes.empty() ? "of no kind" : fmt::format("{}", fmt::join(modes, " and ")));
}

/// sentence-transformers makes small letters of a text before the tokenizer gets it.
void check_lower_case(const fs::path& folder) {
  const auto path = folder / "sentence_bert_config.json";
  if (!fs::exists(path)) return;
  const auto json = json_in(path);
  if (!json.is_object() || !is_set(json, "do_lower_case", false)) return;
  const auto tokenizer = read_tokenizer(folder);
  const auto* pieces = dynamic_cast<const WordPieceTokenizer*>(tokenizer.get());
  if (pieces != nullptr && pieces->lower_case()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{}: do_lower_case is true, but the tokenizer keeps upper case, which is not supported; write the texts "
              "in lower case and set it to false",
              path.string());
}

/// sentence-transformers puts the default prompt before each text.
void check_prompt(const fs::path& folder) {
  const auto path = folder / "config_sentence_transformers.json";
  if (!fs::exists(path)) return;
  const auto json = json_in(path);
  const auto prompt = json.contains("prompts")
                          ? text_member(json["prompts"], text_member(json, "default_prompt_name").c_str())
                          : std::string();
  if (prompt.empty()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{}: default_prompt_name asks for '{}' before each text, which is not supported; write it there, and set "
              "default_prompt_name to null",
              path.string(), prompt);
}

}  // namespace

SentenceOptions read_sentence_options(const fs::path& folder) {
  check_lower_case(folder);
  const auto path = folder / "modules.json";
  if (!fs::exists(path)) return {};
  check_prompt(folder);
  const auto modules = json_in(path);
  constexpr std::string_view kKinds[] = {"Transformer", "Pooling", "Normalize"};  // in this order
  SentenceOptions options{.normalize = modules.size() == 3};
  for (size_t i = 0; i < modules.size(); ++i) {
    if (!modules.is_array() || !modules[i].is_object()) {
      throw Error(ErrorCode::kDataLoss, "{} is no list of modules", path.string());
    }
    const auto type = text_member(modules[i], "type"), place = text_member(modules[i], "path");
    const auto kind = type.substr(type.rfind('.') + 1);
    if (i >= std::size(kKinds) || kind != kKinds[i] || (i == 0 && !place.empty())) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "{}: the module {} is '{}' in '{}', which is not supported; a Transformer in the folder itself, a "
                  "Pooling and perhaps a Normalize are",
                  path.string(), i, type, place);
    }
    if (i == 1) options.first_token = takes_first_token(folder / place / "config.json");
  }
  if (modules.size() < 2) throw Error(ErrorCode::kFailedPrecondition, "{} lists no Pooling", path.string());
  return options;
}

}  // namespace yoke::models
