// With this macro, Kineto's headers declare the functions as libtorch was built with them.
#define USE_KINETO
#include "yoke/train/watch/detail/profile_window.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/kineto_shim.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <set>
#include <string_view>
#include <unordered_set>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/contract/rank_env.h"

namespace yoke::train::detail {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

std::set<ActivityType> activities() {
  std::set<ActivityType> result = {ActivityType::CPU};
  if (at::hasCUDA()) result.insert(ActivityType::CUDA);  // includes ROCm's devices
  return result;
}

ProfilerConfig config(ProfileDetail detail) {
  return ProfilerConfig(ProfilerState::KINETO, /*report_input_shapes=*/detail == ProfileDetail::kShapes);
}

/// The time in which any task of this machine, or of this process's control group, has waited for memory since boot. 0
/// if Linux does not report it.
int64_t memory_stall_us() {
  const auto read = [](const std::string& path) -> std::string {
    try {
      return read_file(path);
    } catch (const Error&) {
      return "";
    }
  };
  std::string text;
  const auto groups = read("/proc/self/cgroup");
  if (groups.starts_with("0::/")) {  // cgroup v2
    text = read("/sys/fs/cgroup" + groups.substr(3, groups.find('\n') - 3) + "/memory.pressure");
  }
  if (text.empty()) text = read("/proc/pressure/memory");
  constexpr std::string_view kTotal = "total=";
  const auto total = text.find(kTotal);  // "total=" occurs first in the line "some"
  int64_t result = 0;
  if (total != text.npos) std::from_chars(text.data() + total + kTotal.size(), text.data() + text.size(), result);
  return result;
}

using KernelCpus = std::array<cpu_set_t, 16>;  // room for 16,384 processors

/// Returns how many processors this process may use. If the launcher may use the same ones, the ranks of this host
/// share them, so the number is divided by the number of ranks. 0 if unknown.
int64_t num_cpus() {
  KernelCpus own = {}, parents = {};
  if (sched_getaffinity(0, sizeof own, own.data()) != 0) return 0;
  const int64_t count = CPU_COUNT_S(sizeof own, own.data());
  const bool is_bound = sched_getaffinity(getppid(), sizeof parents, parents.data()) == 0 &&
                        !CPU_EQUAL_S(sizeof own, own.data(), parents.data());
  if (is_bound) return count;
  const auto num_ranks = read_rank_env(Environment::of_process()).local_world_size;
  return std::max<int64_t>(1, count / std::max<int64_t>(1, num_ranks));
}

/// Returns whether Kineto has written the file to its end, "}".
bool is_whole(const std::filesystem::path& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 16> end;
  const auto size = fd ? lseek(fd.value(), 0, SEEK_END) : 0;
  const auto begin = std::max<off_t>(0, size - static_cast<off_t>(end.size()));
  const auto count = size > 0 ? pread(fd.value(), end.data(), end.size(), begin) : 0;
  const auto text = std::string_view(end.data(), static_cast<size_t>(std::max<ssize_t>(0, count)));
  const auto last = text.find_last_not_of(" \n");
  return last != text.npos && text[last] == '}';
}

std::string room_in(const std::filesystem::path& folder) {
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) return "";
  return fmt::format("; {} are free there", format_bytes(static_cast<int64_t>(info.f_bavail * info.f_frsize)));
}

/// Throws if no file can be created in `folder`, so that this error comes before the recording.
void require_writable(const std::filesystem::path& folder) {
  const auto probe = folder / fmt::format(".probe.{}.tmp", getpid());
  const UniqueFd fd(open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) throw system_error(errno, fmt::format("profiler: making a file in {}", folder.native()));
  unlink(probe.c_str());
}

/// Calls a function of Kineto. Kineto's functions throw c10::Error, whose text has a stack trace after the message.
template <class Call>
auto call_kineto(Call call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kFailedPrecondition, "profiler: libtorch refuses: {}", error.what_without_backtrace());
  }
}

void require_unused() {
  if (!torch::profiler::impl::profilerEnabled()) return;
  throw Error(
      ErrorCode::kFailedPrecondition,
      "profiler: another recording runs in this process, of a Profiler, of `yoke profile` or of libtorch's profiler "
      "itself, and a process can have only one; try again when it has ended");
}

/// Stops the profiler when its thread ends. If a process exits while a profiler runs, libtorch crashes, because its
/// thread-local variables are destroyed in an unexpected order.
struct EndOfThread {
  std::shared_ptr<std::atomic<ProfileWindow*>> window;
  ~EndOfThread() {
    if (auto* const open = window ? window->load() : nullptr) open->discard();
  }
};

}  // namespace

ProfileWindow::ProfileWindow(const ProfileWindowOptions& options)
    : options_(options),
      trace_(std::filesystem::path(options.request.folder) / fmt::format("rank{}.json", options.rank)),
      self_(std::make_shared<std::atomic<ProfileWindow*>>(this)) {
  const auto& request = options_.request;
  if (request.first < 0 || request.warmup < 0 || request.active < 1) {
    throw Error(ErrorCode::kInvalidArgument, "profiler: {} steps after {} of warm-up, from step {} on", request.active,
                request.warmup, request.first);
  }
  require_writable(request.folder);
}

ProfileWindow::~ProfileWindow() {
  *self_ = nullptr;
  discard();
}

void ProfileWindow::begin_step(int64_t step) {
  if (is_over_) return;
  try {
    advance(step);
  } catch (...) {
    is_over_ = true;
    discard();
    throw;
  }
}

void ProfileWindow::advance(int64_t step) {
  const auto& request = options_.request;
  if (kineto_ == Kineto::kEnabled && ++num_recorded_ >= request.active) return save();
  if (kineto_ == Kineto::kIdle && step >= request.first - request.warmup) prepare();
  if (kineto_ == Kineto::kPrepared && step >= request.first) start();
  if (kineto_ == Kineto::kEnabled) mark(step);
}

void ProfileWindow::prepare() {
  require_unused();
  call_kineto([this] { kineto::prepareProfiler(config(options_.request.detail), activities()); });
  thread_ = std::this_thread::get_id();
  process_ = getpid();
  kineto_ = Kineto::kPrepared;
}

void ProfileWindow::start() {
  require_own_thread();
  require_unused();
  std::unordered_set<at::RecordScope> scopes;  // if empty, all scopes are recorded
  if (options_.request.detail == ProfileDetail::kAnnotations) scopes = {at::RecordScope::USER_SCOPE};
  call_kineto([&] { kineto::enableProfiler(config(options_.request.detail), activities(), scopes); });
  stalled_us_ = memory_stall_us();
  kineto_ = Kineto::kEnabled;
  thread_local EndOfThread end_of_thread;  // after libtorch's thread-locals, so it is destroyed before them
  end_of_thread.window = self_;
}

void ProfileWindow::mark(int64_t step) {
  require_own_thread();
  step_.reset();
  step_.emplace(at::RecordScope::USER_SCOPE);
  step_->before(fmt::format("ProfilerStep#{}", step));
}

void ProfileWindow::save() {
  require_own_thread();
  step_.reset();
  const bool has_operations = options_.request.detail != ProfileDetail::kAnnotations;
  kineto::addMetadataJson("distributedInfo", fmt::format(R"({{"backend":"","rank":{},"world_size":{}}})", options_.rank,
                                                         options_.world_size));
  kineto::addMetadataJson(
      "host", fmt::format(R"({{"num_threads":{},"num_cpus":{},"memory_stall_us":{},"has_operations":{}}})",
                          at::get_num_threads(), num_cpus(), memory_stall_us() - stalled_us_, has_operations ? 1 : 0));
  is_over_ = true;
  kineto_ = Kineto::kIdle;
  const auto result = call_kineto([] { return kineto::disableProfiler(); });
  const auto temporary = trace_.parent_path() / fmt::format(".{}.{}.tmp", trace_.filename().native(), process_);
  result->save(temporary.native());
  if (!is_whole(temporary)) {
    unlink(temporary.c_str());
    throw Error(ErrorCode::kUnavailable, "profiler: the trace {} cannot be written{}", trace_.native(),
                room_in(trace_.parent_path()));
  }
  if (rename(temporary.c_str(), trace_.c_str()) != 0) {
    const auto error = system_error(errno, "profiler: renaming " + temporary.native());
    unlink(temporary.c_str());
    throw error;
  }
  has_trace_ = true;
}

bool ProfileWindow::discard() {
  if (kineto_ == Kineto::kIdle) return true;
  if (!is_own_thread()) return false;
  try {
    step_.reset();
    if (kineto_ == Kineto::kPrepared) kineto::enableProfiler(config(options_.request.detail), activities());
    kineto_ = Kineto::kIdle;
    kineto::disableProfiler();
  } catch (const std::exception&) {
    // The recording is dropped, so its errors do not matter.
  }
  return true;
}

bool ProfileWindow::is_own_thread() const { return process_ == getpid() && thread_ == std::this_thread::get_id(); }

void ProfileWindow::require_own_thread() const {
  if (is_own_thread()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "profiler: this step began on another thread than the steps before, and libtorch's profiler records one "
              "thread and what it starts; let one thread step the optimizer");
}

}  // namespace yoke::train::detail
