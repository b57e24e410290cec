#include "state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <tuple>

#include "nvml_abi.h"
#include "state_defaults.h"

namespace yoke::fake_nvml {
namespace {

struct StatusName {
  int status;
  const char* name;  // the name in state files
  const char* text;  // the text of nvmlErrorString
};

constexpr StatusName kStatusNames[] = {
    {kSuccess, "success", "Success"},
    {kUninitialized, "uninitialized", "Uninitialized"},
    {kInvalidArgument, "invalid_argument", "Invalid Argument"},
    {kNotSupported, "not_supported", "Not Supported"},
    {kNoPermission, "no_permission", "Insufficient Permissions"},
    {kNotFound, "not_found", "Not Found"},
    {kInsufficientSize, "insufficient_size", "Insufficient Size"},
    {kInsufficientPower, "insufficient_power", "Insufficient External Power"},
    {kDriverNotLoaded, "driver_not_loaded", "Driver Not Loaded"},
    {kTimeout, "timeout", "Timeout"},
    {kIrqIssue, "irq_issue", "Interrupt Request Issue"},
    {kFunctionNotFound, "function_not_found", "Function Not Found"},
    {kCorruptedInforom, "corrupted_inforom", "Corrupted infoROM"},
    {kGpuIsLost, "lost", "GPU is lost"},
    {kResetRequired, "reset_required", "GPU requires reset"},
    {kOperatingSystem, "operating_system", "GPU access blocked by the operating system"},
    {kVersionMismatch, "version_mismatch", "Driver/library version mismatch"},
    {kInUse, "in_use", "In use by another client"},
    {kMemory, "memory", "Insufficient Memory"},
    {kNoData, "no_data", "No data"},
    {kArgumentVersionMismatch, "argument_version_mismatch", "Argument version mismatch"},
    {kNotReady, "not_ready", "System is not ready"},
    {kGpuNotFound, "gpu_not_found", "No GPUs were found"},
    {kUnknown, "unknown", "Unknown Error"},
};

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// Refuses unknown names. Otherwise a misspelt field would keep its default value, and its test would test nothing.
void check_names(const Json& given, const Json& known, const std::string& where) {
  if (!given.is_object() || !known.is_object() || known.empty()) return;
  for (const auto& [name, value] : given.items()) {
    if (!known.contains(name)) throw std::invalid_argument("unknown field '" + name + "' in " + where);
    check_names(value, known[name], where + "." + name);
  }
}

void check_processes(const Json& of, const std::string& where) {
  const Json& processes = member(of, "processes");
  if (!processes.is_array()) return;  // null, or the name of an error
  for (const Json& process : processes) {
    const Json& pid = member(process, "pid");
    if (!pid.is_number_unsigned() && pid != "self" && pid != "parent") {
      throw std::invalid_argument("a process in " + where + " has no pid (a number, \"self\" or \"parent\")");
    }
    check_names(process, known_process(), where + ".processes");
  }
}

void check_device(const Json& device, const std::string& where) {
  if (!device.is_object()) throw std::invalid_argument(where + " is not an object");
  check_names(device, known_device(), where);
  check_processes(device, where);
  for (const Json& instance : member(device, "mig", "instances")) {
    if (instance.is_null()) continue;
    check_names(instance, known_instance(), where + ".mig.instances");
    check_processes(instance, where + ".mig.instances");
  }
}

Json object_or_empty(const Json& value) { return value.is_object() ? value : Json::object(); }

/// Identifies a version of the file. The times alone do not, because they are equal if writes follow each other
/// quickly.
using Stamp = std::tuple<dev_t, ino_t, off_t, time_t, long, time_t, long>;

Stamp stamp_of(const struct stat& info) {
  return {info.st_dev,          info.st_ino,         info.st_size,        info.st_mtim.tv_sec,
          info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

std::string read_all(int fd) {
  std::string text;
  char buffer[65536];
  for (ssize_t size; (size = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(size));
  return text;
}

class File {
 public:
  std::shared_ptr<const State> current() {
    const std::scoped_lock lock(mutex_);
    if (const char* path = std::getenv("YOKE_FAKE_NVML"); path_.empty() && path != nullptr) path_ = path;
    const auto moment = std::chrono::steady_clock::now();
    if (path_.empty() || (state_ != nullptr && moment < next_look_)) return state_;
    next_look_ = moment + std::chrono::milliseconds(1);  // not at each call: stat() takes longer than all the rest
    look();
    return state_;
  }

 private:
  void look() {
    struct stat info {};
    if (stat(path_.c_str(), &info) != 0) return complain("cannot be read");
    if (stamp_of(info) == stamp_) return;
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return complain("cannot be opened");
    fstat(fd, &info);
    const auto text = read_all(fd);
    close(fd);
    stamp_ = stamp_of(info);
    try {
      const auto modified_at = static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * info.st_mtim.tv_nsec;
      state_ = std::make_shared<const State>(parse_state(text, modified_at));
    } catch (const Json::parse_error& error) {  // the file is half-written; a later attempt will succeed
      if (state_ == nullptr) complain(error.what());
    } catch (const std::exception& error) {
      complain(error.what());
    }
  }

  void complain(const char* reason) {
    const std::string line = "fake libnvidia-ml.so.1: YOKE_FAKE_NVML=" + path_ + ": " + reason + "\n";
    if (line == last_complaint_) return;
    last_complaint_ = line;
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
  }

  std::mutex mutex_;
  std::string path_;
  Stamp stamp_;
  std::chrono::steady_clock::time_point next_look_;
  std::shared_ptr<const State> state_;
  std::string last_complaint_;
};

}  // namespace

std::shared_ptr<const State> current_state() {
  static File& file = *new File;  // never destroyed, because a hung call may outlive main()
  return file.current();
}

State parse_state(const std::string& text, double modified_at) {
  State state;
  state.root = Json::parse(text);
  if (!state.root.is_object()) throw std::invalid_argument("is not a JSON object");
  check_names(state.root, known_root(), "the state");
  state.since = state.root.value("since", modified_at);
  state.step_s = state.root.value("step_s", 1.0);
  if (!(state.step_s > 0)) throw std::invalid_argument("step_s is not positive");

  const Json devices = state.root.value("devices", Json(1));
  const Json defaults = object_or_empty(member(state.root, "defaults"));
  const Json overrides = object_or_empty(member(state.root, "overrides"));
  check_device(defaults, "defaults");
  const size_t count = devices.is_array() ? devices.size() : devices.get<size_t>();
  if (count > kMaxDevices) throw std::invalid_argument("more than " + std::to_string(kMaxDevices) + " devices");
  for (const auto& [index, device] : overrides.items()) {
    if (index.empty() || index.find_first_not_of("0123456789") != std::string::npos || std::stoul(index) >= count) {
      throw std::invalid_argument("overrides name device '" + index + "', and there are " + std::to_string(count));
    }
    check_device(device, "overrides." + index);
  }
  for (size_t i = 0; i < count; ++i) {
    Json device = default_device(i);
    device.merge_patch(defaults);
    if (devices.is_array()) {
      check_device(devices[i], "devices[" + std::to_string(i) + "]");
      device.merge_patch(devices[i]);
    }
    if (const auto own = overrides.find(std::to_string(i)); own != overrides.end()) device.merge_patch(*own);
    complete_instances(device);
    state.devices.push_back(std::move(device));
  }
  state.root.erase("devices");
  state.root.erase("defaults");
  state.root.erase("overrides");
  return state;
}

Answer resolve(const State& state, const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean: return {kSuccess, value.get<bool>() ? 1.0 : 0.0};
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float: return {kSuccess, value.get<double>()};
    case Json::value_t::string: return {status_of(value), 0};
    case Json::value_t::array: {
      if (value.empty()) return {kNotSupported, 0};
      const double elapsed = std::max(0.0, now() - state.since);
      return resolve(state, value[static_cast<size_t>(elapsed / state.step_s) % value.size()]);
    }
    case Json::value_t::object: {
      const double elapsed = std::max(0.0, now() - state.since);
      return {kSuccess, value.value("start", 0.0) + value.value("per_second", 0.0) * elapsed};
    }
    default: return {kNotSupported, 0};
  }
}

const Json& member(const Json& object, const char* name) {
  static const Json& none = *new Json;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

const Json& member(const Json& object, const char* name, const char* inner) {
  return member(member(object, name), inner);
}

int status_of(const Json& error) {
  if (error.is_number_integer()) return error.get<int>();
  if (!error.is_string()) return kUnknown;
  for (const auto& known : kStatusNames) {
    if (error.get_ref<const std::string&>() == known.name) return known.status;
  }
  return kUnknown;
}

const char* text_of(int status) {
  for (const auto& known : kStatusNames) {
    if (status == known.status) return known.text;
  }
  return "Unknown Error";
}

}  // namespace yoke::fake_nvml
