#include "yoke/base/cpu_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "yoke/base/environment.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

constexpr int64_t kWordBits = 64;

size_t word_of(int64_t cpu) { return static_cast<size_t>(cpu / kWordBits); }
uint64_t bit_of(int64_t cpu) { return uint64_t{1} << (cpu % kWordBits); }

std::optional<int64_t> parse_cpu(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;  // a sign is refused too
  const auto cpu = parse_int(text);
  return cpu && *cpu < CpuSet::kMaxCpus ? cpu : std::nullopt;
}

std::optional<uint64_t> parse_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return std::nullopt;
}

}  // namespace

CpuSet::CpuSet(std::initializer_list<int64_t> cpus) {
  for (const auto cpu : cpus) add(cpu);
}

std::optional<CpuSet> CpuSet::parse_list(std::string_view text) {
  CpuSet result;
  for (const auto item : split(text, ',')) {
    const auto dash = item.find('-');
    const auto first = parse_cpu(item.substr(0, dash));
    const auto last = dash == item.npos ? first : parse_cpu(item.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (auto cpu = *first; cpu <= *last; ++cpu) result.add(cpu);
  }
  return result;
}

std::optional<CpuSet> CpuSet::parse_mask(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  if (text.empty()) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  constexpr int64_t kDigitBits = 4;
  if (text.size() > kMaxCpus / kDigitBits) return std::nullopt;
  CpuSet result;
  int64_t cpu = 0;
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, cpu += kDigitBits) {
    const auto value = parse_digit(*digit);
    if (!value) return std::nullopt;
    for (int64_t bit = 0; bit < kDigitBits; ++bit) {
      if ((*value >> bit & 1) != 0) result.add(cpu + bit);
    }
  }
  return result;
}

std::string to_list(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string CpuSet::to_list() const { return yoke::to_list(to_vector()); }

std::string CpuSet::to_mask() const {
  if (empty()) return "0x0";
  auto text = fmt::format("{:#x}", words_.back());
  for (size_t i = words_.size() - 1; i-- > 0;) text += fmt::format("{:016x}", words_[i]);
  return text;
}

void CpuSet::add(int64_t cpu) {
  if (word_of(cpu) >= words_.size()) words_.resize(word_of(cpu) + 1);
  words_[word_of(cpu)] |= bit_of(cpu);
}

bool CpuSet::contains(int64_t cpu) const {
  return cpu >= 0 && word_of(cpu) < words_.size() && (words_[word_of(cpu)] & bit_of(cpu)) != 0;
}

int64_t CpuSet::size() const {
  int64_t count = 0;
  for (const auto word : words_) count += std::popcount(word);
  return count;
}

std::optional<int64_t> CpuSet::first() const {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (words_[i] != 0) return static_cast<int64_t>(i) * kWordBits + std::countr_zero(words_[i]);
  }
  return std::nullopt;
}

std::vector<int64_t> CpuSet::to_vector() const {
  std::vector<int64_t> cpus;
  for (size_t i = 0; i < words_.size(); ++i) {
    for (auto word = words_[i]; word != 0; word &= word - 1) {
      cpus.push_back(static_cast<int64_t>(i) * kWordBits + std::countr_zero(word));
    }
  }
  return cpus;
}

bool CpuSet::intersects(const CpuSet& other) const {
  for (size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) {
    if ((words_[i] & other.words_[i]) != 0) return true;
  }
  return false;
}

bool CpuSet::is_subset_of(const CpuSet& other) const { return (*this - other).empty(); }

CpuSet& CpuSet::operator|=(const CpuSet& other) {
  words_.resize(std::max(words_.size(), other.words_.size()));
  for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  return *this;
}

CpuSet& CpuSet::operator&=(const CpuSet& other) {
  words_.resize(std::min(words_.size(), other.words_.size()));
  for (size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  trim();
  return *this;
}

CpuSet& CpuSet::operator-=(const CpuSet& other) {
  for (size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) words_[i] &= ~other.words_[i];
  trim();
  return *this;
}

void CpuSet::trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

}  // namespace yoke
