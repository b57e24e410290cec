// yoke/contract/profile_protocol.h -- the protocol between `yoke profile` and a program that it profiles: lines of JSON
// over a Unix socket of their user (user_socket.h). tools/python/yoke_profile.py implements it too.
//
// Either side may connect. A running program listens as kProfiledService, and `yoke profile --pid` connects to it.
// `yoke profile -- CMD` listens as kProfilingService and names its socket in YOKE_PROFILE, and the programs of CMD
// connect to it. After that the program sends a ProfileHello. It receives a ProfileRequest, or the connection is
// closed. Then the program sends ProfileNews until it closes the connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke {

inline constexpr std::string_view kProfiledService = "yoke-profiled";
inline constexpr std::string_view kProfilingService = "yoke-profiling";

/// What a program says about itself.
struct ProfileHello {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_world_size = 1;  ///< The number of ranks on this host.
  int64_t pid = 0;
  int64_t start_ticks = 0;  ///< From start_ticks_of(pid), called in the process itself.
  int64_t attempt = 0;      ///< The number of times that its job was restarted.
  int64_t num_steps = 0;    ///< The number of finished steps.

  bool operator==(const ProfileHello&) const = default;
};

/// How much a trace contains.
enum class ProfileDetail {
  kOperations,   ///< All operations of libtorch and all kernels of devices.
  kAnnotations,  ///< Only steps, loading, the optimizer and collectives, which costs almost no time.
  kShapes,       ///< kOperations, with the shapes of their inputs, from which `yoke plan` has the sizes of gradients.
};

/// The steps that a program shall record. The first step of a process has the number 0.
struct ProfileRequest {
  std::string folder;  ///< An absolute path. The program writes `rank<N>.json` there.
  int64_t first = 0;  ///< The first step to record. If this step has begun already, recording begins with the next one.
  int64_t warmup = 0;  ///< The number of steps before `first` in which the profiler warms up.
  int64_t active = 1;  ///< The number of steps to record.
  ProfileDetail detail = ProfileDetail::kOperations;

  bool operator==(const ProfileRequest&) const = default;
};

/// Exactly one of the three members is set.
struct ProfileNews {
  std::optional<int64_t> num_steps = {};    ///< The number of finished steps, sent when a step ends.
  std::optional<std::string> trace = {};    ///< The path of the complete trace.
  std::optional<std::string> failure = {};  ///< A sentence that says why there will be no trace.

  bool operator==(const ProfileNews&) const = default;
};

/// Returns the message as one line. Bytes that are not UTF-8 are replaced.
std::string to_line(const ProfileHello& hello);
std::string to_line(const ProfileRequest& request);
std::string to_line(const ProfileNews& news);

/// These functions return nullopt if `line` is not such a message.
std::optional<ProfileHello> parse_hello(std::string_view line);
std::optional<ProfileRequest> parse_request(std::string_view line);
std::optional<ProfileNews> parse_news(std::string_view line);

}  // namespace yoke
