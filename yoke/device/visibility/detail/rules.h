// yoke/device/visibility/detail/rules.h -- how each vendor reads its variable: one pure function each.
//
// An empty optional is an unset variable. `gpus` are those of the variable's vendor, in the order its runtime starts
// from: NVML's (PCI bus id), KFD's. Values are arbitrary bytes; nothing is thrown for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/visibility/visibility.h"

namespace yoke::device {

using Gpus = std::vector<const Device*>;

struct Selection {
  std::vector<Entry> entries;
  std::vector<Unit> units;  ///< In the order in which programs enumerate them; no unit twice.
  std::string effect;       ///< For people: what the variable does as a whole.
  bool is_certain = true;   ///< Of the order, when nothing is listed.
};

struct CudaRules {
  std::optional<std::string> device_order;  ///< CUDA_DEVICE_ORDER
  std::optional<int64_t> driver_branch;     ///< 570 of "570.133.20"; unknown means the older, narrower rules.
};

/// CUDA_VISIBLE_DEVICES as NVIDIA's driver reads it.
/// Source  CUDA C++ programming guide, environment variables; MIG user guide, CUDA device enumeration; PyTorch's
///         torch/cuda/__init__.py and its test TestVisibleDeviceParses, which follow the driver: numbers as strtoul
///         reads them, a duplicate hides all, the beginning of the text decides between numbers, GPU- and MIG-.
Selection select_cuda(const std::optional<std::string>& text, const Gpus& gpus, const CudaRules& rules = {});

/// NVIDIA_VISIBLE_DEVICES as NVIDIA's container toolkit reads it when a container is started. Units are in index order:
/// inside, GPUs are numbered from 0 in that order.
/// Source  container toolkit documentation; libnvidia-container src/cli/common.c: whole UUIDs in any case, PCI bus ids,
///         decimal numbers, "0:1" for MIG instances, empty entries skipped, duplicates dropped, anything else refused.
Selection select_for_container(const std::string& text, const Gpus& gpus);

/// ROCR_VISIBLE_DEVICES as AMD's ROCr reads it; everything above ROCr sees only what it leaves, numbered from 0.
/// Source  ROCR-Runtime, core/runtime/amd_filter_device.cpp.
Selection select_rocr(const std::optional<std::string>& text, const Gpus& gpus);

/// HIP_VISIBLE_DEVICES (or what stands in for it) as AMD's HIP reads it. `gpus` are those that ROCr left, in its order.
/// Source  ROCm/clr, rocclr/device/rocm/rocdevice.cpp, Device::init.
Selection select_hip(const std::optional<std::string>& text, const Gpus& gpus);

/// ZE_AFFINITY_MASK as Intel's Level Zero driver reads it. `tiles`: of each card, in the driver's order; empty when not
/// known, and then entries are read without being checked. The order of units is that of the cards, not of the mask.
/// Source  Level Zero specification, core programming guide, "Affinity Mask"; intel/compute-runtime,
///         execution_environment.cpp: numbers that do not exist are skipped, "X.Y" is skipped unless COMPOSITE.
Selection select_level_zero(const std::optional<std::string>& text, const std::vector<int64_t>& tiles,
                            std::string_view hierarchy);

/// Whether programs see instances of the GPU in its place.
bool is_mig(const Device& gpu);

// ---- what the rules share -------------------------------------------------------------------------------------------

enum class Duplicates { kEndTheList, kHideAll, kAreSkipped };

/// Elements between commas. An empty text has none; after a comma at the end there is one more only if `keep_last`.
std::vector<std::string> split_list(std::string_view text, bool keep_last);

/// Takes a list entry by entry, each as it was judged alone. The first that is not visible ends the list, except a
/// skipped duplicate; what comes after it is kNotRead.
class ListReader {
 public:
  explicit ListReader(Duplicates duplicates) : duplicates_(duplicates) {}

  void add(Entry entry);
  bool has_ended() const { return ended_; }
  void end(std::string why);
  /// Takes back what was visible: entry number `cause` hides every device.
  void cancel(size_t cause);

  Selection selection;

 private:
  Duplicates duplicates_;
  bool ended_ = false;
  std::string why_not_read_ = "after the end of the list";
};

/// An entry that names no device.
Entry refused(const std::string& token, Verdict verdict, std::string why);

/// "entry 3" for people, counted from 1.
std::string entry_number(size_t position);

}  // namespace yoke::device
