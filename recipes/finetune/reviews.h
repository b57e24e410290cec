// recipes/finetune/reviews.h -- invented reviews of films, for trainings without a data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace finetune {

struct Review {
  std::string text;
  bool is_positive = false;
};

/// "although the cast was not dull, the ending felt rather stale." Words alone do not tell what the review says: "not"
/// turns an adjective, and one of two clauses counts, which is not always the last one. `number` selects one review
/// among many; the same number gives the same review everywhere.
Review invent_review(int64_t number);

/// All words of reviews, for a vocabulary.
std::vector<std::string> review_words();

}  // namespace finetune
