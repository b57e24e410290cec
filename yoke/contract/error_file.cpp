#include "yoke/contract/error_file.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <typeinfo>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/json_text.h"
#include "yoke/base/moment.h"
#include "yoke/contract/failure_place.h"
#include "yoke/contract/shared_failure.h"

namespace yoke {
namespace {

/// Python's tracebacks take a few KiB. Without a limit a rank could make its launcher read for ever.
constexpr size_t kMaxErrorFileBytes = 1 << 20;
constexpr int kMaxErrorFileDepth = 32;
constexpr size_t kMaxCauseRanks = 1024;

/// Limits the depth: nlohmann parses any depth, but its printer is recursive and may overflow the stack.
/// Json would take quadratic time for an object with many keys.
bool require_flat(int depth, SortedJson::parse_event_t /*event*/, SortedJson& /*parsed*/) {
  if (depth > kMaxErrorFileDepth) throw Error(ErrorCode::kDataLoss, "the error file is nested too deeply");
  return true;
}

/// torch writes the time as a text; older versions write a number.
std::chrono::system_clock::time_point time_at(const SortedJson& json, const char* key) {
  constexpr int64_t kLatest = 9'000'000'000;  // a later time overflows the clock, which counts nanoseconds
  const auto found = json.find(key);
  int64_t seconds = 0;
  if (found == json.end()) {
    // The report keeps the time 0, which is 1970.
  } else if (found->is_string()) {
    seconds = parse_int(found->get_ref<const std::string&>()).value_or(0);
  } else if (found->is_number_unsigned()) {
    seconds = static_cast<int64_t>(std::min<uint64_t>(found->get<uint64_t>(), kLatest));
  } else if (found->is_number_integer()) {
    seconds = found->get<int64_t>();
  } else if (found->is_number_float()) {
    seconds = static_cast<int64_t>(std::clamp<double>(found->get<double>(), 0, kLatest));
  }
  return std::chrono::system_clock::time_point(std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kLatest)));
}

/// Returns a JSON string without its quotes, and any other value as JSON text.
std::string to_text(const SortedJson& json) {
  if (json.is_null()) return "";
  return json.is_string() ? json.get<std::string>() : json_line(json);
}

std::string text_at(const SortedJson& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? "" : to_text(*found);
}

/// Returns the last line, where a traceback names the exception.
std::string last_line_of(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

std::string name_of(FailureCause::Kind kind) {
  switch (kind) {
    case FailureCause::Kind::kAbsent: break;
    case FailureCause::Kind::kEnded: return "ended";
    case FailureCause::Kind::kDiffers: return "differs";
  }
  return "absent";
}

FailureCause::Kind kind_of(const std::string& name) {
  for (const auto kind : {FailureCause::Kind::kEnded, FailureCause::Kind::kDiffers}) {
    if (name == name_of(kind)) return kind;
  }
  return FailureCause::Kind::kAbsent;
}

/// Returns an empty cause if it is missing or has another form.
FailureCause cause_at(const SortedJson& details) {
  const auto found = details.find("cause");
  if (found == details.end() || !found->is_object()) return {};
  FailureCause cause{.ranks = {}, .what = text_at(*found, "what"), .kind = kind_of(text_at(*found, "kind"))};
  const auto ranks = found->find("ranks");
  if (ranks == found->end() || !ranks->is_array() || ranks->size() > kMaxCauseRanks) return {};
  for (const auto& rank : *ranks) {
    if (rank.is_number_integer()) cause.ranks.push_back(rank.get<int64_t>());
  }
  return cause;
}

/// Moves the stack frames at the end of a libtorch exception's message into the traceback. Those of its allocator, as
/// without memory, have no line before the first frame.
ErrorReport without_frames(ErrorReport report) {
  const auto frames = std::min(report.message.find("\nException raised from "), report.message.find("\nframe #0: "));
  if (frames == report.message.npos) return report;
  if (report.traceback.empty()) report.traceback = report.message;
  report.message.resize(frames);
  return report;
}

/// Writes the format of torch's ErrorHandler.record_exception(). torchrun prints the message only if there is no
/// py_callstack (ChildFailedError._format_failure in torch/distributed/elastic/multiprocessing/errors/__init__.py).
Json to_json(const ErrorReport& report) {
  const auto seconds = seconds_since_epoch(report.time);
  Json details = Json::object();
  if (!report.traceback.empty()) details["py_callstack"] = report.traceback;
  details["timestamp"] = std::to_string(seconds);
  if (const auto& cause = report.cause; !cause.ranks.empty()) {
    details["cause"] = {{"ranks", cause.ranks}, {"what", cause.what}, {"kind", name_of(cause.kind)}};
  }
  return {{"message", {{"message", report.message}, {"extraInfo", std::move(details)}}}};
}

struct NotedCause {
  std::mutex mutex;
  std::string message;
  FailureCause cause;
  std::string shared_message;
  FailureCause shared_cause;
};

NotedCause& noted_cause() {
  static auto& noted = *new NotedCause;  // a thread may fail while the process ends
  return noted;
}

FailureCause cause_of(const std::string& message) {
  auto& noted = noted_cause();
  const std::lock_guard lock(noted.mutex);
  const auto is_known = [&](const std::string& text) { return !text.empty() && message.find(text) != message.npos; };
  if (is_known(noted.message)) return noted.cause;
  return is_known(noted.shared_message) ? noted.shared_cause : FailureCause{};
}

/// A job of which all ranks end so looks complete.
void record_caught_failure(int exit_status, void* /*unused*/) noexcept {
  if (exit_status != 0) return;
  auto& noted = noted_cause();
  std::unique_lock lock(noted.mutex);
  const auto message = std::exchange(noted.message, {});
  lock.unlock();
  if (!message.empty()) record_failure("", message);
}

std::string name_of(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), free);
  return name ? name.get() : type.name();
}

}  // namespace

std::optional<ErrorReport> parse_error_report(std::string_view text) {
  try {
    const auto json = SortedJson::parse(text, require_flat);
    const auto message = json.find("message");
    if (message == json.end()) return std::nullopt;
    ErrorReport report{.content = std::string(text)};
    if (!message->is_object()) {
      report.message = to_text(*message);
      report.time = time_at(json, "timestamp");
    } else {
      const auto extra = message->find("extraInfo");
      const auto& details = extra == message->end() ? *message : *extra;
      report.traceback = text_at(details, "py_callstack");
      report.message = text_at(*message, "message");
      if (report.message.empty()) report.message = last_line_of(report.traceback);
      report.time = time_at(details, "timestamp");
      report.cause = cause_at(details);
    }
    return report.message.empty() ? std::nullopt : std::optional(without_frames(std::move(report)));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<ErrorReport> read_error_file(const std::filesystem::path& path) {
  try {
    return parse_error_report(read_regular_file(path, kMaxErrorFileBytes));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool write_error_file(const std::filesystem::path& path, const ErrorReport& report) noexcept {
  try {
    const auto text = json_line(to_json(report));
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    return fd && write(fd.value(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  } catch (...) {
    return false;
  }
}

void hand_on_error_report(const std::filesystem::path& path, const ErrorReport& report, int error_code) {
  // rename() would replace even /dev/null by a regular file.
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kDataLoss, "{}: not a regular file", path.string());
  }
  const Json made = to_json(report);
  SortedJson json = report.content.empty() ? SortedJson(made) : SortedJson::parse(report.content, require_flat);
  if (error_code != 0 && json.at("message").is_object()) json["message"]["errorCode"] = error_code;
  const auto text = json_line(json);
  replace_file(path, text);
}

bool record_failure(const std::string& type, const std::string& message) noexcept {
  static std::atomic<bool> is_recorded = false;
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0' || is_recorded.exchange(true)) return false;
  return write_error_file(path, without_frames({.message = type.empty() ? message : type + ": " + message,
                                                .time = std::chrono::system_clock::now(),
                                                .cause = cause_of(message)}));
}

bool record_failure(const std::exception& error) noexcept {
  std::string text = error.what();
  // The place follows the first line: frames of libtorch may follow in others.
  text.insert(std::min(text.find('\n'), text.size()), failure_place(dynamic_cast<const Error*>(&error) != nullptr));
  return record_failure(name_of(typeid(error)), text);
}

void note_failure_cause(std::string message, FailureCause cause) {
  [[maybe_unused]] static const int is_watched = on_exit(record_caught_failure, nullptr);
  auto& noted = noted_cause();
  const std::lock_guard lock(noted.mutex);
  noted.message = std::move(message);
  noted.cause = std::move(cause);
}

void forget_failure_cause() noexcept {
  auto& noted = noted_cause();
  const std::lock_guard lock(noted.mutex);
  noted.message.clear();
  noted.shared_message.clear();
}

void note_shared_failure(std::string message, std::vector<int64_t> ranks, std::string what) {
  auto& noted = noted_cause();
  const std::lock_guard lock(noted.mutex);
  const auto& before = noted.shared_message;
  // An error within this one knows more.
  if (!before.empty() && message != before && message.find(before) != message.npos) return;
  noted.shared_message = std::move(message);
  noted.shared_cause = {std::move(ranks), std::move(what), FailureCause::Kind::kDiffers};
}

void record_uncaught_exceptions() {
  static std::terminate_handler before = nullptr;
  before = std::set_terminate([] {
    if (const auto error = std::current_exception()) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& known) {
        record_failure(known);
      } catch (...) {
        record_failure("", "an exception that is not a std::exception");
      }
    }
    if (before != nullptr) before();
    std::abort();
  });
}

}  // namespace yoke
