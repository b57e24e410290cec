#include "yoke/train/checkpoint/text_value.h"

#include "yoke/base/error.h"

namespace yoke::train {

std::string text_of(bool value) { return value ? "yes" : "no"; }
std::string text_of(double value) { return fmt::format("{}", value); }

void refuse_text(const std::string& name, const std::string& text) {
  throw Error(ErrorCode::kDataLoss, "the checkpoint's '{}' is '{}', which is not a value of its type", name, text);
}

void read_text(const std::string& name, const std::string& text, bool& value) {
  if (text != "yes" && text != "no") refuse_text(name, text);
  value = text == "yes";
}

void read_text(const std::string& name, const std::string& text, double& value) {
  const auto* end = text.data() + text.size();
  double read = 0;
  const auto [rest, error] = std::from_chars(text.data(), end, read);
  if (error != std::errc() || rest != end) refuse_text(name, text);
  value = read;
}

}  // namespace yoke::train
