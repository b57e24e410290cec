#include "yoke/slurm/words/cpu_bind.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "yoke/base/text.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm::check {
namespace {

bool is_hexadecimal(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

/// Whether the text after a comma goes on with a list: it begins with a digit, or is hexadecimal up to the next comma.
bool continues_list(std::string_view text) {
  if (!text.empty() && is_digit(text[0])) return true;
  const auto end = std::ranges::find_if_not(text, is_hexadecimal);
  return end == text.end() || *end == ',';
}

std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ';' || (text[i] == ',' && !continues_list(text.substr(i + 1)))) {
      tokens.emplace_back();
    } else {
      tokens.back() += text[i];
    }
  }
  return tokens;
}

/// "map_cpu" for "MAPCPU:0,1"; empty if the word takes no list.
std::string list_kind(const std::string& word) {
  for (const auto* kind : {"map_cpu", "mask_cpu", "map_ldom", "mask_ldom"}) {
    std::string joined = kind;
    std::erase(joined, '_');
    if (word.starts_with(kind) || word.starts_with(joined)) return kind;
  }
  return "";
}

std::string plain_kind(const std::string& word) {
  if (word == "no" || word == "none") return "none";
  if (word == "rank" || word == "rank_ldom") return word;
  for (const std::string kind : {"socket", "core", "thread", "ldom"}) {
    if (word == kind || word == kind + "s") return kind + "s";
  }
  return "";
}

}  // namespace

CpuBind parse_cpu_bind(std::string_view text) {
  CpuBind result;
  bool has_mode = false;  // none, ranks and lists win over sockets, cores, threads and ldoms
  for (const auto& token : tokens_of(text)) {
    const auto word = lower_case(token);
    if (word == "verbose" || word == "v" || word == "quiet" || word == "q" || word == "one_thread") continue;
    if (word == "help") return result;
    const auto list = list_kind(word), kind = list.empty() ? plain_kind(word) : list;
    if (kind.empty()) {
      result.unknown_word = token.empty() ? std::string(text) : token;
      return result;
    }
    result.kinds.push_back(kind);
    const bool is_mode = !list.empty() || kind == "none" || kind.starts_with("rank");
    if (is_mode || !has_mode) {
      result.effective = kind;
      result.entries.clear();
    }
    has_mode |= is_mode;
    if (list.empty()) continue;
    const auto begin = token.find_first_of(":=");
    const auto end = begin == token.npos ? token.npos : token.find_first_of(":=", begin + 1);
    const auto values =
        begin == token.npos ? std::string() : token.substr(begin + 1, end == token.npos ? end : end - begin - 1);
    const bool is_mask = kind.starts_with("mask");
    for (const auto part : split(values, ',')) {
      if (part.empty()) continue;
      auto entry = part;
      if (is_mask && entry.starts_with("0x")) entry.remove_prefix(2);
      const auto star = entry.find('*');
      const auto count = star == entry.npos ? std::optional<int64_t>(1) : parse_count(entry.substr(star + 1));
      entry = entry.substr(0, star);
      if (!count || !std::ranges::all_of(entry, is_mask ? is_hexadecimal : is_digit)) {
        result.bad_entry = part;
        result.is_mask_entry = is_mask;
        return result;
      }
      result.entries.push_back({std::string(entry), *count});
    }
    if (result.entries.empty()) {
      result.empty_list = kind;
      return result;
    }
  }
  return result;
}

}  // namespace yoke::slurm::check
