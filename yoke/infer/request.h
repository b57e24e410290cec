// yoke/infer/request.h -- what `yoke infer` asks of the ranks that predict.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace yoke::infer {

struct Request {
  std::filesystem::path model;  ///< A file or folder of one of the kinds in model.h.
  std::filesystem::path input;  ///< A file or folder of one of the kinds in source.h.
  std::filesystem::path out;    ///< See train::PredictionFile.
  std::string recipe;           ///< Of a checkpoint that does not name it.
  int64_t batch_size = 0;       ///< Samples of a batch of one rank; 0: found by trying.
  std::string precision;        ///< "bf16", or empty for float32.
  int64_t size = 0;             ///< Height and width of images; 0: the model's, or 224.
  std::string normalize;        ///< See normalization_of(); empty: the model's, or ImageNet's.
  std::filesystem::path tokenizer;
  int64_t max_length = 0;        ///< In tokens; 0: the model's, or 1024 for files of tokens.
  bool has_wide_tokens = false;  ///< Tokens in a .bin file have four bytes instead of two.
  int64_t top = 0;               ///< So many classes of each sample instead of the output; 0: the output.
  int64_t workers = -1;          ///< Threads of a rank that read samples; -1: chosen.
  bool resume = false, json = false;
  std::string command;  ///< The command line to continue with, as users type it; for messages.
};

/// Parses words of the form --name=value, or --name for a flag, which `yoke infer` has checked.
/// Errors  kInvalidArgument: a word is unknown.
Request request_of(const std::vector<std::string>& words);

}  // namespace yoke::infer
