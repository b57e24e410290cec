#include "yoke/train/data/token_files.h"

#include <algorithm>
#include <span>

#include "yoke/base/error.h"
#include "yoke/train/data/detail/check.h"
#include "yoke/train/data/detail/read_at.h"

namespace yoke::train {

struct TokenFiles::Impl {
  TokenOptions options;
  int64_t token_bytes = 2;
  std::vector<detail::OpenFile> files;
  std::vector<int64_t> ends;  // number of sequences in all files up to this one, included

  // Reads sequence number `number` and the token that follows it.
  template <class Token>
  void read(int64_t number, std::vector<Token>& tokens) const {
    const auto file = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), number) - ends.begin());
    const int64_t in_file = number - (file == 0 ? 0 : ends[file - 1]);
    const int64_t first = in_file * options.sequence_length;
    tokens.resize(static_cast<size_t>(options.sequence_length + 1));
    detail::read_at(files[file], options.offset_bytes + first * token_bytes, std::as_writable_bytes(std::span(tokens)));
    if (options.vocabulary_size == 0) return;
    const auto found = std::find_if(tokens.begin(), tokens.end(), [&](Token token) {
      return static_cast<int64_t>(token) >= options.vocabulary_size;
    });
    if (found != tokens.end()) {
      throw Error(ErrorCode::kDataLoss, "{}: token {} is {}, but the vocabulary has {} tokens",
                  files[file].path.string(), first + (found - tokens.begin()), *found, options.vocabulary_size);
    }
  }

  template <class Token>
  int64_t fill(const BatchRequest& request, const TokenBatch& batch) const {
    std::vector<Token> tokens;
    const int64_t length = options.sequence_length;
    return request.for_each([&](int64_t row, int64_t sample, SampleRandom&) {
      read(sample, tokens);
      std::copy_n(tokens.begin(), length, batch.data.mutable_data_ptr<int64_t>() + row * length);
      std::copy_n(tokens.begin() + 1, length, batch.target.mutable_data_ptr<int64_t>() + row * length);
      if (!options.end_of_document) return;
      int64_t document = 0;
      int64_t* documents = batch.documents.mutable_data_ptr<int64_t>() + row * length;
      for (int64_t i = 0; i < length; ++i) {
        documents[i] = document;
        if (static_cast<int64_t>(tokens[static_cast<size_t>(i)]) == *options.end_of_document) ++document;
      }
    });
  }
};

TokenFiles::TokenFiles(std::vector<std::filesystem::path> paths, const TokenOptions& o) {
  detail::check_that(!paths.empty(), "token files: no files are given");
  detail::check_that(o.sequence_length >= 1 && o.sequence_length < int64_t{1} << 40, "token files: sequence_length {}",
                     o.sequence_length);
  detail::check_that(o.dtype == at::kUInt16 || o.dtype == at::kUInt32,
                     "token files: dtype {}; files of kUInt16 and kUInt32 are read", c10::toString(o.dtype));
  detail::check_that(o.offset_bytes >= 0 && o.vocabulary_size >= 0,
                     "token files: offset_bytes {} and vocabulary_size {} must be 0 or more", o.offset_bytes,
                     o.vocabulary_size);
  auto impl = std::make_shared<Impl>();
  impl->options = o;
  impl->token_bytes = static_cast<int64_t>(c10::elementSize(o.dtype));
  int64_t num_sequences = 0;
  for (auto& path : paths) {
    const auto& file = impl->files.emplace_back(detail::open_file(path));
    const int64_t num_bytes = file.size_bytes - o.offset_bytes;
    if (num_bytes < 0 || num_bytes % impl->token_bytes != 0) {
      throw Error(ErrorCode::kDataLoss, "{} has {} bytes, which are not {} bytes and then whole tokens of {} bytes",
                  path.string(), file.size_bytes, o.offset_bytes, impl->token_bytes);
    }
    const int64_t num_tokens = num_bytes / impl->token_bytes;
    if (num_tokens <= o.sequence_length) {
      throw Error(ErrorCode::kDataLoss, "{} has {} tokens; a sequence of {} and the token after it need {}",
                  path.string(), num_tokens, o.sequence_length, o.sequence_length + 1);
    }
    num_sequences += (num_tokens - 1) / o.sequence_length;
    impl->ends.push_back(num_sequences);
  }
  impl_ = std::move(impl);
}

int64_t TokenFiles::size() const { return impl_->ends.back(); }

TokenBatch TokenFiles::batch(const BatchRequest& request) const {
  const int64_t sizes[] = {request.size(), impl_->options.sequence_length};
  TokenBatch batch{request.empty(sizes, at::kLong), request.empty(sizes, at::kLong), {}};
  if (impl_->options.end_of_document) batch.documents = request.empty(sizes, at::kLong);
  const int64_t rows = impl_->options.dtype == at::kUInt16 ? impl_->fill<uint16_t>(request, batch)
                                                           : impl_->fill<uint32_t>(request, batch);
  if (rows < request.size()) {
    for_each_tensor(batch, [&](at::Tensor& tensor) { tensor = tensor.narrow(0, 0, rows); });
  }
  return batch;
}

}  // namespace yoke::train
