// Reads any bytes as the index of safetensors files: it is refused with an Error, or gives file names without folders.
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/train/format/safetensors_index.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto& [name, file] : yoke::train::parse_safetensors_index(text, "file")) {
      if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos) std::abort();
    }
  } catch (const yoke::Error&) {
  }
  return 0;
}
