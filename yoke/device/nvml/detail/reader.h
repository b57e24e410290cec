// yoke/device/nvml/detail/reader.h -- reads one device by calls to NVML.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/device/device.h"
#include "yoke/device/nvml/detail/library.h"

namespace yoke::device::nvml {

/// Reads the values that `want` names from one GPU or MIG device. A value whose call fails stays nullopt. The first
/// status that says that the GPU is lost or must be reset is kept.
class Reader {
 public:
  Reader(const Library& library, Handle handle) : library_(library), handle_(handle) {}

  void read_identity(Facts& facts);
  void read_details(Facts& facts);
  void read_basics(Readings& readings);
  void read_details(Readings& readings);
  void read_pcie_throughput(Readings& readings);
  /// Fills in the processes, and whether they are all. A list that the driver does not have counts as empty, except
  /// that of processes that compute; a list that fails makes all of them uncertain.
  void read_processes(Device& device);
  void read_process_utilization(std::vector<DeviceProcess>& processes);
  std::vector<Link> read_links();

  void read_mig_mode(Readings& readings);
  std::optional<int64_t> gpu_instance() { return number(library_.gpu_instance); }
  std::optional<int64_t> compute_instance() { return number(library_.compute_instance); }
  /// The MIG devices with their index in the driver. An index may have none.
  std::vector<std::pair<int64_t, Handle>> mig_handles();

  /// Returns kSuccess, or the status by which the GPU was lost: kGpuIsLost or kResetRequired.
  int loss() const { return loss_; }

 private:
  template <typename... Parameters, typename... Args>
  bool call(int (*function)(Handle, Parameters...), Args... args) {
    if (function == nullptr) return false;
    const int status = last_status_ = function(handle_, args...);
    if (status == kGpuIsLost || status == kResetRequired) loss_ = status;
    return status == kSuccess;
  }
  std::optional<int64_t> number(NumberOfDevice function);
  std::optional<bool> flag(NumberOfDevice function);
  std::string text(TextOfDevice function);
  std::optional<int64_t> clock(OfDevice<int, uint32_t*> function, int domain);
  std::optional<int64_t> threshold(int which);
  std::optional<int64_t> ecc(int error_type, int counter_type);
  void read_memory(Readings& readings);
  void read_memory_errors(Readings& readings);
  int add_processes(const ProcessFunction& function, const std::string& type, std::vector<DeviceProcess>& processes);

  const Library& library_;
  Handle handle_;
  int loss_ = kSuccess, last_status_ = kSuccess;
};

/// Returns the bus id in the form "0000:c1:00.0".
std::string pci_bus_id(const Pci& pci);

/// Parses the entries of a process list as the driver wrote them. An entry has 24 bytes; 16 in version 1, and 32 with
/// some 535 drivers. The size is inferred from the PIDs: with a wrong size, some would be 0 or above Linux's limit.
/// Such a PID in an entry of the right size stays: drivers report it of processes in other virtual machines or
/// namespaces. REQUIRES: `buffer` holds 32 bytes for each of `count` entries.
std::vector<Process> parse_processes(const std::vector<std::byte>& buffer, size_t count, ProcessForm form);

}  // namespace yoke::device::nvml
