#include "yoke/dist/plug.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "yoke/base/environment.h"
#include "yoke/contract/amd_driver.h"
#include "yoke/contract/cuda_driver.h"
#include "yoke/contract/error_file.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/detail/plug_choice.h"
#include "yoke/dist/detail/preload.h"

namespace yoke::dist {
namespace {

// constinit, because a plug may register before the static constructors of this library have run.
constinit const Plug* registered = nullptr;

PlugStatus load_plug() {
  const auto* wanted = std::getenv(variable::kDevice);
  if (wanted != nullptr && std::string_view(wanted) == "cpu") return {false, "YOKE_DEVICE=cpu"};
  auto choice = choose_plug(probe_cuda_driver(), probe_amd_driver(Environment::of_process()), torch_of_this_process());
  std::filesystem::path file;
  if (const auto* named = std::getenv(variable::kPlug);
      named != nullptr && (choice.status.missing || !choice.library.empty())) {
    file = named;
  } else if (choice.library.empty()) {
    return std::move(choice.status);
  } else {
    Dl_info self{};
    dladdr(reinterpret_cast<const void*>(&register_plug), &self);
    file = std::filesystem::path(self.dli_fname).replace_filename(choice.library);
  }
  // RTLD_GLOBAL: libraries that are loaded later must find libtorch_cuda's symbols. The handle is never closed.
  if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return {true, std::string(dlerror()) + "; build yoke with its GPU plug"};
  }
  if (registered == nullptr) return {true, file.string() + " is not a plug of yoke: it registered nothing"};
  return {};
}

const PlugStatus& status() {
  static const PlugStatus result = load_plug();
  return result;
}

__attribute__((constructor)) void before_main() {
  serve_ranks_if_preloaded();
  record_uncaught_exceptions();
  status();
}

}  // namespace

void register_plug(const Plug& plug) {
  if (registered == nullptr) registered = &plug;
}

const Plug* loaded_plug() { return registered; }

const PlugStatus& plug_status() { return status(); }

}  // namespace yoke::dist
