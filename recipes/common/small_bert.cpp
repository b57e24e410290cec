#include "recipes/common/small_bert.h"

#include <ATen/core/grad_mode.h>

#include "yoke/base/file.h"
#include "yoke/models/pretrained.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/seed.h"

namespace recipes {

using namespace yoke;

void write_small_bert(const std::filesystem::path& folder, const std::vector<std::string>& words,
                      models::BertOptions options, uint64_t seed) {
  std::filesystem::create_directories(folder);
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (const auto& word : words) vocabulary += word + "\n";
  replace_file(folder / "vocab.txt", vocabulary);
  replace_file(folder / "tokenizer_config.json",
               std::string_view("{\"tokenizer_class\": \"BertTokenizer\", \"do_lower_case\": true}\n"));
  options.vocabulary_size = static_cast<int64_t>(words.size()) + 5;
  train::seed({.seed = seed});
  const models::Bert bert(options);
  const at::NoGradGuard no_grad;
  for (const auto& parameter : bert->parameters()) {
    if (parameter.dim() > 1) parameter.mul_(4);
  }
  models::write_bert(folder, options, train::named_tensors(*bert));
}

}  // namespace recipes
