// yoke/base/fields.h -- values encoded as bytes, for messages between two processes of one machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/cpu_set.h"

namespace yoke {

/// Appends values. The length of a text or list precedes it. A FieldReader must read the values in the same order.
class FieldWriter {
 public:
  FieldWriter& add(int64_t number);
  FieldWriter& add(std::string_view text);
  FieldWriter& add(const CpuSet& set);
  FieldWriter& add(const std::vector<std::string>& texts);
  FieldWriter& add(const std::vector<int>& numbers);

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Errors  kInternal, from all functions except at_end(), if the remaining bytes do not begin with a value of the type.
class FieldReader {
 public:
  /// `bytes` must outlive the reader.
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  int64_t number();
  int small_number();  ///< A number from 0 to INT_MAX: a descriptor, a count, a pid.
  std::string text();
  CpuSet set();
  std::vector<std::string> texts();
  std::vector<int> small_numbers();

  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view take(uint64_t size);

  std::string_view rest_;
};

}  // namespace yoke
