// yoke/slurm/words/cpu_bind.h -- the value of srun's --cpu-bind, as srun reads it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::slurm::check {

/// Source  src/common/slurm_resource_info.c, slurm_verify_cpu_bind and _expand_mult; tried with srun 22.05.8.
struct CpuBind {
  /// What srun refuses: an unknown word, or a list without an entry. Empty: nothing.
  std::string unknown_word, empty_list;
  /// An entry of a list that is not a number; srun refuses it too.
  std::string bad_entry;
  bool is_mask_entry = false;  ///< The bad entry is one of masks.

  /// The kinds of binding in their order, such as "cores" and "map_cpu"; without verbose, quiet and one_thread.
  std::vector<std::string> kinds;
  std::string effective;  ///< The one that counts; empty if there is none.

  struct Entry {
    std::string text;  ///< Without "0x" and "*COUNT".
    int64_t count = 1;
  };
  std::vector<Entry> entries;  ///< Of the list of `effective`, if it has one.

  bool is_refused() const { return !unknown_word.empty() || !empty_list.empty() || !bad_entry.empty(); }
};

CpuBind parse_cpu_bind(std::string_view text);

}  // namespace yoke::slurm::check
