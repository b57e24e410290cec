#include "yoke/models/text/bpe.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <queue>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/base/utf8.h"
#include "yoke/models/text/characters.h"
#include "yoke/models/text/detail/added_tokens.h"

namespace yoke::models {
namespace {

constexpr size_t kMaxKnownWords = 65'536;
constexpr size_t kMaxKnownLength = 64;  ///< Of a word in bytes; longer ones hardly repeat.

/// The characters that stand for the 256 bytes. Source: bytes_to_unicode in transformers' tokenization_gpt2.py.
std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> result{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    result[byte] = is_printable ? byte : next++;
  }
  return result;
}

}  // namespace

std::vector<std::string_view> gpt2_words(std::string_view text) {
  struct Character {
    size_t begin;
    char32_t code;
    CharacterClass kind;
  };
  std::vector<Character> all;
  all.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const auto [code, length] = first_character(text.substr(at));
    all.push_back({at, code, class_of(code)});  // a byte that is not UTF-8 has code 0
    at += std::max<size_t>(length, 1);
  }
  const auto count = all.size();
  const auto begin_of = [&](size_t i) { return i < count ? all[i].begin : text.size(); };
  const auto run_end = [&](size_t i) {  // the end of the characters of one class that begin at i
    const auto kind = all[i].kind;
    while (i < count && all[i].kind == kind) ++i;
    return i;
  };
  const auto contraction = [&](size_t i) -> size_t {  // the length of 's 't 're 've 'm 'll 'd, or 0
    if (all[i].code != '\'') return 0;
    const auto rest = text.substr(all[i].begin + 1);
    for (const std::string_view end : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      if (rest.starts_with(end)) return 1 + end.size();
    }
    return 0;
  };

  std::vector<std::string_view> words;
  for (size_t i = 0; i < count;) {
    size_t end;
    if (const auto length = contraction(i)) {
      end = i + length;  // ASCII
    } else if (all[i].kind != CharacterClass::kSpace) {
      end = run_end(i);
    } else if (all[i].code == ' ' && i + 1 < count && all[i + 1].kind != CharacterClass::kSpace) {
      end = run_end(i + 1);  // the space belongs to the word after it
    } else {
      end = run_end(i);
      if (end < count && end - i > 1) --end;  // the last space is left for the word after it
    }
    words.push_back(text.substr(all[i].begin, begin_of(end) - all[i].begin));
    i = end;
  }
  return words;
}

struct BpeTokenizer::Impl {
  struct Merge {
    int32_t rank;
    int32_t token;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const { return std::hash<uint64_t>()(pair * 0x9E3779B97F4A7C15u); }
  };

  BpeOptions options;
  std::array<int64_t, 256> byte_tokens{};
  std::vector<std::optional<std::string>> bytes_of;  ///< By token; the text of added tokens.
  std::unordered_map<uint64_t, Merge, PairHash> merges;
  std::unordered_map<std::string, int64_t> whole;  ///< By bytes; only with ignore_merges.
  detail::AddedTokens added;
  mutable std::mutex mutex;
  mutable std::unordered_map<std::string, std::vector<int64_t>> known;  ///< guarded by `mutex`

  static uint64_t pair(int64_t a, int64_t b) { return static_cast<uint64_t>(a) << 32 | static_cast<uint64_t>(b); }

  std::vector<int64_t> merged(std::string_view word) const;
  void append(std::string_view word, std::vector<int64_t>& tokens) const;
};

/// Merges by a heap of the pairs that can be merged, so that a word of n bytes takes n log n steps.
std::vector<int64_t> BpeTokenizer::Impl::merged(std::string_view word) const {
  struct Symbol {
    int64_t token;
    int32_t previous, next;  ///< -1 at the ends.
    bool is_there = true;
  };
  struct Candidate {
    int32_t rank, left;
    int64_t first, second;  ///< The tokens at that time; if they have changed, the candidate is void.
    int32_t token;
    bool operator<(const Candidate& other) const {  // the heap's top is the lowest rank, then the leftmost
      return std::pair(rank, left) > std::pair(other.rank, other.left);
    }
  };
  const auto length = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols;
  for (int32_t i = 0; i < length; ++i) {
    symbols.push_back(
        {byte_tokens[static_cast<unsigned char>(word[static_cast<size_t>(i)])], i - 1, i + 1 < length ? i + 1 : -1});
  }
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbol(left).next < 0) return;
    const auto first = symbol(left).token, second = symbol(symbol(left).next).token;
    const auto found = merges.find(pair(first, second));
    if (found != merges.end()) candidates.push({found->second.rank, left, first, second, found->second.token});
  };
  for (int32_t i = 0; i < length; ++i) consider(i);
  while (!candidates.empty()) {
    const auto best = candidates.top();
    candidates.pop();
    auto& left = symbol(best.left);
    if (!left.is_there || left.next < 0 || left.token != best.first || symbol(left.next).token != best.second) continue;
    auto& right = symbol(left.next);
    right.is_there = false;
    left.token = best.token;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  std::vector<int64_t> tokens;
  for (int32_t i = length > 0 ? 0 : -1; i >= 0; i = symbol(i).next) tokens.push_back(symbol(i).token);
  return tokens;
}

void BpeTokenizer::Impl::append(std::string_view word, std::vector<int64_t>& tokens) const {
  const std::string key(word);
  if (options.ignore_merges) {
    if (const auto found = whole.find(key); found != whole.end()) {
      tokens.push_back(found->second);
      return;
    }
  }
  if (word.size() <= kMaxKnownLength) {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) {
      tokens.insert(tokens.end(), found->second.begin(), found->second.end());
      return;
    }
  }
  auto parts = merged(word);
  tokens.insert(tokens.end(), parts.begin(), parts.end());
  if (word.size() > kMaxKnownLength) return;
  const std::lock_guard lock(mutex);
  if (known.size() < kMaxKnownWords) known.emplace(key, std::move(parts));
}

BpeTokenizer::BpeTokenizer(BpeOptions options) : impl_(std::make_unique<Impl>()) {
  auto& [vocabulary, merges, added, add_prefix_space, ignore_merges] = options;
  std::unordered_map<char32_t, char> byte_of;
  const auto characters = byte_characters();
  for (size_t byte = 0; byte < 256; ++byte) byte_of[characters[byte]] = static_cast<char>(byte);

  const auto put = [&](const std::string& name, int64_t token, std::string bytes) {
    if (token < 0 || token > INT32_MAX)
      throw Error(ErrorCode::kDataLoss, "the token '{}' has the number {}", name, token);
    if (static_cast<size_t>(token) >= impl_->bytes_of.size()) impl_->bytes_of.resize(static_cast<size_t>(token) + 1);
    auto& place = impl_->bytes_of[static_cast<size_t>(token)];
    if (place && *place != bytes)
      throw Error(ErrorCode::kDataLoss, "two tokens have the number {}: one is '{}'", token, name);
    place = std::move(bytes);
  };
  for (const auto& [name, token] : added) put(name, token, name);
  for (const auto& [name, token] : vocabulary) {
    if (added.contains(name)) continue;
    std::string bytes;
    for (std::string_view rest = name; !rest.empty();) {
      const auto [code, length] = first_character(rest);
      const auto found = byte_of.find(code);
      if (length == 0 || found == byte_of.end()) {
        throw Error(ErrorCode::kDataLoss,
                    "the token '{}' has a character that stands for no byte; this tokenizer needs a "
                    "byte-level vocabulary",
                    name);
      }
      bytes += found->second;
      rest.remove_prefix(length);
    }
    if (ignore_merges) impl_->whole[bytes] = token;
    put(name, token, std::move(bytes));
  }
  const auto token_of = [&](const std::string& name, const char* what) {
    const auto found = vocabulary.find(name);
    if (found == vocabulary.end()) throw Error(ErrorCode::kDataLoss, "{} '{}' is not in the vocabulary", what, name);
    return found->second;
  };
  for (size_t byte = 0; byte < 256; ++byte) {
    impl_->byte_tokens[byte] = token_of(to_utf8(characters[byte]), "the character of a byte,");
  }
  int32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const auto both = token_of(left + right, "the result of a merge,");
    impl_->merges.insert_or_assign(
        Impl::pair(token_of(left, "the left part of a merge,"), token_of(right, "the right part of a merge,")),
        Impl::Merge{rank++, static_cast<int32_t>(both)});
  }
  impl_->added = detail::AddedTokens(added);
  impl_->options = std::move(options);
}

BpeTokenizer::~BpeTokenizer() = default;

std::vector<int64_t> BpeTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> tokens;
  impl_->added.divide(
      text, [&](int64_t token) { tokens.push_back(token); },
      [&](std::string_view part) {
        std::string spaced;
        if (impl_->options.add_prefix_space && class_of(first_character(part).code) != CharacterClass::kSpace) {
          part = spaced = ' ' + std::string(part);
        }
        for (const auto word : gpt2_words(part)) impl_->append(word, tokens);
      });
  return tokens;
}

std::string BpeTokenizer::decode(std::span<const int64_t> tokens) const {
  std::string bytes;
  for (const int64_t token : tokens) {
    if (token < 0 || token >= size()) {
      throw Error(ErrorCode::kInvalidArgument, "{} is not a token; they are 0 to {}", token, size() - 1);
    }
    bytes += impl_->bytes_of[static_cast<size_t>(token)].value_or("");
  }
  return bytes;
}

int64_t BpeTokenizer::size() const { return static_cast<int64_t>(impl_->bytes_of.size()); }

std::optional<int64_t> BpeTokenizer::token(std::string_view text) const {
  const std::string name(text);
  for (const auto* table : {&impl_->options.added, &impl_->options.vocabulary}) {
    if (const auto found = table->find(name); found != table->end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace yoke::models
