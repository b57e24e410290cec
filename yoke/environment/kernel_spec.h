// yoke/environment/kernel_spec.h -- Jupyter's kernel specifications: what is in them, and which ones yoke has made.
//
// Format: "Kernel specs" in the documentation of jupyter_client. yoke's own are marked in their metadata, and only
// those are listed, replaced and removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::environment {

enum class Language { kPython, kCpp };

/// Which devices a kernel gets. If neither member is set, it starts without a claim, and sees what the server of
/// Jupyter sees.
struct KernelDevices {
  std::optional<int64_t> num_devices;
  std::string chosen;  ///< "0,1" or UUIDs.
  std::string length;  ///< How long the claim lasts, "8h"; empty: as long as the kernel lives.

  bool is_claimed() const { return num_devices.has_value() || !chosen.empty(); }
};

/// The container in which a kernel runs.
struct KernelContainer {
  std::string image;
  std::vector<std::string> options = {};  ///< Options of `yoke container run`, with absolute paths.
  /// Names and values that Jupyter sets for `yoke jupyter start`, which passes them on by `-e NAME`. Only this user may
  /// then read the specification.
  std::vector<std::pair<std::string, std::string>> variables = {};
};

/// Whether Jupyter, yoke or Apptainer reads this variable for itself, so that a value for a container must not be set
/// for them.
bool is_read_by_server(std::string_view variable);

struct KernelRequest {
  std::string name;
  std::string display_name;  ///< Empty: derived from the name.
  Language language = Language::kPython;
  std::string python;            ///< The program that runs the kernel, a path.
  std::string environment = {};  ///< The folder of its virtual environment; empty: none.
  KernelDevices devices = {};
  std::optional<KernelContainer> container = {};  ///< `python` is then the name of a program in the image.
  std::string cpp_folder = {};                    ///< For a C++ kernel, its cpp_folder().
  std::string yoke;                               ///< The path of this command.
  std::string kernels_folder;                     ///< The folder of yoke's own kernels (share/yoke/python/kernels).
};

/// The text of kernel.json. Pure.
std::string kernel_json(const KernelRequest& request);

/// Errors  kInvalidArgument: Jupyter finds no kernel of this name. It compares names in lower case.
void check_kernel_name(std::string_view name);

/// The user's folder of kernels: $JUPYTER_DATA_DIR, $XDG_DATA_HOME/jupyter or ~/.local/share/jupyter, then kernels.
/// Errors  kFailedPrecondition: HOME is not set either.
std::filesystem::path kernels_folder(const Environment& environment);

/// The folder of what a C++ kernel has compiled: its precompiled header, and the program in which cells run.
std::filesystem::path cpp_folder(const std::string& name, const Environment& environment);

/// A kernel specification that yoke has made.
struct Kernel {
  std::string name, display_name;
  std::filesystem::path folder;
  std::string python;       ///< The program that runs it.
  std::string environment;  ///< Folder; empty: none.
  std::string image;        ///< The image of its container; empty: it runs in none.
  std::string language;     ///< "python", "c++"
  KernelDevices devices;
};

/// Returns nullopt if the text is not the kernel.json of a kernel that yoke has made. Pure.
std::optional<Kernel> parse_kernel(std::string_view text);

/// The kernels in `folder` that yoke has made, by name.
std::vector<Kernel> list_kernels(const std::filesystem::path& folder);

/// Errors  kInvalidArgument: check_kernel_name(); kFailedPrecondition: there is a kernel of this name that yoke has not
///         made.
void check_free(const std::string& name, const std::filesystem::path& folder);

/// `environments` are virtual environments in which the server may run.
/// Errors  kInvalidArgument: Jupyter prefers a kernel of this name that they have.
void check_not_hidden(const std::string& name, const std::vector<std::filesystem::path>& environments);

/// Writes the specification. Errors  those of check_free(); kFailedPrecondition: there is a kernel of this name that
/// yoke has not made. Returns  its folder.
std::filesystem::path install_kernel(const KernelRequest& request, const std::filesystem::path& folder);

/// Also removes what a C++ kernel has compiled.
/// Errors  kNotFound: there is no such kernel; kFailedPrecondition: yoke has not made it, so it stays.
void remove_kernel(const std::string& name, const Environment& environment);

}  // namespace yoke::environment
