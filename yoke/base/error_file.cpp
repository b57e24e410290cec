#include "yoke/base/error_file.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <typeinfo>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

using Json = nlohmann::ordered_json;

/// torch writes the time as text, and older versions as a number.
std::chrono::system_clock::time_point to_time(const Json& json) {
  const auto seconds = json.is_string() ? parse_int(json.get_ref<const std::string&>()) : json.get<int64_t>();
  return std::chrono::system_clock::time_point(std::chrono::seconds(seconds.value_or(0)));
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string name_of(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), free);
  return name ? name.get() : type.name();
}

}  // namespace

std::optional<ErrorReport> read_error_file(const std::filesystem::path& path) {
  try {
    const auto json = Json::parse(read_file(path));
    const auto& message = json.at("message");
    if (message.is_string()) return ErrorReport{message.get<std::string>(), "", to_time(json.at("timestamp"))};
    const auto& extra = message.at("extraInfo");
    return ErrorReport{text_at(message, "message"), text_at(extra, "py_callstack"), to_time(extra.at("timestamp"))};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool write_error_file(const std::filesystem::path& path, const ErrorReport& report) noexcept {
  try {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(report.time.time_since_epoch()).count();
    const Json json = {{"message",
                        {{"message", report.message},
                         {"extraInfo", {{"py_callstack", report.traceback}, {"timestamp", std::to_string(seconds)}}}}}};
    const auto text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    return fd && write(fd.value(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  } catch (...) {
    return false;
  }
}

void record_failure(const std::string& type, const std::string& message) noexcept {
  static std::atomic<bool> is_recorded = false;
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0' || is_recorded.exchange(true)) return;
  write_error_file(path, {type.empty() ? message : type + ": " + message, "", std::chrono::system_clock::now()});
}

void record_failure(const std::exception& error) noexcept { record_failure(name_of(typeid(error)), error.what()); }

void record_uncaught_exceptions() {
  static std::terminate_handler before = nullptr;
  before = std::set_terminate([] {
    if (const auto error = std::current_exception()) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& known) {
        record_failure(known);
      } catch (...) {
        record_failure("", "an exception that is no std::exception");
      }
    }
    if (before != nullptr) before();
    std::abort();
  });
}

}  // namespace yoke
