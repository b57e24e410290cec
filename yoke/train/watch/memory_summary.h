// yoke/train/watch/memory_summary.h -- where the memory of this process is: on the host, on devices, and in tensors.
//
//     train::MemoryTensors tensors;
//     tensors.add_model(model).add("optimizer", optimizer.state_dict());
//     std::cout << train::memory_summary(tensors).to_text();
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

/// What Linux reports about this process and its limits. A value that Linux does not report is nullopt.
struct ProcessMemory {
  std::optional<int64_t> resident_bytes;       ///< Physical memory: the sum of the next three.
  std::optional<int64_t> anonymous_bytes;      ///< Heap and stacks, and CPU tensors that do not map a file.
  std::optional<int64_t> file_bytes;           ///< Pages of mapped files: programs, libraries, data, checkpoints.
  std::optional<int64_t> shared_bytes;         ///< Memory shared with other processes (tmpfs, shm).
  std::optional<int64_t> peak_resident_bytes;  ///< Since the program began.
  std::optional<int64_t> swapped_bytes;        ///< Pages of this process in swap.
  std::optional<int64_t> limit_bytes;          ///< The lowest limit of its control groups.
  std::optional<int64_t>
      limit_used_bytes;  ///< Used by all processes of that group, without cached files that can be dropped.
  std::optional<int64_t> machine_bytes, machine_available_bytes;
};

/// A quantity of libtorch's allocator: its current value, its peak, and the totals of all additions and removals.
struct MemoryStat {
  int64_t now = 0, peak = 0, added = 0, removed = 0;
};

/// A device's memory, according to libtorch's caching allocator.
struct DeviceMemory {
  std::string device;  ///< "cuda:0"
  MemoryStat allocated_bytes, requested_bytes, active_bytes, reserved_bytes, inactive_split_bytes;
  MemoryStat allocations, segments;
  int64_t num_out_of_memory = 0, num_retries = 0;  ///< num_retries: the cache was flushed to serve an allocation.
  std::optional<int64_t> free_bytes, total_bytes;  ///< Memory of the whole device, all processes included.
};

/// A tensor that the caller named.
struct TensorMemory {
  std::string kind, name;      ///< "parameters", "layer1.weight"
  std::string device, tensor;  ///< "cuda:0", "Float [32, 10]"
  int64_t bytes = 0;           ///< Of its whole storage; 0 if an earlier tensor has the same storage, and on meta.
  std::string shares;          ///< The earlier tensor with the same storage, such as "parameters embedding.weight".
};

/// The tensors of one kind on one device. Each storage counts once, for the first kind that has it.
struct KindMemory {
  std::string kind, device;
  int64_t num_tensors = 0, bytes = 0;
};

struct MemorySummary {
  ProcessMemory process;
  std::vector<DeviceMemory> devices;
  std::vector<KindMemory> kinds;
  std::vector<TensorMemory> tensors;  ///< The largest first.
  std::vector<std::string> unknown;   ///< What this summary could not find out, as sentences.

  /// Returns tables like those of torch.cuda.memory_summary(), with the `max_tensors` largest tensors.
  std::string to_text(int64_t max_tensors = 10) const;
  std::string to_json() const;  ///< All tensors; sizes in bytes.
};

/// The tensors that a summary counts, by kind and name. Holds references to these tensors.
class MemoryTensors {
 public:
  /// `tensors` is a NamedTensors, or a TensorMap such as an optimizer's state_dict(). Ignores undefined tensors.
  template <class Tensors>
  MemoryTensors& add(const std::string& kind, const Tensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.defined()) tensors_.push_back({kind, {name, tensor}});
    }
    return *this;
  }

  /// Adds the parameters, gradients and buffers of a module or wrapper.
  template <HasParameters M>
  MemoryTensors& add_model(const M& model) {
    const auto parameters = parameters_of(model);
    NamedTensors gradients;
    for (const auto& [name, parameter] : parameters) gradients.emplace_back(name, parameter.grad());
    return add("parameters", parameters).add("gradients", gradients).add("buffers", buffers_of(model));
  }

  const std::vector<std::pair<std::string, NamedTensors::value_type>>& tensors() const { return tensors_; }

 private:
  std::vector<std::pair<std::string, NamedTensors::value_type>> tensors_;
};

/// Reads the current state: /proc, the limits of control groups, and libtorch's allocator for each device that has been
/// used or has a tensor. Starts no work on a device. Values that cannot be read are nullopt, or are listed in
/// `unknown`.
MemorySummary memory_summary(const MemoryTensors& tensors = {});

}  // namespace yoke::train
