// Lines of text and sequences of tokens as samples, and the choice of a reader.
#include "yoke/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/infer/source.h"
#include "yoke/train/data/token_files.h"

namespace yoke::infer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytesOfLine = 1 << 20;
constexpr auto kInputs =
    ".npy, .safetensors, .jpg, .jpeg, .png, .tar, .bin (tokens), folders of images, and lines of text in files of any "
    "other name";

class TextReader : public Reader {
 public:
  TextReader(const fs::path& path, TextOptions options) : file_(path), options_(std::move(options)) {
    const auto bytes = file_.bytes();
    lines_ = lines_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    padding_ = options_.tokenizer->token("[PAD]").value_or(0);
    ends_with_token_ = options_.tokenizer->token("[SEP]").has_value();
  }
  int64_t size() const override { return std::ssize(lines_); }
  std::string describe() const override { return counted(size(), "line"); }

  Inputs batch(const train::BatchRequest& request) const override {
    std::vector<std::vector<int64_t>> lists(static_cast<size_t>(request.size()));
    const auto num_rows = request.for_each([&](int64_t row, int64_t sample, train::SampleRandom&) {
      lists[static_cast<size_t>(row)] = encode(trimmed(lines_[static_cast<size_t>(sample)], "\r"));
    });
    lists.resize(static_cast<size_t>(num_rows));
    const auto [tokens, mask] = models::pad_tokens(lists, options_.max_length, padding_);
    return {{"input_ids", tokens}, {"attention_mask", mask.to(at::kLong)}};
  }

 private:
  std::vector<int64_t> encode(std::string_view line) const {
    if (line.size() > kMostBytesOfLine) {
      throw Error(ErrorCode::kDataLoss, "the line has {}, and the longest may have {}",
                  format_bytes(static_cast<int64_t>(line.size())), format_bytes(kMostBytesOfLine));
    }
    auto tokens = options_.tokenizer->encode(line);
    if (std::ssize(tokens) < options_.min_tokens) {
      throw Error(ErrorCode::kDataLoss, "the line has {}, and the model needs {}", counted(std::ssize(tokens), "token"),
                  options_.min_tokens);
    }
    const bool is_cut = options_.max_length > 0 && std::ssize(tokens) > options_.max_length;
    if (is_cut && !ends_with_token_) tokens.resize(static_cast<size_t>(options_.max_length));
    return tokens;
  }

  MappedFile file_;
  TextOptions options_;
  std::vector<std::string_view> lines_;
  int64_t padding_ = 0;
  bool ends_with_token_ = false;  ///< Such as BERT's [SEP], which pad_tokens() keeps.
};

class TokenReader : public Reader {
 public:
  TokenReader(const fs::path& path, const TokenReaderOptions& options)
      : files_({path}, {.sequence_length = options.length, .dtype = options.is_wide ? at::kUInt32 : at::kUInt16}),
        length_(options.length) {}
  int64_t size() const override { return files_.size(); }
  std::string describe() const override { return fmt::format("{} of {} tokens", counted(size(), "sequence"), length_); }
  Inputs batch(const train::BatchRequest& request) const override {
    return {{"input_ids", files_.batch(request).data}};
  }

 private:
  train::TokenFiles files_;
  int64_t length_;
};

train::ImageTransform transform_for(const Request& request, const Model& model) {
  auto transform = model.images.value_or(train::ImageTransform{.normalization = train::imagenet_normalization()});
  if (request.size > 0) {
    transform.height = transform.width = request.size;
    transform.shorter_side = request.size * 256 / 224;
  }
  if (!request.normalize.empty()) transform.normalization = normalization_of(request.normalize);
  return transform;
}

/// Whether a file begins as archives and images do, and no text in UTF-8.
bool has_zeros(const fs::path& path) {
  std::string begin(4096, ' ');
  std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
  return begin.find('\0') != begin.npos;
}

std::shared_ptr<const Reader> open_lines(const Request& request, const Model& model) {
  if (has_zeros(request.input)) {
    throw Error(ErrorCode::kInvalidArgument, "{} is not text, because it has bytes of zero; inputs are {}",
                printable(request.input.string()), kInputs);
  }
  for (const char* ending : {".csv", ".tsv", ".json", ".jsonl"}) {
    if (request.input.extension() != ending) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        "{} is a table, of which each line would be taken as one text: write its texts into a file, one in a line. "
        "Inputs are {}",
        printable(request.input.string()), kInputs);
  }
  const auto most = request.max_length;
  if (model.max_length > 0 && most > model.max_length) {
    throw Error(ErrorCode::kInvalidArgument, "--max-length {} is more than the {} tokens that the model takes", most,
                model.max_length);
  }
  auto tokenizer = model.tokenizer;
  if (!request.tokenizer.empty()) tokenizer = models::read_tokenizer(request.tokenizer);
  if (!tokenizer) {
    throw Error(ErrorCode::kInvalidArgument,
                "{} is read as lines of text, and the model comes without a tokenizer: give --tokenizer FOLDER, with "
                "tokenizer.json, vocab.txt, or vocab.json and merges.txt. Inputs are {}",
                printable(request.input.string()), kInputs);
  }
  return open_text(
      request.input,
      {.tokenizer = tokenizer, .max_length = most > 0 ? most : model.max_length, .min_tokens = model.min_tokens});
}

}  // namespace

std::shared_ptr<const Reader> open_text(const fs::path& path, const TextOptions& options) {
  return std::make_shared<TextReader>(path, options);
}

std::shared_ptr<const Reader> open_tokens(const fs::path& path, const TokenReaderOptions& options) {
  return std::make_shared<TokenReader>(path, options);
}

std::shared_ptr<const Reader> open_reader(const Request& request, const Model& model) {
  const auto& path = request.input;
  const auto extension = lower_case(path.extension().string());
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw system_error(error ? error.value() : ENOENT, "reading the input " + printable(path.string()));
  }
  std::shared_ptr<const Reader> reader;
  const bool is_image = extension == ".jpg" || extension == ".jpeg" || extension == ".png" || extension == ".tar";
  if (fs::is_directory(status) || is_image) {
    reader = open_images(path, transform_for(request, model));
  } else if (extension == ".npy") {
    reader = open_npy(path);
  } else if (extension == ".safetensors") {
    reader = open_arrays(path);
  } else if (extension == ".bin") {
    const auto usual = model.max_length > 0 ? std::min<int64_t>(model.max_length, 1024) : 1024;
    reader = open_tokens(
        path, {.length = request.max_length > 0 ? request.max_length : usual, .is_wide = request.has_wide_tokens});
  } else {
    reader = open_lines(request, model);
  }
  if (reader->size() > 0) return reader;
  throw Error(ErrorCode::kInvalidArgument, "{} has no samples", printable(path.string()));
}

}  // namespace yoke::infer
