// yoke/keep/run_container.h -- starts a container, and keeps a claim for as long as the container lives.
//
// Two processes take part. The keeper has the locks, a session of its own and no terminal. It gives the container's
// first program its consent, and gives the devices back when that process has ended. The caller starts the engine's
// client in the terminal and returns its status. If the caller or the client is killed, the keeper stays until the
// container ends.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/claim/ledger.h"
#include "yoke/container/plan.h"
#include "yoke/keep/use_watch.h"

namespace yoke::keep {

/// What the keeper needs to know about a container.
struct KeptContainer {
  container::Engine engine;
  container::Request request;  ///< The keeper fills in the folder `meeting`.
  std::vector<container::WantedDevice> devices;
  std::shared_ptr<const void> site = {};   ///< Owns the folder of locks, to which `claim` refers.
  UseWatchOptions watch = {};              ///< How to look whether the devices are used.
  std::optional<claim::Claim> claim = {};  ///< Empty if the container gets no device.
  bool ends_with_command = false;          ///< The container is ended if the command is killed.
};

/// The exit status if the engine could not start the container, as that of docker and podman.
inline constexpr int kEngineFailed = 125;

/// The folder in which the keeper makes a private folder for its socket.
std::filesystem::path meeting_parent(const Environment& environment);

struct RunContainerOptions {
  /// Called in the keeper's process to take the devices. If it returns nullopt, nothing is started, and the exit status
  /// is the one that it has set.
  std::function<std::optional<KeptContainer>(int& status)> prepare;
  bool is_detached = false;  ///< As Foreground::kDetached.
};

/// Forks the keeper, and runs the engine's client in this process's terminal. Returns the exit status of the container,
/// or with is_detached, 0 if it has started.
/// Errors  those of `prepare`; kFailedPrecondition: the container does not have what it should; kUnavailable: the
/// keeper has ended. REQUIRES: this process has one thread, nothing is in the buffers of its streams, and no
/// SignalMessages exists.
int run_container(const RunContainerOptions& options, const Environment& environment, const Tell& tell);

}  // namespace yoke::keep
