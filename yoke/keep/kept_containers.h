// yoke/keep/kept_containers.h -- finds the containers that `yoke container run` has started, by their keepers.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/user_socket.h"

namespace yoke::keep {

/// The service of user_socket.h under which keepers listen. They answer "describe" and "stop" with a line of
/// JSON, and "log" with a byte and the file of the container's output, if they keep it.
inline constexpr const char* kKeeperService = "yoke-container";

/// A keeper that was asked. A keeper that is stopped has a socket and does not answer.
struct KeptContainerRow {
  UserSocket socket;
  std::optional<nlohmann::ordered_json> json;  ///< nullopt: it does not answer.

  std::string text(const char* key) const { return json ? json->value(key, "") : ""; }
};

/// Sends a word to all of these keepers at once, and waits for all answers until one deadline. Leaves out those that
/// have ended. Any user can make sockets that look like a keeper's and never answer.
std::vector<KeptContainerRow> ask_keepers(const std::vector<UserSocket>& sockets, std::string_view word,
                                          std::chrono::milliseconds patience = std::chrono::seconds(2));

/// The containers of this user, or for root of all users.
std::vector<KeptContainerRow> kept_containers();

/// What a name on the command line means among the containers that were found. `word` is a name, or the PID of a keeper
/// or of a container's first process.
struct NamedContainers {
  std::vector<size_t> found;        ///< Positions.
  std::vector<int64_t> are_silent;  ///< The PIDs of keepers that do not answer, so any of them may be meant.
};
NamedContainers find_named(const std::vector<KeptContainerRow>& rows, const std::string& word);

/// Errors  kNotFound: none has this name; kInvalidArgument: several have it; kUnavailable: a keeper does not answer.
/// This user's own containers are asked first.
KeptContainerRow find_container(const std::string& word);

/// Whether a container of this user that runs has this name.
bool has_container(const std::string& name);

/// Copies the output of a container of Apptainer, of which its keeper has the log, to `out`: what there is, or with
/// `follows` all until the container ends. Errors  kFailedPrecondition: the keeper has none.
void copy_log_of(const KeptContainerRow& row, int out, bool follows);

/// Asks the keeper to end its container, and waits until it has done so. Returns false if it had ended before.
/// Errors  kTimeout: it has not, although SIGKILL followed.
bool stop_container(const KeptContainerRow& row);

}  // namespace yoke::keep
