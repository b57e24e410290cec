// yoke/base/cpu_set.h -- a set of CPUs (or of NUMA nodes) as a value, and its two text forms: lists and masks.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// CPUs are numbered from 0. A CPU is one hardware thread, as in Linux.
class CpuSet {
 public:
  /// Linux can be built for at most 8192 CPUs.
  static constexpr int64_t kMaxCpus = 65'536;

  CpuSet() = default;
  CpuSet(std::initializer_list<int64_t> cpus);

  /// Parses a list in the kernel's form, "0-3,8". An empty text is the empty set. Returns nullopt if the text has a
  /// different form, or a number is kMaxCpus or more.
  static std::optional<CpuSet> parse_list(std::string_view text);
  /// Parses a mask as in Slurm's mask_cpu, with any number of digits: "0xff", "ff00".
  static std::optional<CpuSet> parse_mask(std::string_view text);

  std::string to_list() const;  ///< "0-3,8"
  std::string to_mask() const;  ///< "0x10f"

  /// REQUIRES: 0 <= cpu < kMaxCpus.
  void add(int64_t cpu);
  bool contains(int64_t cpu) const;
  bool empty() const { return words_.empty(); }
  int64_t size() const;
  std::optional<int64_t> first() const;
  std::vector<int64_t> to_vector() const;

  bool intersects(const CpuSet& other) const;
  bool is_subset_of(const CpuSet& other) const;

  CpuSet& operator|=(const CpuSet& other);
  CpuSet& operator&=(const CpuSet& other);
  CpuSet& operator-=(const CpuSet& other);
  friend CpuSet operator|(CpuSet a, const CpuSet& b) { return a |= b; }
  friend CpuSet operator&(CpuSet a, const CpuSet& b) { return a &= b; }
  friend CpuSet operator-(CpuSet a, const CpuSet& b) { return a -= b; }
  bool operator==(const CpuSet&) const = default;

 private:
  void trim();

  std::vector<uint64_t> words_;  ///< The last word is never 0, so equal sets have equal vectors.
};

/// Returns a text such as "0-6,8". REQUIRES: `numbers` is in ascending order.
std::string to_list(const std::vector<int64_t>& numbers);

}  // namespace yoke
