// yoke/train/device/guardrails.h -- finds silent copies between devices, and calls that wait for a device, in a step.
//
//     for (const auto& batch : loader) {
//       train::DeviceGuardrails guard;          // throws at the call that copies or waits
//       ...forward, backward, optimizer.step()...
//     }
//
//     train::GuardrailReport report;            // counts, and does not throw
//     ...{ train::DeviceGuardrails guard(report); ...one step... }...
//     std::cout << report.to_text();
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace yoke::train {

struct GuardrailOptions {
  bool copies = true;  ///< Copies between two devices. The CPU counts as a device.
  bool syncs = true;   ///< Operators that wait for a device because the host needs a value or a shape from it.
};

enum class GuardrailKind { kCopy, kSync };

/// A place in the program that copied between devices or waited for one.
struct GuardrailPlace {
  GuardrailKind kind = GuardrailKind::kCopy;
  std::string operation;  ///< The operator that the program called, such as "aten::to".
  std::string from, to;   ///< "cuda:0", "cpu". For a sync, `from` is the device that is waited for.
  std::string tensor;     ///< Dtype and shape of the first call's tensor, such as "Float [32, 10]".
  std::string function;   ///< The caller outside of libtorch and yoke. Empty if this thread has no such caller.
  std::string file;       ///< Empty if the program has no debug information (-g).
  int64_t line = 0;
  std::string backward_of;  ///< The autograd node that was running, such as "MulBackward0". Empty outside of backward.
  int64_t count = 0;        ///< Number of calls.
  int64_t bytes = 0;        ///< Bytes copied by all calls; 0 for a sync.
};

/// The places that guardrails with this report have found. Copies of a report share their places. Thread-safe.
class GuardrailReport {
 public:
  GuardrailReport();

  std::vector<GuardrailPlace> places() const;  ///< The most frequent place first.
  std::string to_text() const;
  std::string to_json() const;  ///< {"places": [{"kind": "copy" | "sync", "operation": ..., "count": ...}]}

  struct Impl;

 private:
  friend class DeviceGuardrails;
  std::shared_ptr<Impl> impl_;
};

/// Until it is destroyed, each silent copy between devices and each wait for a device throws before it happens, or is
/// counted.
///
/// Copies   every copy is silent, except one with `non_blocking` that can be asynchronous: its host memory is pinned,
///          or both devices are accelerators. Autograd's copy of a gradient back between accelerators is never caught,
///          because the forward copy was checked. The meta device has no data, and does not count.
/// Syncs    item(), nonzero(), masks as indices, equal(), unique(), bincount() and others: docs/guardrails.md has the
///          list. If copies are not caught, a synchronous copy to or from the host is caught as a sync.
/// Threads  this thread, and the threads of autograd that run its backward. Make and destroy it on the same thread.
///          Scopes nest, and the innermost one counts. The guardrail cannot be moved.
/// Cost     none outside of a guardrail: libtorch selects the checking kernel only within its scope. Inside, only the
///          operators named above and each node of backward cost time; docs/guardrails.md has the figures. The first
///          guardrail of a process registers these kernels.
/// Errors   the call that is caught throws kFailedPrecondition; the message names the operator, devices, tensor and
///          caller. The guardrail then stays active. A backward that ended with an error has not freed its graph.
/// Limits   sees only operators. Does not see direct synchronization of a stream, or code that calls CUDA itself.
class DeviceGuardrails {
 public:
  explicit DeviceGuardrails(const GuardrailOptions& options = {});
  explicit DeviceGuardrails(const GuardrailReport& report, const GuardrailOptions& options = {});
  ~DeviceGuardrails();
  DeviceGuardrails(const DeviceGuardrails&) = delete;
  DeviceGuardrails& operator=(const DeviceGuardrails&) = delete;

  /// Until it is destroyed, allows everything on this thread, and in each backward that this thread starts.
  class Allow {
   public:
    Allow();
    ~Allow();
    Allow(const Allow&) = delete;
    Allow& operator=(const Allow&) = delete;

   private:
    bool was_on_;
  };

 private:
  DeviceGuardrails(const GuardrailOptions& options, std::shared_ptr<GuardrailReport::Impl> report);

  uint64_t handle_;
  bool was_on_;
};

}  // namespace yoke::train
