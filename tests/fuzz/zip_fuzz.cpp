// Reads any bytes as a zip file: it is refused with an Error, or gives entries that lie in the file without overlap,
// and whose content is damaged or can be read.
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/train/format/detail/zip_file.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace yoke::train;  // NOLINT(google-build-using-namespace): a program of one file
  // This copy has exactly the input's size, so that ASan detects a read beyond the end.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  std::map<std::string, ZipEntry> entries;
  try {
    entries = parse_zip(file, "file");
  } catch (const yoke::Error&) {
    return 0;
  }
  int64_t total = 0;
  for (const auto& [name, entry] : entries) {
    total += entry.num_bytes;
    std::vector<std::byte> content(static_cast<size_t>(entry.content_bytes));
    try {
      read_zip_content(file, entry, name, "file", content);
    } catch (const yoke::Error&) {
    }
  }
  if (total > static_cast<int64_t>(size)) std::abort();
  return 0;
}
