#include "yoke/train/device/detail/call_site.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "yoke/base/command_output.h"
#include "yoke/base/environment.h"
#include "yoke/base/text.h"

namespace yoke::train {
namespace {

/// Returns the qualified name in a demangled function. Removes the return type, which demangled templates begin with.
std::string_view without_return_type(std::string_view demangled) {
  constexpr std::string_view kOperator = "operator";
  constexpr std::string_view kUnnamed = "(anonymous namespace)";
  constexpr std::string_view kDeduced = "decltype (";  // as of `auto call(F&& f) -> decltype(f())`
  int64_t depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < demangled.size(); ++i) {
    const auto rest = demangled.substr(i);
    if (rest.starts_with(kUnnamed)) {
      i += kUnnamed.size() - 1;
    } else if (depth == 0 && rest.starts_with(kDeduced)) {
      i += kDeduced.size() - 1;
      for (int64_t open = 1; open > 0 && i + 1 < demangled.size(); ++i) {
        open += demangled[i + 1] == '(' ? 1 : demangled[i + 1] == ')' ? -1 : 0;
      }
    } else if (rest.starts_with(kOperator)) {
      break;  // an operator's symbols, such as "<<" or "()", must not be read as brackets or a parameter list
    } else if (rest[0] == '<' || rest[0] == '{' || rest[0] == '[') {
      ++depth;
    } else if (rest[0] == '>' || rest[0] == '}' || rest[0] == ']') {
      --depth;
    } else if (depth == 0 && rest[0] == ' ') {
      begin = i + 1;
    } else if (depth == 0 && rest[0] == '(') {
      break;
    }
  }
  return demangled.substr(begin);
}

/// Returns "fit()" for "fit() [clone .cold]", and says what "operator()" is.
std::string readable(std::string_view function) {
  if (function == "operator()") return "a lambda";
  return std::string(function.substr(0, function.find(" [clone ")));
}

/// Of functions that were compiled into another one, libtorch reads the line of the innermost alone: that of libtorch's
/// header where at::Tensor::nonzero() was compiled into a function of the user, or that of the user's lambda in
/// std::function. addr2line reads all. Returns the innermost function of the user with its line, `function` itself or
/// one in it; nullopt if there is no addr2line, or if it does not know.
std::optional<CallSite> inlined_call(void* address, const std::string& function) {
  const auto place = torch::unwind::libraryFor(address);
  if (!place) return std::nullopt;
  const auto answer =
      run_quietly({"addr2line", "-C", "-f", "-i", "-e", place->first, fmt::format("{:#x}", place->second)},
                  Environment::of_process(), std::chrono::seconds(10));
  const auto lines = split(answer.out, '\n');  // of each function its name, and then FILE:LINE
  for (size_t i = 0; answer.status == 0 && i + 1 < lines.size(); i += 2) {
    const auto end = lines[i + 1].find(" (discriminator ");
    const auto file_and_line = lines[i + 1].substr(0, end);
    const auto file = file_and_line.substr(0, file_and_line.rfind(':'));
    const auto line = parse_int(file_and_line.substr(std::min(file.size() + 1, file_and_line.size())));
    if (!line || *line <= 0 || is_library_header(file)) continue;
    const bool is_callback = function.empty() && i == 0;  // its name may be that of std::function
    if (is_callback && is_library_function(lines[i])) {
      return CallSite{.function = "a callback", .file = std::string(file), .line = *line};
    }
    if (is_library_function(lines[i])) continue;
    const bool is_in_it = i + 3 < lines.size();  // by its name alone, without parameters
    return CallSite{.function = readable(is_in_it || function.empty() ? lines[i] : function),
                    .file = std::string(file),
                    .line = *line};
  }
  return std::nullopt;
}

bool is_source_of_yoke(std::string_view path) {
  constexpr std::array<std::string_view, 4> kFolders = {"/yoke/base/", "/yoke/contract/", "/yoke/dist/",
                                                        "/yoke/train/"};
  return std::ranges::any_of(kFolders, [&](auto folder) { return path.find(folder) != path.npos; });
}

/// Returns nullopt if the address belongs to a library.
std::optional<CallSite> look_up(void* address) {
  Dl_info object = {};
  if (dladdr(address, &object) == 0 || object.dli_fname == nullptr) return std::nullopt;
  const std::string path = object.dli_fname;
  if (is_library_file(path)) return std::nullopt;
  CallSite site;
  try {
    const auto frames = torch::unwind::symbolize({address}, torch::unwind::Mode::fast);
    if (!frames.empty() && frames[0].funcname != "??") {
      // Without a line number, libtorch gives the path of the shared object, and the offset of the address in it.
      const bool has_line = base_name(frames[0].filename) != base_name(path);
      if (is_library_function(frames[0].funcname)) {
        const bool is_line_of_user =
            has_line && !is_library_header(frames[0].filename) && !is_source_of_yoke(frames[0].filename);
        return is_line_of_user ? inlined_call(address, "") : std::nullopt;
      }
      site.function = readable(frames[0].funcname);
      if (has_line) {
        if (is_library_header(frames[0].filename)) {
          if (auto call = inlined_call(address, site.function)) site = *std::move(call);
        } else {
          site.file = frames[0].filename;
          site.line = static_cast<int64_t>(frames[0].lineno);
        }
      }
    }
  } catch (const std::exception&) {  // a damaged program file, or a processor that libtorch does not know
  }
  if (site.function.empty()) {
    const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(object.dli_fbase);
    site.function = fmt::format("{}+{:#x}", base_name(path), offset);
  }
  return site;
}

}  // namespace

bool is_library_function(std::string_view demangled) {
  constexpr std::array<std::string_view, 10> kSpaces = {
      "at::",        "c10::",         "caffe2::",     "torch::",       "std::",
      "__gnu_cxx::", "yoke::train::", "yoke::dist::", "yoke::Error::", "nlohmann::"};
  const auto name = without_return_type(demangled);
  if (name == "_start" || name.starts_with("non-virtual thunk to ")) return true;
  return std::any_of(kSpaces.begin(), kSpaces.end(), [&](auto space) { return name.starts_with(space); });
}

bool is_library_file(std::string_view path) {
  constexpr std::array kNames = {"libtorch.", "libtorch_cpu.", "libtorch_cuda", "libtorch_hip", "libtorch_python.",
                                 "libc10.",   "libc10_",       "libyoke_",      "libstdc++.",   "libc++",
                                 "libc.so",   "libm.so",       "libpthread.",   "libgcc_s.",    "libgomp",
                                 "libomp.",   "ld-linux",      "linux-vdso."};
  const auto name = base_name(path);
  return std::any_of(kNames.begin(), kNames.end(), [&](auto prefix) { return name.starts_with(prefix); });
}

bool is_library_header(std::string_view path) {
  constexpr std::array<std::string_view, 11> kFolders = {
      "/ATen/", "/c10/",  "/caffe2/",    "/torch/csrc/", "/torch/include/", "/c++/",
      "/fmt/",  "/bits/", "/yoke/base/", "/yoke/dist/",  "/yoke/train/"};
  const auto name = base_name(path);
  const auto dot = name.rfind('.');
  const auto ending = dot == name.npos ? std::string_view() : name.substr(dot);
  const bool is_source = ending == ".cpp" || ending == ".cc" || ending == ".cxx" || ending == ".cu";
  return !is_source &&
         std::any_of(kFolders.begin(), kFolders.end(), [&](auto folder) { return path.find(folder) != path.npos; });
}

CallSite user_call(std::span<void* const> stack) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<void*, std::optional<CallSite>>();  // threads may outlive main
  const std::lock_guard lock(mutex);
  for (void* const return_address : stack) {
    // A return address points to the next instruction, which may belong to another line.
    void* const call = static_cast<char*>(return_address) - 1;
    auto found = known.find(call);
    if (found == known.end()) found = known.emplace(call, look_up(call)).first;
    if (found->second) return *found->second;
  }
  return {};
}

CallSite user_call() {
  constexpr int kMaxFrames = 256;
  std::array<void*, kMaxFrames> frames;
  const std::span stack(frames.data(), static_cast<size_t>(backtrace(frames.data(), kMaxFrames)));
  if (stack.empty()) return {};
  // The first frames are this function and its callers in yoke, which libtorch or the user called. yoke's library is
  // linked into the program, so without symbols these frames look like the program's own. Then those that libtorch
  // called are left out, and a direct call has no place.
  if (user_call(stack.first(1)).function.empty()) return user_call(stack);
  const auto first = std::ranges::find_if(stack, [](void* return_address) {
    Dl_info object = {};
    return dladdr(static_cast<char*>(return_address) - 1, &object) == 0 || object.dli_fname == nullptr ||
           is_library_file(object.dli_fname);
  });
  return user_call(stack.subspan(static_cast<size_t>(first - stack.begin())));
}

}  // namespace yoke::train
