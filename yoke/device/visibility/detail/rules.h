// yoke/device/visibility/detail/rules.h -- one pure function per variable, which reads the variable as its vendor does.
//
// nullopt means that the variable is not set. `gpus` are the GPUs of the variable's vendor, in the order of NVML (by
// PCI bus id) or of AMD's KFD. Values are arbitrary bytes and never cause an exception.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/visibility/visibility.h"

namespace yoke::device {

using Gpus = std::vector<const Device*>;

/// From this driver branch on, a program sees one compute instance of each GPU instance, and also whole GPUs. With
/// earlier drivers, it sees one MIG device and nothing else.
/// Source: MIG user guide, CUDA device enumeration.
inline constexpr int64_t kFirstBranchWithSeveralMigDevices = 570;

struct Selection {
  std::vector<Entry> entries;
  std::vector<Unit> units;  ///< In the order in which programs enumerate them, without duplicates.
  std::string effect;       ///< What the variable does as a whole, in words.
  bool is_certain = true;   ///< Whether the order of devices that no entry names is known.
};

struct CudaRules {
  std::optional<std::string> device_order;  ///< CUDA_DEVICE_ORDER
  std::optional<int64_t> driver_branch;     ///< 570 of "570.133.20"; nullopt selects the older, stricter rules.
};

/// Interprets CUDA_VISIBLE_DEVICES as NVIDIA's driver does.
/// Source  CUDA C++ programming guide, environment variables; MIG user guide, CUDA device enumeration; PyTorch's
///         torch/cuda/__init__.py and its test TestVisibleDeviceParses, which follow the driver: numbers are read like
///         strtoul, a duplicate hides all devices, and the beginning of the text decides whether it is a list of
///         numbers, of GPU- or of MIG- UUIDs.
Selection select_cuda(const std::optional<std::string>& text, const Gpus& gpus, const CudaRules& rules = {});

/// Interprets NVIDIA_VISIBLE_DEVICES as NVIDIA's container toolkit does when a container starts. Units are sorted by
/// index; inside the container, GPUs are numbered from 0 in this order.
/// Source  container toolkit documentation; libnvidia-container src/cli/common.c: whole UUIDs in any case, PCI bus ids,
///         decimal numbers, "0:1" for MIG instances, empty entries skipped, duplicates dropped, anything else refused.
Selection select_for_container(const std::string& text, const Gpus& gpus);

/// Interprets ROCR_VISIBLE_DEVICES as AMD's ROCr does. Software above ROCr sees only the remaining GPUs, from 0 on.
/// Source  ROCR-Runtime, core/runtime/amd_filter_device.cpp.
Selection select_rocr(const std::optional<std::string>& text, const Gpus& gpus);

/// Interprets HIP_VISIBLE_DEVICES (or the variable used in its place) as AMD's HIP does. `gpus` are the GPUs that ROCr
/// shows, in ROCr's order.
/// Source  ROCm/clr, rocclr/device/rocm/rocdevice.cpp, Device::init.
Selection select_hip(const std::optional<std::string>& text, const Gpus& gpus);

/// Interprets ZE_AFFINITY_MASK as Intel's Level Zero driver does. `tiles` is the number of tiles of each card, in the
/// driver's order; if it is empty, entries are parsed but not checked. Units are in the order of the cards, not of the
/// mask.
/// Source  Level Zero specification, core programming guide, "Affinity Mask"; intel/compute-runtime,
///         execution_environment.cpp: numbers that do not exist are skipped, "X.Y" is skipped unless COMPOSITE.
Selection select_level_zero(const std::optional<std::string>& text, const std::vector<int64_t>& tiles,
                            std::string_view hierarchy);

/// Whether programs see MIG instances instead of the GPU itself.
bool is_mig(const Device& gpu);

// ---- shared by the rules --------------------------------------------------------------------------------------------

enum class Duplicates { kEndTheList, kHideAll, kAreSkipped };

/// White space, as C's isspace() knows it.
constexpr std::string_view kSpace = " \t\n\v\f\r";

/// Splits `text` at commas. An empty text has no elements. If the text ends with a comma, an empty last element is
/// added only if `keep_last`.
std::vector<std::string> split_list(std::string_view text, bool keep_last);

/// Adds the entries of a list one by one, each with its own verdict. The list ends at the first entry that is not
/// visible, except for a skipped duplicate; later entries get kNotRead.
class ListReader {
 public:
  explicit ListReader(Duplicates duplicates) : duplicates_(duplicates) {}

  void add(Entry entry);
  bool has_ended() const { return ended_; }
  void end(std::string why);
  /// Cancels all visible entries, because entry number `cause` hides every device.
  void cancel(size_t cause);

  Selection selection;

 private:
  Duplicates duplicates_;
  bool ended_ = false;
  std::string why_not_read_ = "after the end of the list";
};

/// Returns an entry that does not name a device.
Entry refused(const std::string& token, Verdict verdict, std::string why);

/// Returns text such as "entry 3". Entries count from 1.
std::string entry_number(size_t position);

}  // namespace yoke::device
