// yoke/infer/source.h -- samples of any kind that models take: arrays, images, lines of text, tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/infer/model.h"
#include "yoke/infer/request.h"
#include "yoke/train/data/source.h"

namespace yoke::infer {

/// Reads the samples. Any number of threads may call `batch` at the same time.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual int64_t size() const = 0;
  /// Errors  for each sample, through BatchRequest::for_each.
  virtual Inputs batch(const train::BatchRequest& request) const = 0;
  virtual bool has_names() const { return false; }
  virtual std::string name(int64_t sample) const { return std::to_string(sample); }
  virtual std::string describe() const = 0;  ///< "1,000 images": for people, and to recognise the input again.
  /// The files that are read of a folder, in their order; none: the input is one file.
  virtual std::vector<std::filesystem::path> files() const { return {}; }
  /// The other files of a folder, below it and sorted: all that are no samples, without hidden ones.
  virtual const std::vector<std::string>& left_out() const {
    static const std::vector<std::string> kNone;
    return kNone;
  }
};

/// Opens an input, by its extension:
///
///   .npy           an array [samples, ...]
///   .safetensors   all its tensors, each [samples, ...], under their names
///   .jpg, .png     one image
///   .tar           images of tar shards, one for each sample, under the keys; a sample with two is a bad one
///   .bin           sequences of tokens, uint16 or uint32, in the machine's byte order
///   a folder       all images below it, in the order of their paths; if there is none, the tar shards below it
///   anything else  lines of text, for a model with a tokenizer; refused if there is a zero among the first bytes
///
/// Images are decoded whole, whatever the model's transform says, so that pixels are those of torchvision.
///
/// Errors  kNotFound; kDataLoss, with the path; kInvalidArgument: it is none of these, has no samples, or the model has
///         no tokenizer (says what to give).
std::shared_ptr<const Reader> open_reader(const Request& request, const Model& model);

/// The mean and deviation that the text names: "imagenet"; "none", for values in [0, 1]; or "MEAN/DEVIATION", each a
/// number, or three with commas between them. Errors  kInvalidArgument.
train::Normalization normalization_of(const std::string& text);

// The readers, for open_reader() and tests.

std::shared_ptr<const Reader> open_npy(const std::filesystem::path& path);
std::shared_ptr<const Reader> open_arrays(const std::filesystem::path& path);  ///< Of safetensors.
/// `transform` is used with shrink_on_decode = false.
std::shared_ptr<const Reader> open_images(const std::filesystem::path& path, const train::ImageTransform& transform);

struct TextOptions {
  std::shared_ptr<const models::Tokenizer> tokenizer;
  int64_t max_length = 0;  ///< Further tokens of a line are left out, but BERT's last one; 0: none.
  int64_t min_tokens = 1;
};
std::shared_ptr<const Reader> open_text(const std::filesystem::path& path, const TextOptions& options);

struct TokenReaderOptions {
  int64_t length = 1024;
  bool is_wide = false;  ///< uint32 instead of uint16.
};
std::shared_ptr<const Reader> open_tokens(const std::filesystem::path& path, const TokenReaderOptions& options);

/// A reader as a source for train::Loader.
template <bool kNamed>
class Source {
 public:
  explicit Source(std::shared_ptr<const Reader> reader) : reader_(std::move(reader)) {}
  int64_t size() const { return reader_->size(); }
  Inputs batch(const train::BatchRequest& request) const { return reader_->batch(request); }
  std::string name(int64_t sample) const requires kNamed { return reader_->name(sample); }

 private:
  std::shared_ptr<const Reader> reader_;
};

}  // namespace yoke::infer
