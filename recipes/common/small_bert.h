// recipes/common/small_bert.h -- a BERT with random weights in a folder, for trainings without a download.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "yoke/models/bert.h"

namespace recipes {

/// Writes config.json, model.safetensors, vocab.txt and tokenizer_config.json, as transformers has them, into a folder.
/// The vocabulary is BERT's five special tokens and `words`; `options` gets its size. The weights have four times the
/// deviation of BERT's, which suits a width of hundreds: with it, a narrow network learns nothing for several epochs.
void write_small_bert(const std::filesystem::path& folder, const std::vector<std::string>& words,
                      yoke::models::BertOptions options, uint64_t seed);

}  // namespace recipes
