// yoke/cli/frame/container_keeper.h -- starts a container, and keeps a claim for as long as the container lives.
//
// Two processes take part. The keeper has the locks, a session of its own and no terminal. It gives the container's
// first program its consent, and gives the devices back when that process has ended. The command starts the engine's
// client in the terminal and returns its status. If the command or the client is killed, the keeper stays until the
// container ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/claim/ledger.h"
#include "yoke/cli/command.h"
#include "yoke/container/plan.h"
#include "yoke/keep/use_watch.h"

namespace yoke::cli {

/// What the keeper needs to know about a container.
struct KeptContainer {
  container::Engine engine;
  container::Request request;  ///< The keeper fills in the folder `meeting`.
  std::vector<container::WantedDevice> devices;
  std::shared_ptr<const void> site = {};   ///< Owns the folder of locks, to which `claim` refers.
  keep::UseWatchOptions watch = {};        ///< How to look whether the devices are used.
  std::optional<claim::Claim> claim = {};  ///< Empty if the container gets no device.
  bool ends_with_command = false;          ///< The container is ended if the command is killed.
};

/// The exit status if the engine could not start the container, as that of docker and podman.
inline constexpr int kEngineFailed = 125;

/// The folder in which the keeper makes a private folder for its socket.
std::filesystem::path meeting_parent(const Environment& environment);

/// Runs in this process: forks the keeper, in which `prepare` takes the devices. If it returns nullopt, the exit status
/// is the one that it has set. Returns the exit status of the container, or with Foreground::kDetached, whether it
/// started. REQUIRES: this process has one thread.
int run_container(Context& context, const std::function<std::optional<KeptContainer>(int& status)>& prepare,
                  bool is_detached);

}  // namespace yoke::cli
