// yoke/base/profile_protocol.h -- what `yoke profile` and a program that it profiles say to each other: lines of JSON
// over a Unix socket of their user (user_socket.h). tools/python/yoke_profile.py speaks it too.
//
// Either side connects. A program that runs listens as kProfiledService, and `yoke profile --pid` connects to it. `yoke
// profile -- CMD` listens as kProfilingService and names its socket in YOKE_PROFILE, to which the programs of CMD
// connect. Then the program says hello, is given a request or is disconnected, and tells its news until it closes the
// connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke {

inline constexpr std::string_view kProfiledService = "yoke-profiled";
inline constexpr std::string_view kProfilingService = "yoke-profiling";

/// The socket of `yoke profile -- CMD`, or "off": the program does not listen.
inline constexpr const char* kProfileVariable = "YOKE_PROFILE";

/// What a program says about itself.
struct ProfileHello {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_world_size = 1;  ///< The number of ranks on this host.
  int64_t pid = 0;
  int64_t start_ticks = 0;  ///< start_ticks_of(pid), as the process itself sees it.
  int64_t attempt = 0;      ///< How often its job was restarted.
  int64_t num_steps = 0;    ///< The number of steps that have ended.

  bool operator==(const ProfileHello&) const = default;
};

/// How much a trace contains.
enum class ProfileDetail {
  kOperations,   ///< All operations of libtorch and kernels of devices.
  kAnnotations,  ///< Steps, loading, the optimizer and collectives only, which costs next to nothing.
};

/// The steps that a program shall record. Steps are numbered from 0, as from the start of the process.
struct ProfileRequest {
  std::string folder;  ///< An absolute path. The program writes `rank<N>.json` there.
  int64_t first = 0;   ///< The first step that is recorded; if it has begun already, the next one.
  int64_t warmup = 0;  ///< The number of steps before it in which the profiler is prepared.
  int64_t active = 1;  ///< The number of steps that are recorded.
  ProfileDetail detail = ProfileDetail::kOperations;

  bool operator==(const ProfileRequest&) const = default;
};

/// One of the three members is set.
struct ProfileNews {
  std::optional<int64_t> num_steps = {};    ///< A step has ended: the number of those that have.
  std::optional<std::string> trace = {};    ///< The path of the trace, which is complete.
  std::optional<std::string> failure = {};  ///< A sentence that says why there will be no trace.

  bool operator==(const ProfileNews&) const = default;
};

/// Each is one line. Bytes that are not UTF-8 are replaced.
std::string to_line(const ProfileHello& hello);
std::string to_line(const ProfileRequest& request);
std::string to_line(const ProfileNews& news);

/// These return nullopt for anything that is not such a line.
std::optional<ProfileHello> parse_hello(std::string_view line);
std::optional<ProfileRequest> parse_request(std::string_view line);
std::optional<ProfileNews> parse_news(std::string_view line);

}  // namespace yoke
