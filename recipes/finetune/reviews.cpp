#include "recipes/finetune/reviews.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "yoke/train/data/sample_random.h"

namespace finetune {
namespace {

using yoke::train::SampleRandom;

constexpr std::array kNouns = {"film", "plot", "cast", "music", "ending", "script", "hero", "villain", "pace", "story"};
constexpr std::array kVerbs = {"is", "was", "seemed", "felt"};
constexpr std::array kDegrees = {"very", "really", "quite", "rather"};
constexpr std::array kGood = {"good",  "great",     "charming", "clever", "moving",
                              "funny", "brilliant", "fresh",    "lovely", "strong"};
constexpr std::array kBad = {"bad", "poor", "dull", "silly", "boring", "clumsy", "terrible", "stale", "awful", "weak"};

template <class Words>
std::string one_word(const Words& words, SampleRandom& random) {
  return words[static_cast<size_t>(random.below(static_cast<int64_t>(words.size())))];
}

std::string clause(bool is_positive, SampleRandom& random) {
  auto text = fmt::format("the {} {}", one_word(kNouns, random), one_word(kVerbs, random));
  const bool is_negated = random.chance(0.4);
  if (is_negated) text += " not";
  if (random.chance(0.5)) text += " " + one_word(kDegrees, random);
  return text + " " + (is_positive != is_negated ? one_word(kGood, random) : one_word(kBad, random));
}

}  // namespace

Review invent_review(int64_t number) {
  SampleRandom random(0x72657669, 0, number);
  const bool is_positive = random.chance(0.5);
  const auto form = random.below(4);
  const auto said = clause(is_positive, random);
  if (form == 0) return {said + ".", is_positive};
  const auto granted = clause(!is_positive, random);
  if (form == 1) return {fmt::format("although {}, {}.", granted, said), is_positive};
  if (form == 2) return {fmt::format("{}, but {}.", granted, said), is_positive};
  return {fmt::format("{}, although {}.", said, granted), is_positive};
}

std::vector<std::string> review_words() {
  std::vector<std::string> words = {".", ",", "the", "not", "but", "although"};
  const auto add = [&](const auto& more) { words.insert(words.end(), more.begin(), more.end()); };
  add(kNouns);
  add(kVerbs);
  add(kDegrees);
  add(kGood);
  add(kBad);
  return words;
}

}  // namespace finetune
