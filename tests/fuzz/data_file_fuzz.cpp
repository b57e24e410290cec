// Reads any bytes as an IDX file, a tar file or a file of tokens: either an Error names the file, or every sample can
// be read. The last two bytes choose the format and its options.
#include <ATen/ops/empty.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/train/data/detail/tar_file.h"
#include "yoke/train/data/idx.h"
#include "yoke/train/data/tar_shards.h"
#include "yoke/train/data/token_files.h"

namespace {

using namespace yoke::train;  // NOLINT(google-build-using-namespace): a program of one file

class Heap : public BatchMemory {
 public:
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) override {
    return at::empty(sizes, at::TensorOptions(dtype), format);
  }
};

void read_tar(const std::string& path, std::string_view bytes) {
  const auto file = yoke::train::detail::open_file(path);
  yoke::train::detail::TarReader reader(file);
  int64_t num_bytes = 0;
  bool is_sparse = false;
  while (const auto entry = reader.next()) {
    num_bytes += entry->content.num_bytes;
    is_sparse = is_sparse || entry->content.is_sparse;
  }
  constexpr int64_t kMax = 1 << 24;  // of sparse files, whose holes would only take time
  if (num_bytes > kMax) return;
  const TarShards shards({path});
  for (int64_t i = 0; i < shards.size(); ++i) {
    for (const auto& [extension, content] : shards.sample(i).files) {
      if (!is_sparse && (content.size() > bytes.size() || bytes.find(content) == bytes.npos)) std::abort();
    }
  }
}

void read_tokens(const std::string& path, unsigned char seed) {
  const TokenFiles files({path}, {.sequence_length = 1 + seed % 7,
                                  .dtype = seed % 2 == 0 ? at::kUInt16 : at::kUInt32,
                                  .offset_bytes = seed % 5,
                                  .vocabulary_size = seed % 3 == 0 ? 0 : 1 << 15,
                                  .end_of_document = seed % 4 == 0 ? std::optional<int64_t>(7) : std::nullopt});
  std::vector<int64_t> samples(static_cast<size_t>(files.size()));
  std::iota(samples.begin(), samples.end(), int64_t{0});
  const auto batch = files.batch(BatchRequest(samples, {.memory = std::make_shared<Heap>()}));
  if (batch.data.size(0) != files.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  if (size < 2) return 0;
  size -= 2;
  const unsigned char kind = data[size], seed = data[size + 1];
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  const auto path = "/proc/self/fd/" + std::to_string(fd);
  if (write(fd, bytes.data(), size) != static_cast<ssize_t>(size)) std::abort();
  try {
    if (kind % 3 == 0) decode_idx(bytes, path);
    if (kind % 3 == 1) read_tar(path, bytes);
    if (kind % 3 == 2) read_tokens(path, seed);
  } catch (const yoke::Error& error) {
    if (std::string_view(error.what()).find(path) == std::string_view::npos) std::abort();
  }
  close(fd);
  return 0;
}
