#include "yoke/base/fields.h"

#include <climits>
#include <cstring>

#include "yoke/base/error.h"

namespace yoke {
namespace {

[[noreturn]] void refuse() { throw Error(ErrorCode::kInternal, "a message of another process of yoke is damaged"); }

}  // namespace

FieldWriter& FieldWriter::add(int64_t number) {
  bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
  return *this;
}

FieldWriter& FieldWriter::add(std::string_view text) {
  add(static_cast<int64_t>(text.size()));
  bytes_ += text;
  return *this;
}

FieldWriter& FieldWriter::add(const CpuSet& set) { return add(set.to_list()); }

FieldWriter& FieldWriter::add(const std::vector<std::string>& texts) {
  add(static_cast<int64_t>(texts.size()));
  for (const auto& text : texts) add(text);
  return *this;
}

FieldWriter& FieldWriter::add(const std::vector<int>& numbers) {
  add(static_cast<int64_t>(numbers.size()));
  for (const int number : numbers) add(static_cast<int64_t>(number));
  return *this;
}

std::string_view FieldReader::take(uint64_t size) {
  if (size > rest_.size()) refuse();
  const auto field = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return field;
}

int64_t FieldReader::number() {
  int64_t number = 0;
  std::memcpy(&number, take(sizeof number).data(), sizeof number);
  return number;
}

int FieldReader::small_number() {
  const auto value = number();
  if (value < 0 || value > INT_MAX) refuse();
  return static_cast<int>(value);
}

std::string FieldReader::text() { return std::string(take(static_cast<uint64_t>(number()))); }

CpuSet FieldReader::set() {
  const auto set = CpuSet::parse_list(text());
  if (!set) refuse();
  return *set;
}

std::vector<std::string> FieldReader::texts() {
  std::vector<std::string> texts;
  for (auto left = small_number(); left > 0; --left) texts.push_back(text());
  return texts;
}

std::vector<int> FieldReader::small_numbers() {
  std::vector<int> numbers;
  for (auto left = small_number(); left > 0; --left) numbers.push_back(small_number());
  return numbers;
}

}  // namespace yoke
