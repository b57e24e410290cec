// Reads any bytes as a safetensors file: it is refused with an Error, or gives tensors within the file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/format/safetensors_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace yoke::train;  // NOLINT(google-build-using-namespace): a program of one file
  static const yoke::UniqueFd file(memfd_create("fuzz", MFD_CLOEXEC));
  static const std::string path = "/proc/self/fd/" + std::to_string(file.value());
  // This copy has exactly the input's size, so that ASan detects a read beyond the end.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(bytes, "file");
  } catch (const yoke::Error&) {
    return 0;
  }
  if (ftruncate(file.value(), 0) != 0 || lseek(file.value(), 0, SEEK_SET) != 0) std::abort();
  yoke::write_all(file.value(), bytes, path);
  const SafetensorsReader reader(path);
  TensorMap tensors;
  try {
    tensors = reader.tensors();
  } catch (const yoke::Error&) {  // thrown if a byte of a BOOL is neither 0 nor 1, or libtorch lacks a dtype
    return 0;
  }
  if (tensors.size() != header.slots.size()) std::abort();
  for (const auto& slot : header.slots) {
    const auto& tensor = tensors.at(slot.name);
    const auto* stored = bytes.data() + header.num_bytes + slot.begin_byte;
    if (tensor.scalar_type() != slot.dtype || tensor.sizes() != slot.shape) std::abort();
    if (tensor.nbytes() != static_cast<size_t>(slot.end_byte - slot.begin_byte)) std::abort();
    if (tensor.nbytes() > 0 && std::memcmp(tensor.data_ptr(), stored, tensor.nbytes()) != 0) std::abort();
    if (slot.dtype == at::ScalarType::Float4_e2m1fn_x2) continue;  // cannot be compared
    if (!reader.elements(slot.name, 0, tensor.numel()).equal(tensor.view({-1}))) {
      if (!at::isFloatingType(slot.dtype) && !at::isComplexType(slot.dtype)) std::abort();  // NaN does not equal itself
    }
  }
  (void)lay_out_safetensors(tensors, {});
  return 0;
}
