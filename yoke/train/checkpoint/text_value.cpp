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

}  // namespace yoke::train
