// Any bytes as a safetensors file: refused with an Error, or tensors that lie in it, the same by either reader.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/checkpoint/safetensors_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace yoke::train;  // NOLINT(google-build-using-namespace): a program of one file
  static const yoke::UniqueFd file(memfd_create("fuzz", MFD_CLOEXEC));
  static const std::string path = "/proc/self/fd/" + std::to_string(file.value());
  // A copy of this very size: what is read beyond it is noticed.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  TensorMap copies;
  try {
    copies = copy_tensors(bytes, parse_safetensors_header(bytes, "file"), "file");
  } catch (const yoke::Error&) {
    return 0;
  }
  if (ftruncate(file.value(), 0) != 0 || lseek(file.value(), 0, SEEK_SET) != 0) std::abort();
  yoke::write_all(file.value(), bytes, path);
  const auto views = SafetensorsReader(path).tensors();
  if (views.size() != copies.size()) std::abort();
  for (const auto& [name, view] : views) {
    const auto& copy = copies.at(name);
    if (view.scalar_type() != copy.scalar_type() || view.sizes() != copy.sizes()) std::abort();
    if (view.nbytes() > 0 && std::memcmp(view.data_ptr(), copy.data_ptr(), copy.nbytes()) != 0) std::abort();
  }
  (void)lay_out_safetensors(copies, {});
  return 0;
}
