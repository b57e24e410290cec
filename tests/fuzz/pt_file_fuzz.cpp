// Reads any pickle in an otherwise valid .pt file, and in one of the layout before torch 1.6; or any bytes as a file of
// that layout. The file is refused with an Error, or gives values that can be written and read again, and tensors
// within their storages. Storages have the sizes in the pickle if those are small.
#include <ATen/EmptyTensor.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string_view>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/format/detail/pickle.h"
#include "yoke/train/format/detail/pt_dtypes.h"
#include "yoke/train/format/detail/zip_file.h"
#include "yoke/train/format/pt_file.h"

namespace {

using namespace yoke::train;  // NOLINT(google-build-using-namespace): a program of one file

std::map<std::string, std::string> storages_of(const Pickle& parsed) {
  std::map<std::string, std::string> contents;
  for (const auto& node : parsed.nodes) {
    const auto* storage = std::get_if<PickleStorage>(&node);
    constexpr int64_t kMax = 4096;
    if (storage == nullptr || storage->num_elements > kMax || storage->key.size() > 100) continue;
    const auto bytes = storage->num_elements * static_cast<int64_t>(c10::elementSize(*pt_dtype(storage->dtype)));
    contents.emplace(storage->key, std::string(static_cast<size_t>(bytes), '\1'));
  }
  return contents;
}

std::string archive(std::string_view pickle, const Pickle& parsed) {
  ZipWriter zip;
  std::string file;
  const auto add = [&](const std::string& name, std::string_view content) {
    file += zip.begin(name, std::ssize(content), zip_crc(std::as_bytes(std::span(content))));
    file += content;
  };
  add("a/data.pkl", pickle);
  for (const auto& [key, content] : storages_of(parsed)) add("a/data/" + key, content);
  return file + zip.end();
}

constexpr std::string_view kMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

std::string old_layout(std::string_view pickle, const Pickle& parsed) {
  std::string keys, contents;
  for (const auto& [key, content] : storages_of(parsed)) {
    keys += 'U' + std::string(1, static_cast<char>(key.size())) + key;
    for (const auto& node : parsed.nodes) {
      const auto* storage = std::get_if<PickleStorage>(&node);
      if (storage == nullptr || storage->key != key) continue;
      contents += std::string(reinterpret_cast<const char*>(&storage->num_elements), sizeof storage->num_elements);
      break;
    }
    contents += content;
  }
  return std::string(kMagic) + "\x80\x02M\xe9\x03.\x80\x02}." + std::string(pickle) + "\x80\x02](" + keys + "e." +
         contents;
}

void check(const PtValue& value) {
  if (const auto* tensor = value.get_if<at::Tensor>()) {
    const auto needed = at::detail::computeStorageNbytes(tensor->sizes(), tensor->strides(), tensor->element_size(),
                                                         static_cast<size_t>(tensor->storage_offset()));
    if (tensor->numel() > 0 && needed > tensor->storage().nbytes()) std::abort();
  } else if (const auto* list = value.get_if<PtList>()) {
    for (const auto& inner : list->values) check(inner);
  } else if (const auto* tuple = value.get_if<PtTuple>()) {
    for (const auto& inner : tuple->values) check(inner);
  } else if (const auto* dict = value.get_if<PtDict>()) {
    for (const auto& item : dict->items) check(item.key), check(item.value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  static const yoke::UniqueFd file(memfd_create("fuzz", MFD_CLOEXEC));
  static const auto folder = std::filesystem::temp_directory_path() / ("yoke_pt_file_fuzz." + std::to_string(getpid()));
  static const std::string path = "/proc/self/fd/" + std::to_string(file.value());
  static const bool made = std::filesystem::create_directory(folder) && std::atexit([] {
                                                                          std::error_code error;
                                                                          std::filesystem::remove_all(folder, error);
                                                                        }) == 0;
  if (!made) std::abort();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> files;
  try {
    if (input.starts_with(kMagic)) {
      files.emplace_back(input);
    } else {
      const auto parsed = parse_pickle(std::as_bytes(std::span(data, size)), "file");
      files = {archive(input, parsed), old_layout(input, parsed)};
    }
  } catch (const yoke::Error&) {
    return 0;
  }
  for (const auto& text : files) {
    if (ftruncate(file.value(), 0) != 0 || lseek(file.value(), 0, SEEK_SET) != 0) std::abort();
    yoke::write_all(file.value(), std::as_bytes(std::span(text)), path);
    PtValue value;
    try {
      value = read_pt(path);
    } catch (const yoke::Error&) {
      continue;
    }
    check(value);
    write_pt(folder / "again.pt", value);
    check(read_pt(folder / "again.pt"));
  }
  return 0;
}
